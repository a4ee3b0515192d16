"""Lookup of properties that have several names: one since Kafka 0.8, and others in 0.7."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkapy.runtime.config_def import ConfigError


class NamedProperties:
    """Given properties, to be looked up by any of their names.

    Args:
        names: The names of each property, the name since 0.8 first.
    Attributes:
        unknown: The given properties that have none of the names.
    """

    def __init__(self, properties: Mapping[str, Any], names: Iterable[tuple[str, ...]]) -> None:
        self._names = {group[0]: group for group in names}
        self._given = {name: value for name, value in properties.items() if value is not None}
        self.unknown = sorted(self._given.keys() - {name for group in self._names.values() for name in group})

    def find(self, name: str) -> tuple[str, Any]:
        """Return the name that the property was given under and its value, which is None if it was not given.

        Raises ConfigError if it was given under two names.
        """
        first, *more = [known for known in self._names[name] if known in self._given] or [name]
        for other in more:
            both = f"{first}={self._given[first]} and {other}={self._given[other]} are the same property"
            raise ConfigError(other, self._given[other], f"is the old name of {first}, which is given too: {both}")
        return first, self._given.get(first)
