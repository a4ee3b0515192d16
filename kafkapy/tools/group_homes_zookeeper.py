"""Groups in ZooKeeper for commands: their nodes, and what they keep in Kafka beside it. Using one loads kazoo."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.client.admin import Admin
from kafkapy.client.cluster import Cluster
from kafkapy.client.group_admin import GroupAdmin
from kafkapy.client.original.ends_07 import ends_07
from kafkapy.client.original.layouts import Layout
from kafkapy.runtime.addresses import host_port
from kafkapy.tools.errors import CallError, ToolError
from kafkapy.tools.group_answers import complain
from kafkapy.tools.group_homes import InKafka
from kafkapy.tools.group_views import end_offsets
from kafkapy.tools.output import counted

if TYPE_CHECKING:
    from kafkapy.client.original.assignment import Partition
    from kafkapy.client.original.cluster_tree import ClusterTree
    from kafkapy.client.original.group_nodes import GroupNodes, OldGroup

# For an answer of a broker: those that ZooKeeper knows of may not be reached from here.
_PATIENCE_S = 10.0


@contextmanager
def nodes_of(zookeeper: str | None, file: Path | None) -> Iterator[GroupNodes]:
    """The groups in the ZooKeeper of --zookeeper. Raises CallError, ToolError, KeeperError. At the end nodes that could
    not be read are named on standard error."""
    from kafkapy.tools.zk_places import keeper_of

    settings = keeper_of(zookeeper, file)
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    from kafkapy.client.original.group_nodes import GroupNodes
    from kafkapy.metadata.keeper_client import close, connected, named

    client = connected(settings, settings.servers + settings.chroot, lambda state: None)
    try:
        nodes = GroupNodes(client, patience_s=settings.connection_timeout_ms / 1000)
        if not nodes.is_a_cluster():
            raise ToolError(
                f"ZooKeeper at {settings.connect} has no /brokers/ids: is the chroot of the cluster missing, as in "
                "HOST:2181/kafka?"
            )
        try:
            yield nodes
        finally:
            for problem in dict.fromkeys(nodes.problems):
                print(f"kafkapy: {problem}.", file=sys.stderr)
    except (KazooException, KazooTimeoutError) as error:
        raise ToolError(f"ZooKeeper at {settings.connect} does not do it: {named(error)}") from error
    finally:
        close(client)


def check_name(name: str) -> None:
    """Raises CallError for a group that cannot be in ZooKeeper."""
    if not name or "/" in name or name in (".", "..") or not name.isprintable():
        raise CallError(f"a group called {name!r} cannot be in ZooKeeper, where its name is a part of a path")


class InZooKeeper:
    """Asks no broker. What cannot be read is named on standard error, by `nodes_of`."""

    def __init__(self, nodes: GroupNodes, connect: str) -> None:
        self.nodes = nodes
        self._connect = connect

    @property
    def problems(self) -> list[str]:
        return self.nodes.problems

    def names(self) -> list[str]:
        return self.nodes.names()

    def check_there(self, names: Sequence[str]) -> None:
        for name in names:
            check_name(name)
        if missing := [name for name in names if not self.nodes.exists(name)]:
            complain([f"there is no group {name!r} in ZooKeeper at {self._connect}" for name in missing])

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
        return {name: self.nodes.offsets(name) for name in names}

    def refuse_active(self, names: Sequence[str]) -> None:
        for name in names:
            check_name(name)
        for name, members in self.nodes.member_ids(names).items():
            if members:
                raise ToolError(
                    f"group {name!r} has {counted(len(members), 'member')} in ZooKeeper, such as {members[0]}: stop "
                    "them first; nothing was changed"
                )

    def commit(self, name: str, offsets: Mapping[Partition, int]) -> None:
        if self.nodes.member_ids([name])[name]:
            raise ToolError(f"group {name!r} has got members meanwhile; stop them first; its offsets are as before")
        self.nodes.set_offsets(name, offsets)


class Kept(NamedTuple):
    """A committed offset in ZooKeeper and in Kafka; None where there is none. The later counts, as for a consumer that
    moves from one to the other (dual.commit.enabled)."""

    zookeeper: int | None
    kafka: int | None

    @property
    def offset(self) -> int:
        return max(one for one in self if one is not None)

    def __str__(self) -> str:
        if self.zookeeper == self.kafka:
            return "both"
        if self.zookeeper is None or self.kafka is None:
            return "ZooKeeper" if self.kafka is None else "Kafka"
        first, other = ("ZooKeeper", "Kafka") if self.zookeeper > self.kafka else ("Kafka", "ZooKeeper")
        return f"{first} ({other}: {min(self.zookeeper, self.kafka)})"


class InBoth(InZooKeeper):
    """Also what such groups keep in Kafka (offsets.storage=kafka). The brokers are those that ZooKeeper knows."""

    def __enter__(self) -> InBoth:
        return self

    def __exit__(self, *_: object) -> None:
        if "admin" in self.__dict__:
            self.admin.cluster.close()

    @cached_property
    def admin(self) -> Admin:
        """Raises ToolError where there is no broker that can be asked."""
        if self._is_07:
            raise ToolError(
                f"the brokers in ZooKeeper at {self._connect} are of Kafka 0.7, which do not say what a reset wants to "
                "know; import-offsets sets offsets as a file has them"
            )
        brokers = [host_port(*address) for address in self._cluster.brokers().values()]
        if not brokers:
            raise ToolError(f"no broker with a plain text listener is registered in ZooKeeper at {self._connect}")
        return Admin(Cluster(brokers, timeout_s=_PATIENCE_S, old_brokers=True))

    @cached_property
    def _cluster(self) -> ClusterTree:
        return self.nodes.cluster()

    @property
    def _is_07(self) -> bool:
        return self._cluster.layout is Layout.V07

    def ends(self, groups: Iterable[OldGroup]) -> dict[Partition, int]:
        """Where partitions of the groups end that are there. Raises ToolError, KafkaError, ClientError."""
        topics = set(self.nodes.topics())  # old brokers make others when they are asked for them
        wanted = {where for group in groups for where in group.partitions if where[0] in topics}
        if self._is_07:
            return ends_07(self._cluster.brokers(), wanted, _PATIENCE_S)
        numbered = [(topic, int(name)) for topic, name in wanted if name.isdecimal()]
        found = end_offsets(self.admin, numbered) if numbered else {}
        return {(topic, str(number)): end for (topic, number), end in found.items()}

    def kept(self, group: OldGroup, more: Iterable[Partition] = ()) -> dict[Partition, Kept]:
        """What is committed for the group's partitions, and for those in `more`. Raises KafkaError and ClientError."""
        wanted = {*group.partitions, *more}
        in_zookeeper = group.offsets
        if self._is_07:
            return {where: Kept(offset, None) for where, offset in in_zookeeper.items()}
        numbered = [(topic, int(number)) for topic, number in wanted if number.isdecimal()]
        found = GroupAdmin(self.admin.cluster).offsets_of(group.name, numbered)
        in_kafka = {(topic, str(number)): offset for (topic, number), offset in found.items()}
        return {
            where: Kept(in_zookeeper.get(where), in_kafka.get(where))
            for where in wanted
            if where in in_zookeeper or where in in_kafka
        }

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
        groups = [self.nodes.describe(name) for name in names]
        return {group.name: {where: one.offset for where, one in self.kept(group).items()} for group in groups}

    def commit(self, name: str, offsets: Mapping[Partition, int]) -> None:
        """To ZooKeeper, and to Kafka, wherever the group has offsets; those of a new group to ZooKeeper."""
        self.refuse_active([name])
        kept = self.kept(self.nodes.describe(name), offsets).values()
        if any(one.kafka is not None for one in kept):
            InKafka(self.admin.cluster).commit(name, offsets)
        if not kept or any(one.zookeeper is not None for one in kept):
            self.nodes.set_offsets(name, offsets)
