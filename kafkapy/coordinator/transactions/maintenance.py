"""Periodic work on transactions: aborts transactions that have timed out, and expires idle transactional ids.

Both scans go over the transactional ids of a partition of `__transaction_state` a few at a time, so that requests do
not wait for a whole scan. Source: Kafka's TransactionCoordinator.abortTimedOutTransactions and
TransactionStateManager.removeExpiredTransactionalIds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.coordinator.shard import Effects

if TYPE_CHECKING:
    from kafkapy.coordinator.transactions.machine import TransactionMachine

IDS_A_STEP = 200
CHARACTERS_A_STEP = 100_000  # total characters of the ids of a step, so that their tombstones fit into one batch


class TransactionSettings(NamedTuple):
    """The broker's settings for transactions. All times are in milliseconds."""

    max_timeout_ms: int
    expiration_ms: int
    abort_interval_ms: int
    expire_interval_ms: int


class Maintenance:
    """Schedules the periodic scans of transactions on every loaded partition of `__transaction_state`. `settings`
    returns the broker's settings and is called at each scan."""

    def __init__(self, settings: Callable[[], TransactionSettings]) -> None:
        self._settings = settings

    def begin(self, machine: TransactionMachine) -> None:
        """Start the two periodic scans of one partition of `__transaction_state`. They stop when the partition's shard
        ends."""
        settings, clock = self._settings, machine.shard.clock

        def abort_late(ids: list[str]) -> None:
            # Each abort is a step of its own: with its markers it costs as much as a request, and a network thread
            # should not wait for all of them.
            for transactional_id in filter(machine.is_late, ids):
                machine.shard.after(0, lambda _, one=transactional_id: machine.time_out(one))  # type: ignore[misc]

        def expire_idle(ids: list[str]) -> Effects | None:
            return machine.expire(ids, settings().expiration_ms, clock.time_ms())

        _Scan(machine, lambda: settings().abort_interval_ms, lambda: list(machine.open), abort_late).schedule()
        _Scan(machine, lambda: settings().expire_interval_ms, lambda: list(machine.entries), expire_idle).schedule()


class _Scan:
    """A periodic scan over the transactional ids in one partition of `__transaction_state`. It calls `work` with slices
    of the ids that `which` returns, and lets requests run between two slices. A scan begins `interval_ms` after the
    previous scan has ended."""

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

    def schedule(self) -> None:
        self._shard.after(self._interval_ms() / 1000, self._first)

    def _first(self, _: TransactionMachine) -> Effects | None:
        self._slices = _slices(self._which())
        return self._next(_)

    def _next(self, _: TransactionMachine) -> Effects | None:
        ids = next(self._slices, None)
        if ids is None:
            self.schedule()
            return None
        self._shard.after(0, self._next)
        return self._work(ids)


def _slices(ids: Iterable[str]) -> Iterator[list[str]]:
    one_step: list[str] = []
    length = 0
    for transactional_id in ids:
        if len(one_step) == IDS_A_STEP or length + len(transactional_id) > CHARACTERS_A_STEP:
            yield one_step
            one_step, length = [], 0
        one_step.append(transactional_id)
        length += len(transactional_id)
    if one_step:
        yield one_step
