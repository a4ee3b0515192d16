"""Limits the number of groups and of transactional ids that a broker's coordinators remember: clients choose their
names, and could create any number."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.coordinator")

_QUIET_S = 60.0  # between two log lines


class Room:
    """The limit of the number of groups, or of transactional ids. `what` names such an object in messages, `count`
    returns how many this broker has, and `setting` is the name of the limit's setting."""

    def __init__(self, what: str, setting: str, limit: int, count: Callable[[], int], clock: Clock) -> None:
        self._what = what
        self._setting = setting
        self._limit = limit
        self._count = count
        self._clock = clock
        self._quiet_until = 0.0

    def check(self, name: str) -> None:
        """Raise KafkaError POLICY_VIOLATION if the limit is reached, so that `name` must not be created."""
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
