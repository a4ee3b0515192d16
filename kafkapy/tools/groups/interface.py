"""The interface of `kafkapy groups` to a cluster: `kafka` sends requests to the group coordinators, `zookeeper` reads
the nodes of the groups of Kafka's consumers of 0.7 to 0.10."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkapy.client.administration.admin import Admin

if TYPE_CHECKING:
    from kafkapy.client.original.assignment import Partition

# A group, member or offset as `--json` prints it. A key that only one backend has is a column of its tables only.
Document = dict[str, Any]


class DescribedGroup(NamedTuple):
    """A group's document, and its coordinator as ID (HOST:PORT); None for a group in ZooKeeper, which has none."""

    document: Document
    coordinator: str | None = None


class Refusal(NamedTuple):
    """Why a group was not deleted: a sentence without its full stop."""

    sentence: str
    is_missing: bool


class GroupBackend(Protocol):
    """Reads and changes groups. A partition is (topic, number as text), or ("flights", "8-0") for Kafka 0.7's
    partition 0 on broker 8. Methods raise KafkaError, ClientError, CallError and ToolError."""

    place: str
    """Where the groups are, for messages; empty for Kafka."""

    @property
    def admin(self) -> Admin:
        """Return a client of the brokers that hold the records. Raises ToolError if no broker can be reached."""

    @property
    def problems(self) -> list[str]:
        """Return sentences about nodes that could not be read so far, to be printed when the backend is closed."""

    def names(self) -> list[str]:
        """Return the names of all groups."""

    def listing(self, states: Sequence[str], types: Sequence[str]) -> list[Document]:
        """Return the groups in these states and of these types; empty: any. Groups in ZooKeeper have neither."""

    def describe(self, names: Sequence[str], *, offsets: bool) -> tuple[list[DescribedGroup], list[str]]:
        """Return the named groups, or all, and a sentence for each that could not be described. `offsets` adds the
        committed offsets and the lag."""

    def delete(self, names: Sequence[str]) -> Iterator[tuple[str, Refusal | None]]:
        """Delete groups; yield each name with None if the group was deleted, else with the reason."""

    def delete_offsets(self, name: str, wanted: Mapping[str, list[int] | None]) -> Iterator[str]:
        """Delete the offsets of the given partitions by topic (None: all of the topic); yield sentences on progress."""

    def check_there(self, names: Sequence[str]) -> None:
        """Raise ToolError for groups that do not exist."""

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
        """Return the committed offsets by group; none for a group that does not exist."""

    def refuse_active(self, names: Sequence[str]) -> None:
        """Raise ToolError for a group with members: their commits would overwrite the offsets of this command."""

    def commit(self, name: str, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets for a group. Raises ToolError if the group has members by now."""
