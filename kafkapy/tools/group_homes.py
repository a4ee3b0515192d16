"""Where groups keep what they have committed, Kafka or ZooKeeper, for what reads and changes it there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from kafkapy.client.admin import Admin
from kafkapy.client.cluster import Cluster
from kafkapy.client.group_admin import GroupAdmin
from kafkapy.client.group_types import OffsetAndMetadata
from kafkapy.errors import Errors, KafkaError
from kafkapy.tools.errors import ToolError
from kafkapy.tools.group_answers import complain, existing, found_and_refused
from kafkapy.tools.options import cluster_of, through_zookeeper
from kafkapy.tools.output import counted

if TYPE_CHECKING:
    from kafkapy.client.original.assignment import Partition
    from kafkapy.tools.group_homes_zookeeper import InBoth, InZooKeeper

ThroughZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        "-z",
        metavar="HOST:PORT/CHROOT",
        help="Groups that are in ZooKeeper, as those of Kafka's consumers of 0.7 to 0.10.",
    ),
]


class GroupHome(Protocol):
    """Offsets by the partitions' names as the home has them, (topic, "0"); those of Kafka 0.7 are ("topic", "8-0").

    Each raises KafkaError, ClientError, or what `nodes_of` makes sentences of, where nobody answers.
    """

    def names(self) -> list[str]:
        """Of all groups."""

    def check_there(self, names: Sequence[str]) -> None:
        """Raises ToolError for groups that are not."""

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
        """By group; nothing for one that is not there."""

    def refuse_active(self, names: Sequence[str]) -> None:
        """Raises ToolError for a group with members: they commit as they please, so what we commit would not last."""

    def commit(self, name: str, offsets: Mapping[Partition, int]) -> None:
        """Raises ToolError for a group that has got members, and KafkaError."""

    @property
    def problems(self) -> list[str]:
        """What could not be read until now, for the user; named on standard error at the end."""


class InKafka:
    def __init__(self, cluster: Cluster) -> None:
        self.admin = Admin(cluster)
        self._groups = GroupAdmin(cluster)

    @property
    def problems(self) -> list[str]:
        return []

    def names(self) -> list[str]:
        return [one.id for one in self._groups.list_groups()]

    def check_there(self, names: Sequence[str]) -> None:
        complain(existing(self._groups, names)[1])

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
        found, refused = found_and_refused(self._groups.offsets(names))
        complain(refused)
        return {
            name: {(topic, str(index)): one.offset for (topic, index), one in offsets.items()}
            for name, offsets in found.items()
        }

    def refuse_active(self, names: Sequence[str]) -> None:
        described, refused = found_and_refused(self._groups.describe(names))
        complain(refused)
        for group in described.values():
            if group.is_active:
                raise ToolError(
                    f"group {group.id!r} is {group.state} with {counted(len(group.members), 'member')}: offsets can be "
                    "reset only while a group has none, so stop them first; nothing was changed"
                )

    def commit(self, name: str, offsets: Mapping[Partition, int]) -> None:
        if old := [f"{topic}/{number}" for topic, number in offsets if not number.isdecimal()]:
            raise ToolError(f"{old[0]} is a partition of Kafka 0.7, which a group that Kafka keeps cannot have")
        try:
            self._groups.commit(
                name, {(topic, int(number)): OffsetAndMetadata(at) for (topic, number), at in offsets.items()}
            )
        except KafkaError as error:
            if error.code != Errors.UNKNOWN_MEMBER_ID:
                raise
            raise ToolError(
                f"group {name!r} has got members meanwhile; stop them first; its offsets are as before"
            ) from error


@contextmanager
def home_of(
    context: typer.Context, servers: str, zookeeper: str | None, file: Path | None
) -> Iterator[InKafka | InZooKeeper]:
    """Where the options say that the groups are. Raises CallError, ToolError, KeeperError."""
    if not through_zookeeper(context, zookeeper, file):
        with cluster_of(servers) as cluster:
            yield InKafka(cluster)
        return
    from kafkapy.tools.group_homes_zookeeper import InZooKeeper, nodes_of

    with nodes_of(zookeeper, file) as nodes:
        yield InZooKeeper(nodes, str(zookeeper))


@contextmanager
def both_homes_of(
    context: typer.Context, servers: str, zookeeper: str | None, file: Path | None
) -> Iterator[InKafka | InBoth]:
    """The same, where groups in ZooKeeper may have offsets in Kafka too, and there are brokers to ask."""
    if not through_zookeeper(context, zookeeper, file):
        with cluster_of(servers) as cluster:
            yield InKafka(cluster)
        return
    from kafkapy.tools.group_homes_zookeeper import InBoth, nodes_of

    with nodes_of(zookeeper, file) as nodes, InBoth(nodes, str(zookeeper)) as both:
        yield both
