"""The limit of what clients may have the coordinators of a broker remember: groups and transactional ids, whose names
they choose."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.coordinator")

_QUIET_S = 60.0  # between two log lines


class Room:
    """At most `limit` of something, such as groups. `count` returns how many this broker has; `setting` is the name of
    the limit's setting."""

    def __init__(self, what: str, setting: str, limit: int, count: Callable[[], int], clock: Clock) -> None:
        self._what = what
        self._setting = setting
        self._limit = limit
        self._count = count
        self._clock = clock
        self._quiet_until = 0.0

    def check(self, name: str) -> None:
        """Raise KafkaError POLICY_VIOLATION if there is no room for another one, which would be called `name`."""
        count = self._count()
        if count < self._limit:
            return
        now = self._clock.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_S
            log.warning(
                "the %s %r is refused: there are %d, and %s allows no more", self._what, name, count, self._setting
            )
        raise KafkaError(
            Errors.POLICY_VIOLATION, f"no room for the {self._what} {name!r}: {count} exist ({self._setting})"
        )
