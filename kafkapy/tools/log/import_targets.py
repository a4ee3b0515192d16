"""Where an import of Kafka 0.7 logs can put records: see import_broker and import_directory."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class Demand(NamedTuple):
    """What a topic has to be able to take: partitions, the bytes of the largest value, the oldest time (ms)."""

    partitions: int
    largest: int
    oldest_ms: int


class Writer(Protocol):
    """Takes records for one partition in order."""

    def append(self, value: bytes, timestamp: int) -> None: ...

    def flush(self) -> None:
        """Returns when all are stored. Raises ToolError if one is not at the offset that it was expected at."""


class Target(AbstractContextManager["Target"], Protocol):
    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """First and next offset of the partition; zeros for one that is not there yet."""

    def prepare(self, demands: Mapping[str, Demand]) -> None:
        """Makes the topics that are not there. Raises ToolError for one that cannot take the records."""

    def writer(self, topic: str, partition: int, codec: int, next_offset: int) -> Writer: ...
