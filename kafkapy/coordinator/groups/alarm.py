"""Something to be done at a time, that can be put off or called off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkapy.coordinator.shard import Effects, Shard
    from kafkapy.runtime.timer import TimerEntry


class Alarm:
    """At most one step of a shard that is due at a time; used under the shard's lock."""

    __slots__ = ("_entry", "_turn")

    def __init__(self) -> None:
        self._entry: TimerEntry | None = None
        self._turn = 0

    @property
    def is_set(self) -> bool:
        return self._entry is not None

    def set(self, shard: Shard[Any], delay_s: float, step: Callable[[], Effects | None]) -> None:
        """Runs `step` in `delay_s` seconds, instead of what was to be run before."""
        self.cancel()
        turn = self._turn

        def ring(_: object) -> Effects | None:
            # The timer's thread may have waited for the lock while the alarm was called off or set anew.
            if self._turn != turn:
                return None
            self._entry = None
            return step()

        self._entry = shard.after(delay_s, ring)

    def cancel(self) -> None:
        self._turn += 1
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.cancel()
