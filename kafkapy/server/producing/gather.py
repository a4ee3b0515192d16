"""The record sets of the Produce requests that are handled together, and the responses to these requests.

All record sets of a partition are appended in one call, in the order of the requests, and each has its own result. The
responses of a connection are sent when the last of its partitions has its results.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy._ext.hotpath import ProduceRequest, encode_produce_response
from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.log.results import AppendResult
from kafkapy.metadata.topic_rules import INTERNAL_TOPICS
from kafkapy.network.replies import CLOSE, NO_REPLY, Pending, Reply, Send
from kafkapy.replica.partition import Partition, Verdict
from kafkapy.server.admission import rights_of
from kafkapy.server.call import Call
from kafkapy.server.producing import form as produced_form
from kafkapy.server.producing.authorization import authorize
from kafkapy.server.producing.form import ZSTD_SINCE
from kafkapy.server.producing.leaders import NAMES_LEADER_SINCE, response_with_leaders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkapy.server.producing.transactions import Refusals
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.produce")

ALL = -1  # acks of a request that waits for all in-sync replicas

# (index, error code, base offset, log append time, log start offset, record errors or None, message or None)
Answer = tuple[int, int, int, int, int, Any, Any]
# Where the answer to one record set goes: the connection's requests, the list of the topic's answers, the position in
# that list, the partition's index, and the request. A tuple is created three times as fast as an object.
Slot = tuple["Asked", list[Answer | None], int, int, ProduceRequest]

ADMIN_CLIENT = "__admin_client"  # the client id that Kafka allows to write to internal topics, for operators' tools
SUPPORTS_UNKNOWN_PRODUCER = 4  # older clients get NOT_LEADER_OR_FOLLOWER for KAFKA_STORAGE_ERROR
FAILURES_SHOWN = 10
LONGEST_NAME = 249


class Gather:
    """Collects the record sets of Produce requests that are handled together, by partition. Call `add` for each
    connection, then `append`."""

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._sets: dict[Partition, _Sets] = {}
        self._known: dict[tuple[str, int, int], _Sets] = {}  # by topic, index and acks

    def add(self, asked: Asked, refused: Refusals | None = None) -> None:
        """Add the Produce requests of a connection. The record sets in `refused` are not appended, and get their errors
        from there."""
        # The topics that this connection's client may write. None if there is no authorizer, or if the authorizer was
        # asked about the calls before.
        allowed: set[str] | None = None
        if self._broker.authorizer is not None and self._broker.authorizer.pool is None:
            allowed = rights_of(self._broker, asked.calls[0]).writes
        known = allowed if allowed is not None else ()
        for number, call in enumerate(asked.calls):
            frame: ProduceRequest = call.request
            denied = _denials(call) if call.denied else None
            is_authorized = allowed is None or frame.in_transaction  # transactions were authorized before
            topics: list[tuple[str, list[Answer | None]]] = []
            for topic, partitions in frame.topics:
                if not is_authorized and topic not in known:
                    is_authorized = True
                    authorize(self._broker, call)
                    denied = _denials(call) if call.denied else None
                answers: list[Answer | None] = [None] * len(partitions)
                topics.append((topic, answers))
                for place, (index, records) in enumerate(partitions):
                    slot = (asked, answers, place, index, frame)
                    if denied is not None and topic in denied:
                        asked.refuse(slot, denied[topic])
                        continue
                    try:
                        if refused and (number, topic, index) in refused:
                            raise refused[number, topic, index]
                        self._take(frame, topic, index, records, slot)
                    except KafkaError as error:
                        asked.refuse(slot, error)
            asked.answers.append((call, topics))

    def _take(self, frame: ProduceRequest, topic: str, index: int, records: memoryview | None, slot: Slot) -> None:
        known = self._known.get((topic, index, frame.acks)) or self._know(topic, index, frame.acks)
        version = frame.api_version
        if version < ZSTD_SINCE or not frame.only_format_2:  # otherwise no further checks are needed
            if records is not None and produced_form.is_nothing(version, records):
                _fill(slot, AppendResult(-1, -1, -1, known.partition.log.log_start_offset))
                return
            produced_form.check(version, records, f"{topic}-{index}")
        assert records is not None
        if topic in INTERNAL_TOPICS and frame.client_id != ADMIN_CLIENT:
            raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"only the broker itself writes to {topic}")
        if not known.asked or known.asked[-1] is not slot[0]:
            slot[0].awaited.append(False)  # now, because after `append` the results may come on another thread
            known.asked.append(slot[0])
        known.sets.append(records)
        known.slots.append(slot)

    def _know(self, topic: str, index: int, acks: int) -> _Sets:
        """Return the collected record sets of a partition. Raise KafkaError if nothing can be appended to the partition
        with these acks."""
        if acks not in (-1, 0, 1):
            raise KafkaError(Errors.INVALID_REQUIRED_ACKS, f"acks={acks}: must be -1, 0 or 1")
        partition = self._broker.replicas.get(topic, index)
        refusal = partition.refusal(acks)
        if refusal is not None:
            raise refusal
        known = self._sets.get(partition)
        if known is None:
            self._sets[partition] = known = _Sets(partition)
        self._known[topic, index, acks] = known
        return known

    def append(self) -> None:
        """Append the collected record sets to their partitions. `_Sets.answered` gets the results, before this call
        returns or later, on any thread."""
        for of in self._sets.values():
            if of.sets:
                self._append_to(of)

    def _append_to(self, of: _Sets) -> None:
        """Append the record sets of one partition. An unexpected exception becomes the error of these record sets, and
        does not affect other partitions."""
        try:
            self._broker.meters.bytes_in(of.partition.topic, sum(map(len, of.sets)))
            verdicts = of.partition.append(of.sets, of.answered)
        except Exception as error:
            log.exception("appending to %s failed", of.partition)
            verdicts = [KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error))] * len(of.sets)
        if verdicts is not None:
            of.answered(verdicts)


def _denials(call: Call) -> dict[str, KafkaError]:
    """Return an error for each topic of a Produce call that the principal may not write to: all topics if the principal
    may not use the transactional id.
    """
    principal = call.connection.principal
    if call.is_denied("TRANSACTIONAL_ID"):
        why = f"{principal} may not write in the transactions of {call.request.transactional_id}"
        error = KafkaError(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)
        return {topic: error for topic, _ in call.request.topics}
    return {
        action.name: KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED, f"{principal} may not write to {action.name}")
        for action in call.denied
    }


class _Sets:
    """The record sets for one partition, the slots for their answers, and the requests that contain them."""

    __slots__ = ("asked", "partition", "sets", "slots")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.sets: list[memoryview] = []
        self.slots: list[Slot] = []
        self.asked: list[Asked] = []

    def answered(self, verdicts: list[Verdict]) -> None:
        """Write the results of the partition's append, one per record set, into the answers. Called once, from any
        thread."""
        try:
            partition_log = self.partition.log
            replicated = partition_log.high_watermark
            # With one replica this is nearly always true, and then no result has to wait for replicas.
            all_replicated = replicated >= partition_log.end[0]
            if self.partition.gone is not None:
                # This broker has lost the leadership, and the high watermark may count another leader's records:
                # `when_replicated` decides. `gone` is tested after the high watermark was read: while `gone` is None,
                # the high watermark counts only records of this leader.
                replicated, all_replicated = -1, False
            for slot, verdict in zip(self.slots, verdicts, strict=True):
                asked, answers, place, index, request = slot
                if isinstance(verdict, KafkaError):
                    asked.refuse(slot, verdict)
                    continue
                base_offset, last_offset, append_time, start_offset, _ = verdict
                if all_replicated or last_offset < replicated or request.acks != ALL:
                    answers[place] = (index, 0, base_offset, append_time, start_offset, None, None)
                else:
                    asked.not_replicated(self.partition, slot, verdict)
        except Exception:  # otherwise the connections would wait forever, and keep their receive buffers
            log.exception("the results of the append to %s cannot be stored", self.partition)
            for asked in self.asked:
                asked.failed = True
        for asked in self.asked:
            if asked.awaited.pop():
                asked.complete()


def _fill(slot: Slot, result: AppendResult) -> None:
    """Store the answer to a record set at its position in the response, from the result of the append."""
    _, answers, place, index, _ = slot
    base_offset, _, append_time, start_offset, _ = result
    answers[place] = (index, 0, base_offset, append_time, start_offset, None, None)


def _refused(index: int, error: KafkaError, version: int) -> Answer:
    code = error.code
    if code == Errors.KAFKA_STORAGE_ERROR and version < SUPPORTS_UNKNOWN_PRODUCER:
        code = Errors.NOT_LEADER_OR_FOLLOWER
    return (index, code, -1, -1, -1, getattr(error, "record_errors", None), error.message)


class Asked:
    """The Produce requests of one connection that are handled together, with the answers to them.

    `awaited` has one False for each partition without results yet, and one True, the first entry, for the handler. Each
    partition and the handler pop one entry when they are done. list.pop needs no lock, and the thread that pops the
    True is the last one: it calls `complete`. After `Gather.append`, the handler pops its entry if it has passed a
    `pending`; otherwise it calls `release`.
    """

    def __init__(self, broker: Services, calls: Sequence[Call], pending: Pending | None = None) -> None:
        self._broker = broker
        self.calls = calls
        # each request with a list of (topic, answers), in the order of the requests
        self.answers: list[tuple[Call, list[tuple[str, list[Any]]]]] = []
        self.awaited = [True]
        self.failed = False  # close the connection instead of sending answers
        self._pending = pending
        self._names_leader = False  # a response has to name another leader
        self._unreplicated: list[tuple[Partition, Slot, AppendResult]] = []

    def refuse(self, slot: Slot, error: KafkaError) -> None:
        """Store the error of a record set as the answer to it, at its position in the response (`slot`)."""
        _, answers, place, index, frame = slot
        self._broker.meters.error("Produce", error.code)
        if error.code == Errors.NOT_LEADER_OR_FOLLOWER:
            self._names_leader = True
        answers[place] = _refused(index, error, frame.api_version)

    def complete(self) -> None:
        """Send the responses, when all results are there."""
        if self._pending is not None:
            if self._unreplicated and not self.failed:
                self._pending.give_back_buffer()
                self._await_replicas(self._pending)
            else:
                self._pending.complete(self._reply())

    def not_replicated(self, partition: Partition, slot: Slot, result: AppendResult) -> None:
        """Delay the answer to a record set (acks=all) until the high watermark has reached its records, or until the
        request's time-out. `slot` is the position of the answer in the response.

        Call this before the partition pops its entry of `awaited`.
        """
        self._unreplicated.append((partition, slot, result))

    def _await_replicas(self, pending: Pending) -> None:
        """Send the responses when each delayed record set is below the high watermark or has timed out. Called when all
        appends are done, so the frames of the requests are not needed any more."""
        waits, self._unreplicated = self._unreplicated, []
        self.awaited = [True] + [False] * (len(waits) - 1)

        def replicated(slot: Slot, result: AppendResult, error: KafkaError | None) -> None:
            if error is None:
                _fill(slot, result)
            else:
                self.refuse(slot, error)
            if self.awaited.pop():
                # Usually this runs on the network thread, in the middle of a follower's fetch: send the response now,
                # before the rest of the fetch. An error may come from a thread that holds locks, and `Pending.complete`
                # forbids `at_once` there.
                pending.complete(self._reply(), at_once=error is None)

        for partition, slot, result in waits:
            done = partial(replicated, slot, result)
            partition.when_replicated(result.last_offset + 1, slot[4].timeout_ms / 1000, done)

    def release(self) -> list[Reply]:
        """Return the replies to the connection's requests if all partitions have their results, otherwise a Pending.

        The Pending is completed with the responses when the last partition has its results.
        """
        if self.failed:
            return [CLOSE]
        if len(self.awaited) > 1:
            # A race with the last partition, whose results may come at any time on another thread: that thread then
            # sends the responses through `_pending`. So set `_pending` before this thread pops its entry: until then,
            # no other pop is the last one.
            self._pending = pending_of(self.calls)
        if not self.awaited.pop():
            assert self._pending is not None
            return [self._pending]
        if self._unreplicated and not self.failed:
            pending = pending_of(self.calls, keeps_buffer=False)
            self._await_replicas(pending)
            return [pending]
        replies = [self._reply()]
        if len(self.calls) > 1 and replies[0] is not CLOSE:
            replies += [NO_REPLY] * (len(self.calls) - 1)
        return replies

    def _reply(self) -> Reply:
        """Return the responses to all requests of the connection, in order, as one reply. Return CLOSE if a request
        with acks=0 has failed."""
        if self.failed:
            return CLOSE
        parts: Send = []
        try:
            for call, topics in self.answers:
                if call.usage is not None:
                    call.usage.quotas.respond_to_produce(call, call.usage)
                if call.request.acks and self._names_leader and call.version >= NAMES_LEADER_SINCE:
                    parts.append(response_with_leaders(self._broker, call, topics))
                elif call.request.acks:
                    parts.append(
                        encode_produce_response(call.version, call.correlation_id, topics, call.throttle_time_ms)
                    )
                elif why := _failures(topics):
                    log.info(
                        "closing the connection of %r, to tell it that its Produce request with acks=0 has failed: %s",
                        call.client_id,
                        why,
                    )
                    return CLOSE
        except Exception:  # otherwise the connection would wait forever, and keep its receive buffer
            log.exception("the response to a produce request of %r cannot be encoded", self.calls[0].client_id)
            return CLOSE
        return parts or NO_REPLY


def _failures(topics: list[tuple[str, list[Answer | None]]]) -> str:
    failed = [
        (topic, answer)
        for topic, answers in topics
        for answer in answers
        if answer is not None and answer[1] != Errors.NONE
    ]
    # Short enough for a log line: a request can name very many partitions, and longer names than a topic can have.
    shown = [f"{topic[:LONGEST_NAME]}-{answer[0]}: {name_of(answer[1])}" for topic, answer in failed[:FAILURES_SHOWN]]
    if len(failed) > FAILURES_SHOWN:
        shown.append(f"and {len(failed) - FAILURES_SHOWN} more")
    return ", ".join(shown)


def pending_of(calls: Sequence[Call], *, keeps_buffer: bool = True) -> Pending:
    """Return a Pending for the responses to all calls, which are of one connection. `keeps_buffer`: the records are
    still in the connection's receive buffer, so it must not be reused yet."""
    if calls[0].pending is not None:
        return calls[0].pending
    pending = Pending(calls[0].connection)
    pending.covers = len(calls)
    pending.keeps_buffer = keeps_buffer
    return pending
