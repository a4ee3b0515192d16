"""The interface of the places that logs of Kafka 0.7 are imported into: see `broker` and `directory`."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class Demand(NamedTuple):
    """What a topic must be able to take: number of partitions, bytes of the largest value, oldest timestamp (ms)."""

    partitions: int
    largest: int
    oldest_ms: int


class Writer(Protocol):
    """Takes the records of one partition in order."""

    def append(self, value: bytes, timestamp: int) -> None: ...

    def flush(self) -> None:
        """Return when all records are stored. Raises ToolError if one has another offset than expected."""


class Target(AbstractContextManager["Target"], Protocol):
    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the partition's first and next offset; zeros if it does not exist yet."""

    def prepare(self, demands: Mapping[str, Demand]) -> None:
        """Create missing topics. Raises ToolError for a topic that cannot take the records."""

    def writer(self, topic: str, partition: int, codec: int, next_offset: int) -> Writer: ...
