"""A transaction coordinator with one shard. Tests control its log, clock, timer and markers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from kafkapy.coordinator.shard import Producer, Shard
from kafkapy.coordinator.transaction_records import TransactionState, decode_state
from kafkapy.coordinator.transactions.completion import Completion
from kafkapy.coordinator.transactions.coordinator import TransactionCoordinator
from kafkapy.coordinator.transactions.machine import TransactionMachine
from kafkapy.coordinator.transactions.maintenance import Maintenance, TransactionSettings
from kafkapy.coordinator.transactions.transitions import TopicPartition
from kafkapy.errors import Errors
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.control import Marker
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.threads import NoThread
from tests.coordinator.groups.world import HandTimer
from tests.coordinator.memory_shard import MemoryLog
from tests.harness.batches import iter_batches

TOPIC = "__transaction_state"
LEADER_EPOCH = 7
Given = TypeVar("Given")
SETTINGS = TransactionSettings(
    max_timeout_ms=900_000, expiration_ms=604_800_000, abort_interval_ms=10_000, expire_interval_ms=3_600_000
)


class MemoryMarkers:
    """Records the written markers: (producer, coordinator epoch, commit, partition).

    `codes` are the error codes of partitions. While `held` is True, markers are written only by `release`.
    """

    def __init__(self, on_write: Callable[[Producer, bool, TopicPartition], None]) -> None:
        self.on_write = on_write
        self.written: list[tuple[Producer, int, bool, TopicPartition]] = []
        self.codes: dict[TopicPartition, int] = {}
        self.held = False
        self._waiting: list[Callable[[], None]] = []

    def write(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        done: Callable[[Mapping[TopicPartition, int]], None],
        is_needed: Callable[[], bool],
    ) -> None:
        producer = Producer(marker.producer_id, marker.producer_epoch)
        asked = list(partitions)

        def finish() -> None:
            codes = {one: self.codes.get(one, Errors.NONE) for one in asked}
            for one, code in codes.items():
                if code == Errors.NONE:
                    self.on_write(producer, marker.commit, one)
                    self.written.append((producer, marker.coordinator_epoch, marker.commit, one))
            done(codes)

        if self.held:
            self._waiting.append(finish)
        else:
            finish()

    def release(self) -> None:
        self.held = False
        waiting, self._waiting = self._waiting, []
        for finish in waiting:
            finish()


class OneShard:
    """A stand-in for `Shards`, with the single partition of a topic."""

    def __init__(self, shard: Shard[TransactionMachine]) -> None:
        self.shard = shard

    def of(self, key: str) -> Shard[TransactionMachine]:
        return self.shard

    def active(self) -> list[Shard[TransactionMachine]]:
        return [self.shard]

    @property
    def is_loading(self) -> bool:
        return self.shard.state == "loading"


class World:
    """A coordinator and its clients. `restart` keeps only the log, the clock and the allocated producer ids."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog()
        self.ids = count(1000)
        self.settings = SETTINGS
        self.deleted: set[TopicPartition] = set()
        self.restart()

    def restart(self) -> None:
        if hasattr(self, "shard"):
            self.shard.end()
        self.timer = HandTimer(self.clock)
        self.markers = MemoryMarkers(self.on_marker)
        self.pooled: list[Callable[[], None]] = []
        self.threads = 1
        completion = Completion(self.markers, lambda topic, index: (topic, index) not in self.deleted, self.in_pool)
        self.machine = TransactionMachine(completion, Maintenance(lambda: self.settings))
        timer: Any = self.timer
        self.shard: Shard[TransactionMachine] = Shard(TOPIC, 0, self.machine, self.log, clock=self.clock, timer=timer)
        self.machine.shard = self.shard
        self.shard.leader_epoch = LEADER_EPOCH
        shards: Any = OneShard(self.shard)
        self.coordinator = TransactionCoordinator(
            shards, lambda done: done(next(self.ids)), lambda: self.settings, self.clock
        )
        replay(self.machine, self.log.batches)
        self.shard.begin()
        self.timer.advance(0)

    def in_pool(self, work: Callable[[], None]) -> None:
        if not self.threads:
            raise NoThread("disk-0", "out of memory")
        self.pooled.append(work)

    def run_pool(self) -> None:
        while self.pooled:
            self.pooled.pop(0)()

    def release_markers(self) -> None:
        """Write the held markers, and let the timer's thread bring their answers."""
        self.markers.release()
        self.timer.advance(0)

    def on_marker(self, producer: Producer, commit: bool, partition: TopicPartition) -> None:
        """Called before a marker is written. Subclasses check the marker."""

    # --- requests; each returns None if it is not answered yet

    def init(
        self, transactional_id: str, timeout_ms: int = 60_000, expected: Producer | None = None
    ) -> Producer | int | None:
        """Return the producer, or the error code."""
        answers: list[Producer | int] = []
        self.coordinator.init_producer_id(
            transactional_id,
            timeout_ms,
            *(expected or Producer(-1, -1)),
            lambda code, producer: answers.append(producer if code == Errors.NONE else code),
        )
        return only(answers)

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
        producer = self.init(transactional_id, timeout_ms)
        assert isinstance(producer, Producer)
        return producer

    def add(self, transactional_id: str, producer: Producer, *partitions: TopicPartition) -> int | None:
        answers: list[int] = []
        self.coordinator.add_partitions(transactional_id, *producer, partitions, answers.append)
        return only(answers)

    def end(self, transactional_id: str, producer: Producer, commit: bool) -> int | None:
        answers: list[int] = []
        self.coordinator.end(transactional_id, *producer, commit, answers.append)
        return only(answers)

    def commit(self, transactional_id: str, producer: Producer) -> int | None:
        return self.end(transactional_id, producer, True)

    def abort(self, transactional_id: str, producer: Producer) -> int | None:
        return self.end(transactional_id, producer, False)

    def verify(self, transactional_id: str, producer: Producer, *partitions: TopicPartition) -> list[int]:
        answers: list[Mapping[TopicPartition, int]] = []
        self.coordinator.verify(transactional_id, *producer, partitions, answers.append)
        (codes,) = answers
        return [codes[one] for one in partitions]

    # --- the state

    def state(self, transactional_id: str) -> str:
        return self.coordinator.describe(transactional_id).state_name

    def states_in_log(self) -> list[TransactionState | None]:
        return [None if value is None else decode_state(value) for _, value in self.log.records]


def only(answers: list[Given]) -> Given | None:
    """Return the answer, None if there is none yet. Fail if there are two."""
    assert len(answers) < 2, answers
    return answers[0] if answers else None


def replay(machine: TransactionMachine, batches: Iterable[tuple[list[tuple[bytes, bytes | None]], object]]) -> None:
    for records, _ in batches:
        builder = BatchBuilder()
        for key, value in records:
            builder.append(0, key, value)
        data = memoryview(builder.build())
        for header in iter_batches(data):
            machine.replay(header, data)
