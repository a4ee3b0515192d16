"""Properties under the names that they have had: since Kafka 0.8, and in 0.7."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkapy.runtime.config_def import ConfigError


class NamedProperties:
    """Args: names: those of each property, the one since 0.8 first. `unknown` are the given ones that are none."""

    def __init__(self, properties: Mapping[str, Any], names: Iterable[tuple[str, ...]]) -> None:
        self._names = {group[0]: group for group in names}
        self._given = {name: value for name, value in properties.items() if value is not None}
        self.unknown = sorted(self._given.keys() - {name for group in self._names.values() for name in group})

    def find(self, name: str) -> tuple[str, Any]:
        """Under which name it was given, and the value; None where it was not. Raises ConfigError for two of them."""
        first, *more = [known for known in self._names[name] if known in self._given] or [name]
        for other in more:
            told = f"{first}={self._given[first]} and {other}={self._given[other]} are the same property"
            raise ConfigError(other, self._given[other], f"is the old name of {first}, which is there too: {told}")
        return first, self._given.get(first)
