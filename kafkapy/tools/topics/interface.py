"""The interface of `kafkapy topics` to a cluster: `kafka` sends requests to brokers, `zookeeper` uses the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

# A topic or partition as `--json` prints it. A key that only one backend has is a column of its tables only.
Document = dict[str, Any]


class TopicBackend(Protocol):
    """Reads and changes topics. Methods raise KafkaError, ClientError, CallError and ToolError."""

    def summaries(self) -> list[Document]:
        """Return all topics: name, id, internal, partitionCount, replicationFactor."""

    def descriptions(self, names: Sequence[str]) -> list[Document]:
        """Return the named topics, or all, with `configs` and `partitions` added to the summary."""

    def create(
        self, name: str, partitions: int, replicas: int, settings: Mapping[str, str], *, validate_only: bool
    ) -> int:
        """Create a topic, or only check that it could be created, and return its number of partitions."""

    def alter_settings(self, name: str, changes: Mapping[str, str], removed: Sequence[str]) -> None:
        """Set the settings in `changes` and set those in `removed` back to their defaults: all or none."""

    def add_partitions(self, name: str, count: int) -> None:
        """Raise the number of partitions to `count`."""

    def delete(self, name: str) -> str:
        """Delete a topic, or mark it for deletion by the controller. Return the sentence that says which."""
