"""The interface through which `kafkapy groups` reads and changes groups. There are two implementations: `kafka` sends
requests to the group coordinators, `zookeeper` reads the nodes of the groups of Kafka's consumers of 0.7 to 0.10."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkapy.client.administration.admin import Admin

if TYPE_CHECKING:
    from kafkapy.client.original.assignment import Partition

# A group, member or offset as `--json` prints it. A key that only one backend has is a column of its tables only.
Document = dict[str, Any]


class DescribedGroup(NamedTuple):
    """A described group: its document for `--json`, and its coordinator as ID (HOST:PORT). The coordinator is None for
    a group in ZooKeeper."""

    document: Document
    coordinator: str | None = None


class Refusal(NamedTuple):
    """The reason why a group was not deleted: a sentence without its full stop. `is_missing` is True if the group does
    not exist."""

    sentence: str
    is_missing: bool


class GroupBackend(Protocol):
    """Reads and changes groups. A partition is (topic, number as text), or for Kafka 0.7's partition 0 on broker 8
    ("flights", "8-0"). Methods raise KafkaError, ClientError, CallError and ToolError."""

    place: str
    """Where the groups are, for messages; empty for Kafka."""

    @property
    def admin(self) -> Admin:
        """An admin client of the brokers that hold the records. Raises ToolError if no broker can be reached."""

    @property
    def problems(self) -> list[str]:
        """Sentences about nodes that could not be read so far. They are printed when the backend is closed."""

    def names(self) -> list[str]:
        """Return the names of all groups."""

    def listing(self, states: Sequence[str], types: Sequence[str]) -> list[Document]:
        """Return a document for each group that is in one of these states and of one of these types. An empty sequence
        means any. Groups in ZooKeeper have neither state nor type."""

    def describe(self, names: Sequence[str], *, offsets: bool) -> tuple[list[DescribedGroup], list[str]]:
        """Return the named groups, or all groups if `names` is empty, and a sentence for each group that could not be
        described. `offsets` adds the committed offsets and the lag."""

    def delete(self, names: Sequence[str]) -> Iterator[tuple[str, Refusal | None]]:
        """Delete groups. Yield each name with None if the group was deleted, else with the Refusal."""

    def delete_offsets(self, name: str, wanted: Mapping[str, list[int] | None]) -> Iterator[str]:
        """Delete committed offsets of a group, and yield sentences on progress. `wanted` has the partition numbers by
        topic; None means all partitions of the topic."""

    def check_there(self, names: Sequence[str]) -> None:
        """Raise ToolError if one of the named groups does not exist."""

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
        """Return the committed offsets by group and partition. A group that does not exist has none."""

    def refuse_active(self, names: Sequence[str]) -> None:
        """Raise ToolError if one of the named groups has members: their commits would overwrite the offsets that this
        command commits."""

    def commit(self, name: str, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets for a group. Raises ToolError if the group has got members in the meantime."""
