"""The interface through which `kafkapy topics` reads and changes topics. There are two implementations: `kafka` sends
requests to brokers, `zookeeper` reads and writes the cluster's nodes in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

# A topic or partition as `--json` prints it. A key that only one backend has is a column of its tables only.
Document = dict[str, Any]


class TopicBackend(Protocol):
    """Reads and changes topics. Methods raise KafkaError, ClientError, CallError and ToolError."""

    def summaries(self) -> list[Document]:
        """Return a document for each topic: name, id, internal, partitionCount, replicationFactor."""

    def descriptions(self, names: Sequence[str], *, with_offsets: bool) -> list[Document]:
        """Return a document for each named topic, or for all topics if `names` is empty: the summary with `configs` and
        `partitions`. With `with_offsets`, the partitions have their first and end offsets, if brokers are asked."""

    def live_brokers(self) -> frozenset[int]:
        """Return the ids of the brokers that run."""

    def min_isr(self, name: str) -> int:
        """Return the value of min.insync.replicas that is in effect for a topic."""

    def create(
        self,
        name: str,
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        assignment: Mapping[int, Sequence[int]] | None = None,
        *,
        validate_only: bool,
    ) -> int:
        """Create a topic and return its number of partitions. `assignment` has the broker ids of each partition; with
        it `partitions` and `replicas` are -1. With `validate_only`, only check that the topic could be created."""

    def alter_settings(self, name: str, changes: Mapping[str, str], removed: Sequence[str]) -> None:
        """Change settings of a topic, all or none: set those in `changes`, and set those in `removed` back to their
        defaults."""

    def add_partitions(self, name: str, count: int) -> None:
        """Add partitions to a topic, so that it has `count` partitions."""

    def delete(self, name: str) -> str:
        """Delete a topic, or mark it so that the controller deletes it. Return a sentence that says which of the two
        was done."""
