"""A shard whose log is a list, for tests of a state machine alone. Tests can make appends fail or wait."""

from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.coordinator.shard import Machine, Producer, Record, Shard
from kafkapy.errors import KafkaError
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.timer import Timer


class MemoryLog:
    """A log that keeps the (records, producer) of each append in `batches`. `fails` is the error of the next appends.
    While `held` is True, appends wait for `release`."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[Record], Producer | None]] = []
        self.fails: KafkaError | None = None
        self.held = False
        self._waiting: list[Callable[[], None]] = []

    def append(
        self, records: Sequence[Record], producer: Producer | None, done: Callable[[KafkaError | None], None]
    ) -> None:
        def finish() -> None:
            if self.fails is None:
                self.batches.append((list(records), producer))
            done(self.fails)

        if self.held:
            self._waiting.append(finish)
        else:
            finish()

    def finish_next(self) -> None:
        """Finish the first waiting append, with the error `fails` if set."""
        self._waiting.pop(0)()

    def release(self) -> None:
        self.held = False
        waiting, self._waiting = self._waiting, []
        for finish in waiting:
            finish()

    @property
    def records(self) -> list[Record]:
        return [record for records, _ in self.batches for record in records]


def memory_shard(machine: Any, clock: ManualClock, timer: Timer, *, topic: str = "__test", index: int = 0) -> Any:
    """Return an active shard and its log."""
    log = MemoryLog()
    shard: Shard[Machine] = Shard(topic, index, machine, log, clock=clock, timer=timer)
    shard.begin()
    return shard, log
