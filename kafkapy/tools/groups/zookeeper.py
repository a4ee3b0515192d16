"""The backend of `kafkapy groups --zookeeper`: groups whose members, and mostly offsets, are in ZooKeeper. Importing
this module loads kazoo.

Source: Kafka's ConsumerGroupCommand --zookeeper of 0.9 to 1.x, which prints the same numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.client.administration.admin import Admin
from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ClientError
from kafkapy.client.original.kafka_07.wire import ends_07
from kafkapy.client.original.znodes.layouts import Layout
from kafkapy.errors import KafkaError
from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.printable import printable
from kafkapy.tools.common.errors import CallError, ToolError, fail_if_any
from kafkapy.tools.common.output import counted
from kafkapy.tools.common.partition_ranges import partitions_text
from kafkapy.tools.groups.interface import DescribedGroup, Document, Refusal
from kafkapy.tools.groups.kafka import KafkaGroups, end_offsets
from kafkapy.tools.main import sentence_of

if TYPE_CHECKING:
    from kafkapy.client.original.assignment import Partition
    from kafkapy.client.original.znodes.cluster_tree import ClusterTree
    from kafkapy.client.original.znodes.group_nodes import GroupNodes, OldGroup
    from kafkapy.client.original.znodes.subscriptions import Subscription

# For a broker's response: the addresses registered in ZooKeeper may be unreachable from this machine.
_BROKER_TIMEOUT_S = 10.0


@contextmanager
def open_groups(zookeeper: str, file: Path | None, *, with_kafka: bool) -> Iterator[ZooKeeperGroups]:
    """Context manager that yields the backend for the groups in the ZooKeeper at --zookeeper; `file` is
    --command-config. Raises the errors of `open_nodes`."""
    with open_nodes(zookeeper, file) as nodes, ZooKeeperGroups(nodes, zookeeper, with_kafka=with_kafka) as groups:
        yield groups


@contextmanager
def open_nodes(zookeeper: str | None, file: Path | None) -> Iterator[GroupNodes]:
    """Context manager that connects to ZooKeeper and yields the nodes of the groups. At the end, nodes that could not
    be read are named on standard error.

    Raises CallError, ToolError, ZooKeeperError and the errors of `zk.location.zookeeper_settings_of`.
    """
    from kafkapy.tools.zk.location import zookeeper_settings_of

    settings = zookeeper_settings_of(zookeeper, file)
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    from kafkapy.client.original.znodes.group_nodes import GroupNodes
    from kafkapy.metadata.zookeeper.client import close, connected, named

    client = connected(settings, settings.servers + settings.chroot, lambda state: None)
    try:
        nodes = GroupNodes(client, timeout_s=settings.connection_timeout_ms / 1000)
        if not nodes.is_a_cluster():
            raise ToolError(
                f"ZooKeeper at {settings.connect} has no /brokers/ids: is the chroot of the cluster missing, as in "
                "HOST:2181/kafka?"
            )
        try:
            yield nodes
        finally:
            for problem in dict.fromkeys(nodes.problems):
                print(f"kafkapy: {printable(problem)}.", file=sys.stderr)
    except (KazooException, KazooTimeoutError) as error:
        raise ToolError(f"ZooKeeper at {settings.connect} failed: {named(error)}") from error
    finally:
        close(client)


class _Committed(NamedTuple):
    """The offsets committed for a partition in ZooKeeper and in Kafka. An offset is None if it is not committed
    there."""

    zookeeper: int | None
    kafka: int | None

    @property
    def offset(self) -> int:
        """The larger of the offsets in ZooKeeper and in Kafka. A consumer that moves its offsets from one to the other
        (dual.commit.enabled) uses this one."""
        return max(offset for offset in self if offset is not None)


class ZooKeeperGroups:
    """A GroupBackend that reads and writes the groups' nodes in ZooKeeper.

    Some groups keep offsets in Kafka (offsets.storage=kafka). `describe` fetches these from the brokers registered in
    ZooKeeper. `committed` and `commit` handle these too if `with_kafka` is set.
    """

    place = "ZooKeeper"

    def __init__(self, nodes: GroupNodes, connect: str, *, with_kafka: bool) -> None:
        self._nodes = nodes
        self._connect = connect
        self._with_kafka = with_kafka

    def __enter__(self) -> ZooKeeperGroups:
        return self

    def __exit__(self, *_: object) -> None:
        if "admin" in self.__dict__:
            self.admin.cluster.close()

    @cached_property
    def admin(self) -> Admin:
        if self._is_07:
            raise ToolError(
                f"the brokers in ZooKeeper at {self._connect} are of Kafka 0.7, which lack the requests that a reset "
                "needs; import-offsets can set offsets from a file"
            )
        brokers = [host_port(*address) for address in self._cluster.brokers().values()]
        if not brokers:
            raise ToolError(f"no broker with a plain text listener is registered in ZooKeeper at {self._connect}")
        return Admin(Cluster(brokers, timeout_s=_BROKER_TIMEOUT_S, old_brokers=True))

    @property
    def problems(self) -> list[str]:
        return self._nodes.problems

    def names(self) -> list[str]:
        return self._nodes.names()

    def listing(self, states: Sequence[str], types: Sequence[str]) -> list[Document]:
        members = self._nodes.member_ids(self.names())
        return [{"group": name, "members": ids} for name, ids in members.items()]

    def describe(self, names: Sequence[str], *, offsets: bool) -> tuple[list[DescribedGroup], list[str]]:
        self.check_there(names)
        groups = [self._nodes.describe(name) for name in names or self.names()]
        documents = [_document(group) for group in groups]
        if offsets:
            try:
                ends = self._end_offsets(groups)
                committed = [self._committed(group) for group in groups]
            except (KafkaError, ClientError, ToolError) as error:
                print(
                    f"kafkapy: only what is in ZooKeeper is shown, no broker can be asked: {sentence_of(error)}",
                    file=sys.stderr,
                )
                ends = {}
                committed = [
                    {where: _Committed(offset, None) for where, offset in group.offsets.items()} for group in groups
                ]
            for group, document, its in zip(groups, documents, committed, strict=True):
                document["offsets"] = _offset_documents(group, its, ends)
        return [DescribedGroup(document) for document in documents], []

    def delete(self, names: Sequence[str]) -> Iterator[tuple[str, Refusal | None]]:
        for name in names:
            check_name(name)
            if not self._nodes.exists(name):
                yield name, Refusal(self._not_there(name), is_missing=True)
            elif self._nodes.delete(name):
                yield name, None
            else:
                yield name, Refusal(f"group {name!r} still has members in ZooKeeper: stop them first", is_missing=False)

    def delete_offsets(self, name: str, wanted: Mapping[str, list[int] | None]) -> Iterator[str]:
        self.check_there([name])
        self.refuse_active([name])
        group = self._nodes.describe(name)
        for topic, numbers in wanted.items():
            its = [where for where in group.partitions if where[0] == topic]
            chosen = its if numbers is None else [(topic, str(number)) for number in numbers]
            missing = [] if numbers is None else [(topic, n) for n in numbers if (topic, str(n)) not in group.offsets]
            if missing or not its:
                what = partitions_text(missing) if missing else f"topic {topic!r}"
                raise ToolError(f"group {name!r} has committed nothing for {what} in ZooKeeper")
            if numbers is not None:
                self._nodes.delete_offsets(name, chosen)
            elif not self._nodes.delete_topic(name, topic):
                raise ToolError(f"group {name!r} has members by now: stop them first")
            count = len([where for where in chosen if where in group.offsets])
            yield f"Deleted {counted(count, 'offset')} of group {name} in topic {topic} from ZooKeeper."

    def check_there(self, names: Sequence[str]) -> None:
        for name in names:
            check_name(name)
        fail_if_any([self._not_there(name) for name in names if not self._nodes.exists(name)])

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int]]:
        if not self._with_kafka:
            return {name: self._nodes.offsets(name) for name in names}
        groups = [self._nodes.describe(name) for name in names]
        return {group.name: {where: one.offset for where, one in self._committed(group).items()} for group in groups}

    def refuse_active(self, names: Sequence[str]) -> None:
        for name in names:
            check_name(name)
        for name, members in self._nodes.member_ids(names).items():
            if members:
                raise ToolError(
                    f"group {name!r} has {counted(len(members), 'member')} in ZooKeeper, such as {members[0]}: stop "
                    "them first; nothing was changed"
                )

    def commit(self, name: str, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets of a group to ZooKeeper. With `with_kafka`, commit wherever the group already has offsets, in
        ZooKeeper, in Kafka or in both; if it has none, to ZooKeeper. Raises ToolError if the group has members."""
        if self._nodes.member_ids([name])[name]:
            raise ToolError(f"group {name!r} has members by now; stop them first; its offsets are unchanged")
        if self._with_kafka:
            committed = self._committed(self._nodes.describe(name), offsets).values()
            if any(one.kafka is not None for one in committed):
                KafkaGroups(self.admin.cluster).commit(name, offsets)
            if committed and all(one.zookeeper is None for one in committed):
                return
        self._nodes.set_offsets(name, offsets)

    @cached_property
    def _cluster(self) -> ClusterTree:
        return self._nodes.cluster()

    @property
    def _is_07(self) -> bool:
        return self._cluster.layout is Layout.V07

    def _end_offsets(self, groups: Iterable[OldGroup]) -> dict[Partition, int]:
        """Return the end offsets of the groups' partitions that exist. Raises ToolError, KafkaError, ClientError."""
        topics = set(self._nodes.topics())  # only existing ones: an old broker creates an unknown topic in a request
        wanted = {where for group in groups for where in group.partitions if where[0] in topics}
        if self._is_07:
            return ends_07(self._cluster.brokers(), wanted, _BROKER_TIMEOUT_S)
        numbered = [(topic, int(name)) for topic, name in wanted if name.isdecimal()]
        found = end_offsets(self.admin, numbered) if numbered else {}
        return {(topic, str(number)): end for (topic, number), end in found.items()}

    def _committed(self, group: OldGroup, more: Iterable[Partition] = ()) -> dict[Partition, _Committed]:
        """Return the committed offsets of the group's partitions and of those in `more`. Partitions without a committed
        offset are left out. Raises KafkaError, ClientError."""
        in_zookeeper = group.offsets
        if self._is_07:
            return {where: _Committed(offset, None) for where, offset in in_zookeeper.items()}
        wanted = {*group.partitions, *more}
        numbered = [(topic, int(number)) for topic, number in wanted if number.isdecimal()]
        found = GroupAdmin(self.admin.cluster).offsets_of(group.name, numbered)
        in_kafka = {(topic, str(number)): offset for (topic, number), offset in found.items()}
        return {
            where: _Committed(in_zookeeper.get(where), in_kafka.get(where))
            for where in wanted
            if where in in_zookeeper or where in in_kafka
        }

    def _not_there(self, name: str) -> str:
        return f"there is no group {name!r} in ZooKeeper at {self._connect}"


def check_name(name: str) -> None:
    """Raise CallError for a name that no group in ZooKeeper can have."""
    if not name or "/" in name or name in (".", "..") or not name.isprintable():
        raise CallError(f"a group called {name!r} cannot be in ZooKeeper, where its name is a part of a path")


def _document(group: OldGroup) -> Document:
    members = []
    for member, wanted in group.members.items():
        its = [where for where in group.partitions if group.member_of(where) == member]
        members.append(
            {
                "member": member,
                "subscription": None if wanted is None else _subscription_document(wanted),
                "partitions": [{"topic": topic, "partition": _number(name)} for topic, name in its],
            }
        )
    return {"group": group.name, "members": members}


def _offset_documents(
    group: OldGroup, committed: Mapping[Partition, _Committed], ends: Mapping[Partition, int]
) -> list[Document]:
    found = []
    for where in group.partitions:
        one, end = committed.get(where), ends.get(where)
        found.append(
            {
                "topic": where[0],
                "partition": _number(where[1]),
                "committed": one and one.offset,
                "inZooKeeper": one and one.zookeeper,
                "inKafka": one and one.kafka,
                "end": end,
                "lag": None if one is None or end is None else end - one.offset,
                "owner": group.owners.get(where),
            }
        )
    return found


def _subscription_document(wanted: Subscription) -> Document:
    if wanted.filter is None:
        return {"pattern": "static", "topics": dict(wanted.counts)}
    return {"pattern": wanted.filter.pattern, "regex": wanted.filter.regex, "streams": wanted.streams}


def _number(name: str) -> int | str:
    """Return the number of a partition; for a partition of Kafka 0.7 return BROKER-NUMBER as text."""
    return int(name) if name.isdecimal() else name
