"""What nobody asks for: transactions that are open too long are aborted, ids that are long unused are forgotten.

Both look through a shard at intervals, a few ids a step, so that no request waits for it. Source: Kafka's
TransactionCoordinator.abortTimedOutTransactions and TransactionStateManager.removeExpiredTransactionalIds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.coordinator.shard import Effects

if TYPE_CHECKING:
    from kafkapy.coordinator.transactions.machine import TransactionMachine

IDS_A_STEP = 200
LENGTHS_A_STEP = 100_000  # of ids, so that the tombstones of a step always make one batch


class TransactionSettings(NamedTuple):
    """Milliseconds, from the broker's settings of similar names."""

    max_timeout_ms: int
    expiration_ms: int
    abort_interval_ms: int
    expire_interval_ms: int


class Upkeep:
    """Of all shards. `settings` is asked at each look."""

    def __init__(self, settings: Callable[[], TransactionSettings]) -> None:
        self._settings = settings

    def begin(self, machine: TransactionMachine) -> None:
        """Looks after a shard until it ends."""
        settings, clock = self._settings, machine.shard.clock

        def abort_late(ids: list[str]) -> None:
            # Each in a step of its own: with its markers that is as much as a request, and a network thread that comes
            # meanwhile must not wait for all of them.
            for transactional_id in filter(machine.is_late, ids):
                machine.shard.after(0, lambda _, one=transactional_id: machine.time_out(one))  # type: ignore[misc]

        def forget_idle(ids: list[str]) -> Effects | None:
            return machine.forget(ids, settings().expiration_ms, clock.time_ms())

        _Look(machine, lambda: settings().abort_interval_ms, lambda: list(machine.open), abort_late).later()
        _Look(machine, lambda: settings().expire_interval_ms, lambda: list(machine.entries), forget_idle).later()


class _Look:
    """Goes through the ids that `which` names, a slice a step, again and again."""

    def __init__(
        self,
        machine: TransactionMachine,
        interval_ms: Callable[[], int],
        which: Callable[[], list[str]],
        work: Callable[[list[str]], Effects | None],
    ) -> None:
        self._shard = machine.shard
        self._interval_ms = interval_ms
        self._which = which
        self._work = work
        self._slices: Iterator[list[str]] = iter(())

    def later(self) -> None:
        self._shard.after(self._interval_ms() / 1000, self._first)

    def _first(self, _: TransactionMachine) -> Effects | None:
        self._slices = _slices(self._which())
        return self._next(_)

    def _next(self, _: TransactionMachine) -> Effects | None:
        ids = next(self._slices, None)
        if ids is None:
            self.later()
            return None
        self._shard.after(0, self._next)
        return self._work(ids)


def _slices(ids: Iterable[str]) -> Iterator[list[str]]:
    one_step: list[str] = []
    length = 0
    for transactional_id in ids:
        if len(one_step) == IDS_A_STEP or length + len(transactional_id) > LENGTHS_A_STEP:
            yield one_step
            one_step, length = [], 0
        one_step.append(transactional_id)
        length += len(transactional_id)
    if one_step:
        yield one_step
