"""A timer for consumer groups that can be set again or cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkapy.coordinator.shard import Effects, Shard
    from kafkapy.runtime.timer import TimerEntry


class Alarm:
    """A timer that runs one function (a step) on a coordinator's shard after a delay. A shard is a partition of
    `__consumer_offsets` with its state machine.

    Setting the timer again replaces the function that was set before. Callers hold the shard's lock.
    """

    __slots__ = ("_entry", "_version")

    def __init__(self) -> None:
        self._entry: TimerEntry | None = None
        self._version = 0

    @property
    def is_set(self) -> bool:
        return self._entry is not None

    def set(self, shard: Shard[Any], delay_s: float, step: Callable[[], Effects | None]) -> None:
        """Run `step` on the shard (the partition of `__consumer_offsets` that stores the group) after `delay_s`
        seconds, instead of any step that was set before."""
        self.cancel()
        version = self._version

        def run(_: object) -> Effects | None:
            # The timer's thread may already have been waiting for the shard's lock when the alarm was cancelled or set
            # again: cancelling the entry came too late, so the old step is dropped here.
            if self._version != version:
                return None
            self._entry = None
            return step()

        self._entry = shard.after(delay_s, run)

    def cancel(self) -> None:
        self._version += 1
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.cancel()
