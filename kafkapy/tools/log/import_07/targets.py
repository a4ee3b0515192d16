"""The interface of the targets that logs of Kafka 0.7 are imported into. The modules `broker` and `directory` implement
it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class Demand(NamedTuple):
    """The requirements for a topic: its number of partitions, the bytes of the largest value, the oldest timestamp
    (ms)."""

    partitions: int
    largest: int
    oldest_ms: int


class Writer(Protocol):
    """Writes the records of one partition in order."""

    def append(self, value: bytes, timestamp: int) -> None: ...

    def flush(self) -> None:
        """Wait until all appended records are stored. Raises ToolError if a record was stored at another offset than
        expected."""


class Target(AbstractContextManager["Target"], Protocol):
    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset and the end offset of the partition; (0, 0) if the partition does not exist yet."""

    def prepare(self, demands: Mapping[str, Demand]) -> None:
        """Create the missing topics. Raises ToolError for an existing topic that does not meet its demand."""

    def writer(self, topic: str, partition: int, codec: int, next_offset: int) -> Writer: ...
