"""Produce: record sets into partitions.

The requests that arrived together are handled as one gather, those of one connection (`handle_gather`) or small ones
of several (`handle_turn`): their record sets go to each partition in one append, in the order of the requests, and
every set keeps its own verdict. Source: KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy._ext.hotpath import ProduceRequest
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.results import AppendResult
from kafkapy.metadata.topic_rules import INTERNAL_TOPICS
from kafkapy.network.replies import CLOSE, Reply
from kafkapy.protocol.apis import PRODUCE
from kafkapy.replica.partition import Partition, Verdict
from kafkapy.server import produced_form
from kafkapy.server.api_table import serves
from kafkapy.server.call import MeteredPending
from kafkapy.server.produce_answers import Answer, Asked, Slot, pending_of
from kafkapy.server.produced_form import AT_MAGIC, ZSTD_SINCE
from kafkapy.server.produced_transactions import TransactionalSets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkapy.network.connection import Connection
    from kafkapy.server.produced_transactions import Refusals
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.produce")

ADMIN_CLIENT = "__admin_client"  # the client id with which Kafka lets an operator's tool write to internal topics
# Record sets of one gather: more take milliseconds, a million of them ten seconds, in which the network thread would
# serve nobody else.
MOST_INLINE = 1000
FEW = 8  # record sets of a connection that go with those of others


class _Gather:
    """The record sets of requests that came together, by the partitions that they go to."""

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._sets: dict[Partition, _Sets] = {}
        self._known: dict[tuple[str, int, int], _Sets] = {}  # by topic, index and acks

    def add(self, asked: Asked, refused: Refusals | None = None) -> None:
        """`refused`: record sets that may not be appended."""
        meters = self._broker.meters
        for number, frame in enumerate(asked.frames):
            topics: list[tuple[str, list[Answer | None]]] = []
            for topic, partitions in frame.topics:
                answers: list[Answer | None] = [None] * len(partitions)
                topics.append((topic, answers))
                for place, (index, records) in enumerate(partitions):
                    slot = Slot(asked, answers, place, index, frame.api_version, meters)
                    try:
                        if refused and (number, topic, index) in refused:
                            raise refused[number, topic, index]
                        self._take(frame, topic, index, records, slot)
                    except KafkaError as error:
                        slot.fill(error)
            asked.answers.append(topics)

    def _take(self, frame: ProduceRequest, topic: str, index: int, records: memoryview | None, slot: Slot) -> None:
        known = self._known.get((topic, index, frame.acks)) or self._know(topic, index, frame.acks)
        version = frame.api_version
        # What nearly all requests are is not looked at twice.
        if version < ZSTD_SINCE or not records or len(records) <= AT_MAGIC or records[AT_MAGIC] != 2:
            if records is not None and produced_form.is_nothing(version, records):
                slot.fill(AppendResult(-1, -1, -1, known.partition.log.log_start_offset))
                return
            produced_form.check(version, records, f"{topic}-{index}")
            assert records is not None
        if topic in INTERNAL_TOPICS and frame.client_id != ADMIN_CLIENT:
            raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"only the broker itself writes to {topic}")
        slots = known.slots
        if not slots or slots[-1].asked is not slot.asked:
            slot.asked.more()
        known.sets.append(records)
        slots.append(slot)

    def _know(self, topic: str, index: int, acks: int) -> _Sets:
        """Where the sets of such a request go; raises KafkaError where they can go nowhere."""
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
        """Each partition's answer, now or later, is one less that is awaited by those who asked."""
        for partition, of in self._sets.items():
            if not of.sets:
                continue
            self._broker.meters.bytes_in(partition.topic, sum(map(len, of.sets)))
            verdicts = _append(partition, of.sets, partial(_answered, of.slots))
            if verdicts is not None:
                _answered(of.slots, verdicts)


class _Sets:
    """What a gather has for one partition: the record sets, and where the answer to each belongs."""

    __slots__ = ("partition", "sets", "slots")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.sets: list[memoryview] = []
        self.slots: list[Slot] = []


def _answered(slots: list[Slot], verdicts: list[Verdict]) -> None:
    """A partition's verdicts for all its slots, which are in the order of those who asked."""
    asked = slots[0].asked
    for slot, verdict in zip(slots, verdicts, strict=True):
        slot.fill(verdict)
        if slot.asked is not asked:
            asked.less()
            asked = slot.asked
    asked.less()


def handle_gather(broker: Services, connection: Connection, frames: list[ProduceRequest]) -> list[Reply]:
    """Appends what `frames` hold. One reply a frame, or a Pending that stands for all of them."""
    count, in_transaction = _looked_at(frames)
    if count > MOST_INLINE:
        all_of_it = pending_of(connection, frames)
        broker.conversion_pool.submit(_gather_later, broker, connection, frames, all_of_it)
        return [all_of_it]
    refused = None
    if in_transaction:
        sets = TransactionalSets(broker, frames)
        refused = sets.begin()
        if refused is None:
            all_of_it = pending_of(connection, frames)
            sets.then(lambda refused: _append_later(broker, connection, frames, all_of_it, refused))
            return [all_of_it]
    asked = Asked(connection, frames)
    gather = _Gather(broker)
    gather.add(asked, refused)
    gather.append()
    return asked.release(keeps_buffer=True)


def may_wait(frames: Sequence[ProduceRequest]) -> bool:
    """Whether these may go into one gather with those of other connections (`handle_turn`)."""
    count, in_transaction = _looked_at(frames)
    # A failure with acks=0 is told by closing the connection: it stays what it was.
    return count <= FEW and not in_transaction and frames[0].acks != 0


def handle_turn(broker: Services, gathered: Sequence[tuple[Connection, list[ProduceRequest]]]) -> list[list[Reply]]:
    """As `handle_gather` for each connection, but with one append a partition for all of them.

    The records must stay where they are until every answer is there.
    """
    all_of_them = [Asked(connection, frames) for connection, frames in gathered]
    gather = _Gather(broker)
    for asked in all_of_them:
        try:
            gather.add(asked)
        except Exception:  # is this connection's, and no other's
            log.exception("produce of %r failed", asked.frames[0].client_id)
            asked.failed = True
    gather.append()
    return [asked.release(keeps_buffer=False) for asked in all_of_them]


def _looked_at(frames: Sequence[ProduceRequest]) -> tuple[int, bool]:
    """How many record sets these are, and whether any of them is part of a transaction."""
    sets, in_transaction = 0, False
    for frame in frames:
        sets += frame.record_sets
        in_transaction = in_transaction or frame.in_transaction
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
        asked = Asked(connection, frames, pending)
        gather = _Gather(broker)
        gather.add(asked, refused)
    except Exception:
        log.exception("produce of %r failed", frames[0].client_id)
        pending.complete(CLOSE)
        return
    gather.append()
    asked.less()


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


@serves(PRODUCE)
def handle(broker: Services, call: Any, request: Any) -> Any:
    """Only in the table for ApiVersions: the dispatcher hands Produce to `handle_gather`."""
    raise AssertionError("Produce goes through handle_gather")
