"""Produce: record sets into partitions.

The requests that arrived together are handled as one gather: their record sets go to each partition in one
append, in the order of the requests, and every set keeps its own verdict. Source: KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, cast

from kafkapy._ext.hotpath import ProduceRequest, encode_produce_response
from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.log.results import AppendResult
from kafkapy.metadata.topic_rules import INTERNAL_TOPICS
from kafkapy.network.replies import CLOSE, NO_REPLY, Reply
from kafkapy.protocol.apis import PRODUCE
from kafkapy.replica.partition import Partition, Verdict
from kafkapy.server import produced_form
from kafkapy.server.api_table import serves
from kafkapy.server.call import MeteredPending
from kafkapy.server.produced_form import AT_MAGIC, ZSTD_SINCE
from kafkapy.server.produced_transactions import TransactionalSets

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkapy.network.connection import Connection
    from kafkapy.server.meters import RequestMeters
    from kafkapy.server.produced_transactions import Refusals
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.produce")

# (index, error code, base offset, log append time, log start offset, record errors or None, message or None)
Answer = tuple[int, int, int, int, int, Any, Any]

ADMIN_CLIENT = "__admin_client"  # the client id with which Kafka lets an operator's tool write to internal topics
SUPPORTS_UNKNOWN_PRODUCER = 4  # older clients know KAFKA_STORAGE_ERROR by another name
FAILURES_SHOWN = 10
LONGEST_NAME = 249
# Record sets of one gather: more take milliseconds, a million of them ten seconds, in which the network thread would
# serve nobody else.
MOST_INLINE = 1000


class _Slot:
    """Where one record set's answer belongs: its place in the list of its topic and request."""

    __slots__ = ("answers", "index", "meters", "place", "version")

    def __init__(
        self, answers: list[Answer | None], place: int, index: int, version: int, meters: RequestMeters
    ) -> None:
        self.meters = meters
        self.answers = answers
        self.place = place
        self.index = index
        self.version = version

    def fill(self, verdict: Verdict) -> None:
        if isinstance(verdict, KafkaError):
            self.meters.error("Produce", verdict.code)
        self.answers[self.place] = _answer(self.index, verdict, self.version)


def _answer(index: int, verdict: Verdict, version: int) -> Answer:
    if isinstance(verdict, KafkaError):
        code = verdict.code
        if code == Errors.KAFKA_STORAGE_ERROR and version < SUPPORTS_UNKNOWN_PRODUCER:
            code = Errors.NOT_LEADER_OR_FOLLOWER
        return (index, code, -1, -1, -1, getattr(verdict, "record_errors", None), verdict.message)
    return (index, Errors.NONE, verdict.base_offset, verdict.log_append_time, verdict.log_start_offset, None, None)


class _Gather:
    """The requests of one turn and the partitions they go to."""

    def __init__(self, broker: Services, frames: list[ProduceRequest], refused: Refusals | None = None) -> None:
        """`refused`: record sets that may not be appended."""
        self.frames = frames
        # one list of (topic, answers) a request, in the order asked
        self.answers: list[list[tuple[str, list[Answer | None]]]] = []
        self.sets: dict[Partition, tuple[list[memoryview], list[_Slot]]] = {}
        for number, frame in enumerate(frames):
            topics: list[tuple[str, list[Answer | None]]] = []
            for topic, partitions in frame.topics:
                answers: list[Answer | None] = [None] * len(partitions)
                topics.append((topic, answers))
                for place, (index, records) in enumerate(partitions):
                    slot = _Slot(answers, place, index, frame.api_version, broker.meters)
                    try:
                        if refused and (number, topic, index) in refused:
                            raise refused[number, topic, index]
                        self._take(broker, frame, topic, index, records, slot)
                    except KafkaError as error:
                        slot.fill(error)
            self.answers.append(topics)

    def _take(
        self,
        broker: Services,
        frame: ProduceRequest,
        topic: str,
        index: int,
        records: memoryview | None,
        slot: _Slot,
    ) -> None:
        acks = frame.acks
        if acks not in (-1, 0, 1):
            raise KafkaError(Errors.INVALID_REQUIRED_ACKS, f"acks={acks}: must be -1, 0 or 1")
        partition = broker.replicas.get(topic, index)
        refusal = partition.refusal(acks)
        if refusal is not None:
            raise refusal
        version = frame.api_version
        # What nearly all requests are is not looked at twice.
        if version < ZSTD_SINCE or not records or len(records) <= AT_MAGIC or records[AT_MAGIC] != 2:
            if records is not None and produced_form.is_nothing(version, records):
                slot.fill(AppendResult(-1, -1, -1, partition.log.log_start_offset))
                return
            produced_form.check(version, records, f"{topic}-{index}")
            assert records is not None
        if topic in INTERNAL_TOPICS and frame.client_id != ADMIN_CLIENT:
            raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"only the broker itself writes to {topic}")
        entry = self.sets.get(partition)
        if entry is None:
            self.sets[partition] = entry = ([], [])
        entry[0].append(records)
        entry[1].append(slot)
        broker.meters.bytes_in(topic, len(records))

    def encode(self) -> Reply:
        """The responses of all requests, one after the other; CLOSE where one with acks=0 failed."""
        frames = b"".join(part for part in map(self._encode_one, self.frames, self.answers) if part)
        for frame, topics in zip(self.frames, self.answers, strict=True):
            if frame.acks == 0 and (why := _failures(topics)):
                log.info(
                    "closing the connection of %r: produce with acks=0 failed, and this is how it learns: %s",
                    frame.client_id,
                    why,
                )
                return CLOSE
        return [frames] if frames else NO_REPLY

    @staticmethod
    def _encode_one(frame: ProduceRequest, topics: list[tuple[str, list[Answer | None]]]) -> bytes:
        if frame.acks == 0:
            return b""
        return encode_produce_response(frame.api_version, frame.correlation_id, cast("Any", topics), 0)


def _fill(slots: list[_Slot], verdicts: list[Verdict]) -> None:
    for slot, verdict in zip(slots, verdicts, strict=True):
        slot.fill(verdict)


def _failures(topics: list[tuple[str, list[Answer | None]]]) -> str:
    failed = [
        (topic, answer)
        for topic, answers in topics
        for answer in answers
        if answer is not None and answer[1] != Errors.NONE
    ]
    # For the log: neither as many as a request can hold, nor names longer than a topic's can be.
    shown = [f"{topic[:LONGEST_NAME]}-{answer[0]}: {name_of(answer[1])}" for topic, answer in failed[:FAILURES_SHOWN]]
    if len(failed) > FAILURES_SHOWN:
        shown.append(f"and {len(failed) - FAILURES_SHOWN} more")
    return ", ".join(shown)


def handle_gather(broker: Services, connection: Connection, frames: list[ProduceRequest]) -> list[Reply]:
    """Appends what `frames` hold. One reply a frame, or a Pending that stands for all of them."""
    count, in_transaction = _looked_at(frames)
    if count > MOST_INLINE:
        all_of_it = _pending_of(connection, frames)
        broker.conversion_pool.submit(_gather_later, broker, connection, frames, all_of_it)
        return [all_of_it]
    refused = None
    if in_transaction:
        sets = TransactionalSets(broker, frames)
        refused = sets.begin()
        if refused is None:
            all_of_it = _pending_of(connection, frames)
            sets.then(lambda refused: _append_later(broker, connection, frames, all_of_it, refused))
            return [all_of_it]
    gather = _Gather(broker, frames, refused)
    if not gather.sets:
        return _replies(gather)
    waiting = _Waiting(connection, gather)
    _append_all(gather, waiting)
    pending = waiting.release()
    return [pending] if pending is not None else _replies(gather)


def _looked_at(frames: list[ProduceRequest]) -> tuple[int, bool]:
    """How many record sets these are, and whether any of them is part of a transaction."""
    sets, in_transaction = 0, False
    for frame in frames:
        for _, partitions in frame.topics:
            sets += len(partitions)
        if frame.in_transaction:
            in_transaction = True
    return sets, in_transaction


def _gather_later(
    broker: Services, connection: Connection, frames: list[ProduceRequest], pending: MeteredPending
) -> None:
    """On the pool: the same for very many record sets."""
    try:
        sets = TransactionalSets(broker, frames)
        refused = sets.begin()
    except Exception:
        log.exception("produce of %r failed", frames[0].client_id)
        pending.complete(CLOSE)
        return
    if refused is None:
        sets.then(lambda refused: _append_later(broker, connection, frames, pending, refused))
    else:
        _append_later(broker, connection, frames, pending, refused)


def _append_later(
    broker: Services,
    connection: Connection,
    frames: list[ProduceRequest],
    pending: MeteredPending,
    refused: Refusals,
) -> None:
    try:
        gather = _Gather(broker, frames, refused)
    except Exception:
        log.exception("produce of %r failed", frames[0].client_id)
        pending.complete(CLOSE)
        return
    waiting = _Waiting(connection, gather, pending)
    _append_all(gather, waiting)
    waiting.less()


def _append_all(gather: _Gather, waiting: _Waiting) -> None:
    for partition, (sets, slots) in gather.sets.items():
        verdicts = _append(partition, sets, waiting.done(slots))
        if verdicts is not None:
            _fill(slots, verdicts)
            waiting.less()


def _append(
    partition: Partition, sets: list[memoryview], done: Callable[[list[Verdict]], None]
) -> list[Verdict] | None:
    """A failure that nobody foresaw is the answer of this partition alone.

    It must not end the gather: another partition's append may be in the disk pool by now and read the receive
    buffer, which only the Pending keeps from being reused.
    """
    try:
        return partition.append(sets, done)
    except Exception as error:
        log.exception("appending to %s failed", partition)
        return [KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error))] * len(sets)


def _replies(gather: _Gather) -> list[Reply]:
    first = gather.encode()
    return [first] + [NO_REPLY] * (len(gather.frames) - 1) if first is not CLOSE else [CLOSE]


class _Waiting:
    """Counts the partitions whose appends are still in the disk pool; the last one sends the answers."""

    def __init__(self, connection: Connection, gather: _Gather, pending: MeteredPending | None = None) -> None:
        self._connection = connection
        self._gather = gather
        self._left = len(gather.sets) + 1  # one for the handler itself, given up by release(), or less() if `pending`
        self._lock = threading.Lock()
        self._pending = pending

    def done(self, slots: list[_Slot]) -> Any:
        def finished(verdicts: list[Verdict]) -> None:
            _fill(slots, verdicts)
            self.less()

        return finished

    def less(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last and self._pending is not None:
            self._pending.complete(self._reply())

    def _reply(self) -> Reply:
        try:
            return self._gather.encode()
        except Exception:  # without an answer the connection would keep its receive buffer, and wait for good
            log.exception("the answer to produce of %r cannot be made", self._gather.frames[0].client_id)
            return CLOSE

    def release(self) -> MeteredPending | None:
        """Called last by the handler: None when every answer is there, else the Pending that will carry them."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                return None
            self._pending = _pending_of(self._connection, self._gather.frames)
            return self._pending


def _pending_of(connection: Connection, frames: list[ProduceRequest]) -> MeteredPending:
    """Carries the answers of all of them, and keeps the records where they are."""
    pending = MeteredPending(connection)
    pending.covers = len(frames)
    pending.keeps_buffer = True
    return pending


@serves(PRODUCE)
def handle(broker: Services, call: Any, request: Any) -> Any:
    """Only in the table for ApiVersions: the dispatcher hands Produce to `handle_gather`."""
    raise AssertionError("Produce goes through handle_gather")
