"""Consumer groups in ZooKeeper, for the command-line tools.

Reads members, owners and offsets; sets offsets and deletes groups. Malformed znodes are ignored and named in
`problems`. All methods wait for ZooKeeper and raise KazooException or KazooTimeoutError if it does not respond. Imports
kazoo: import this module only if ZooKeeper is used.

Source: ZkConsumerGroupService, AdminUtils and ZkUtils of Kafka 0.10.2; ConsumerOffsetChecker of 0.8.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError, NotEmptyError, RolledBackError
from kazoo.exceptions import RuntimeInconsistency as NotTried

from kafkapy.client.original.assignment import Partition
from kafkapy.client.original.znodes.cluster_tree import ClusterTree
from kafkapy.client.original.znodes.group_tree import GroupTree
from kafkapy.client.original.znodes.layouts import Layout, layout_of_topic, partitions_07, partitions_in
from kafkapy.client.original.znodes.subscriptions import Subscription, read_subscription
from kafkapy.errors import KafkaError
from kafkapy.metadata.paths import BROKER_IDS, CONSUMERS, TOPICS
from kafkapy.metadata.zookeeper.pipelining import pipelined

# ZooKeeper limits a transaction to 1 MiB; a path has some hundred bytes.
_MAX_OPERATIONS = 500
_WINDOW = 64  # number of reads in flight
_LARGEST = 2**63 - 1


class OldGroup(NamedTuple):
    """A consumer group in ZooKeeper.

    members: The subscription of each member by consumer id; None if its registration is malformed.
    owners: The consumer thread that owns each partition.
    offsets: The committed offset of each partition.
    partitions: All partitions of the topics that the group has owned, and those with an owner or an offset, in order.
    """

    name: str
    members: dict[str, Subscription | None]
    owners: dict[Partition, str]
    offsets: dict[Partition, int]
    partitions: list[Partition]

    def member_of(self, partition: Partition) -> str | None:
        """Return the id of the consumer whose thread owns the partition, or None if no consumer owns it."""
        owner = self.owners.get(partition)
        return None if owner is None else owner.rpartition("-")[0]


class GroupNodes:
    """Reads and changes the znodes of all consumer groups."""

    def __init__(self, client: Any, *, timeout_s: float) -> None:
        """Use a connected kazoo client.

        Methods raise KazooTimeoutError if ZooKeeper takes over `timeout_s` to respond.
        """
        self.problems: list[str] = []
        self._client = client
        self._timeout_s = timeout_s

    def is_a_cluster(self) -> bool:
        """Return True if this ZooKeeper (below the client's chroot) is or was used by a Kafka cluster."""
        return self._wait(self._client.exists_async(BROKER_IDS)) is not None

    def cluster(self) -> ClusterTree:
        """Return a reader of the znodes of brokers and topics, for the layout (0.7 or later) that the cluster uses."""
        return GroupTree(self._client, "", timeout_s=self._timeout_s).cluster

    def topics(self) -> list[str]:
        """Return the names of the cluster's topics, sorted."""
        return self._children(TOPICS)

    def names(self) -> list[str]:
        """Return the names of all consumer groups in ZooKeeper, sorted."""
        return self._children(CONSUMERS)

    def exists(self, group: str) -> bool:
        """Return True if the group has a znode."""
        return self._wait(self._client.exists_async(_home(group))) is not None

    def member_ids(self, groups: Iterable[str]) -> dict[str, list[str]]:
        """Return the consumer ids of each group's members. Members with a malformed registration are included."""
        paths = {group: f"{_home(group)}/ids" for group in groups}
        found = self._ask(paths.values(), self._client.get_children_async)
        return {group: sorted(found.get(path, ())) for group, path in paths.items()}

    def describe(self, group: str) -> OldGroup:
        """Return the group's members, partition owners and committed offsets."""
        home = _home(group)
        registered = self._data(f"{home}/ids/{member}" for member in self._children(f"{home}/ids"))
        members = {path.rpartition("/")[2]: self._subscription(path, data) for path, data in registered.items()}
        topics = self._children(f"{home}/owners")
        owners = {where: data.decode("utf-8", "replace") for where, data in self._below(f"{home}/owners", topics)}
        offsets = self.offsets(group)
        found = {(topic, name) for topic, names in self.partitions(topics).items() for name in names}
        return OldGroup(group, members, owners, offsets, sorted({*found, *owners, *offsets}, key=partition_order))

    def offsets(self, group: str) -> dict[Partition, int]:
        """Return the offsets that the group has committed to ZooKeeper, by partition."""
        home = f"{_home(group)}/offsets"
        found = {}
        for (topic, name), data in self._below(home, self._children(home)):
            if data.isdigit() and int(data) <= _LARGEST:
                found[topic, name] = int(data)
            else:
                self.problems.append(f"{home}/{topic}/{name} in ZooKeeper has {data[:100]!r}, which is not an offset")
        return found

    def partitions(self, topics: Iterable[str]) -> dict[str, list[str]]:
        """Return the partition names of each existing topic, in order. Malformed topics are left out.

        Both znode layouts are supported, that of Kafka 0.7 and that of 0.8 and later.
        """
        found: dict[str, list[str]] = {}
        for path, data in self._data(f"{TOPICS}/{topic}" for topic in topics).items():
            try:
                if layout_of_topic(data) is Layout.V07:
                    counts = self._data(f"{path}/{broker}" for broker in self._children(path))
                    names = partitions_07(path, {one.rpartition("/")[2]: count for one, count in counts.items()})
                else:
                    names = partitions_in(path, data)
            except KafkaError as error:
                self.problems.append(error.message)
                continue
            found[path.rpartition("/")[2]] = names
        return found

    def set_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Write the group's committed offsets, in ZooKeeper transactions of up to 500 offsets."""
        home = f"{_home(group)}/offsets"
        for topic in {topic: None for topic, _ in offsets}:
            self._ensure(f"{home}/{topic}")
        texts = {f"{home}/{topic}/{name}": b"%d" % offset for (topic, name), offset in offsets.items()}
        there = self._data(texts)
        for paths in _batches(list(texts)):
            change = self._client.transaction()
            for path in paths:
                if path in there:
                    change.set_data(path, texts[path])
                else:
                    change.create(path, texts[path])
            self._commit(change)

    def delete(self, group: str) -> bool:
        """Delete the group's znodes. Return False, with nothing changed, if the group has registered members."""
        home = _home(group)
        members = f"{home}/ids"
        # Delete the parent node of the members first: that fails if a member is registered, even if the member has
        # only just joined.
        return self._delete(sorted(self._all(home), key=lambda path: path != members))

    def delete_topic(self, group: str, topic: str) -> bool:
        """Delete the znodes of a group's owners and offsets for one topic.

        Return False if another client has added a znode below these znodes meanwhile.
        """
        home = _home(group)
        return self._delete([*self._all(f"{home}/owners/{topic}"), *self._all(f"{home}/offsets/{topic}")])

    def delete_offsets(self, group: str, partitions: Iterable[Partition]) -> None:
        """Delete the group's committed offsets of the given partitions."""
        self._delete([f"{_home(group)}/offsets/{topic}/{name}" for topic, name in partitions])

    def _delete(self, paths: list[str]) -> bool:
        """Delete the znodes at these paths, in transactions. Return False if one of the znodes has children."""
        for batch in _batches(paths):
            change = self._client.transaction()
            for path in batch:
                change.delete(path)
            try:
                self._commit(change)
            except NotEmptyError:
                return False
        return True

    def _commit(self, change: Any) -> None:
        """Commit a ZooKeeper transaction. If an operation fails, raise its error; no operation is applied then."""
        results = self._wait(change.commit_async())
        for result in results:
            if isinstance(result, KazooException) and not isinstance(result, RolledBackError | NotTried):
                raise result

    def _ensure(self, path: str) -> None:
        """Create the znode and its parents, unless they exist."""
        try:
            self._wait(self._client.create_async(path, None))  # null data, like Kafka's
        except NoNodeError:
            self._ensure(path.rpartition("/")[0])
            self._ensure(path)
        except NodeExistsError:
            pass

    def _all(self, path: str) -> list[str]:
        """Return the paths of a znode and of all znodes below it, children before parents.

        Return an empty list if the znode does not exist.
        """
        if self._wait(self._client.exists_async(path)) is None:
            return []
        found, level = [path], [path]
        while level:
            below = self._ask(level, self._client.get_children_async)
            level = [f"{parent}/{name}" for parent, names in below.items() for name in names]
            found += level
        return found[::-1]

    def _below(self, home: str, topics: Iterable[str]) -> Iterator[tuple[Partition, bytes]]:
        """Yield the partition and the data of each znode HOME/TOPIC/PARTITION."""
        names = self._ask([f"{home}/{topic}" for topic in topics], self._client.get_children_async)
        for path, data in self._data(f"{parent}/{name}" for parent in names for name in names[parent]).items():
            topic, name = path.rsplit("/", 2)[1:]
            yield (topic, name), data

    def _subscription(self, path: str, data: bytes) -> Subscription | None:
        """Return a member's subscription, or None, with the reason in `problems`, if it is malformed."""
        try:
            return read_subscription(data)
        except ValueError as error:
            self.problems.append(f"{path} in ZooKeeper is ignored: {error}")
            return None

    def _data(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the data of each existing znode by path. Paths without a znode are left out."""
        return {path: data or b"" for path, (data, _) in self._ask(paths, self._client.get_async).items()}

    def _children(self, path: str) -> list[str]:
        """Return the names of a znode's children, sorted, or an empty list if the znode does not exist."""
        return sorted(self._ask([path], self._client.get_children_async).get(path, ()))

    def _ask(self, paths: Iterable[str], ask: Any) -> dict[str, Any]:
        """Return the result of the kazoo call `ask` for each path. Paths without a znode are left out.

        The calls are pipelined.
        """
        found = {}
        for path, asked in pipelined(paths, ask, _WINDOW):
            try:
                found[path] = self._wait(asked)
            except NoNodeError:
                pass
        return found

    def _wait(self, asked: Any) -> Any:
        """Return the result of a pending kazoo call. Raise its error, or KazooTimeoutError after the time limit."""
        return asked.get(timeout=self._timeout_s)


def partition_order(partition: Partition) -> tuple[str, bool, int, str]:
    """Return the sort key of a partition: topic, then partition number.

    Kafka 0.7's partition names, BROKER-NUMBER, come after numbers and sort as text.
    """
    topic, name = partition
    is_number = name.isascii() and name.isdigit()
    return topic, not is_number, int(name) if is_number else 0, name


def _home(group: str) -> str:
    """Return the path of a group's znode, /consumers/GROUP."""
    return f"{CONSUMERS}/{group}"


def _batches(items: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), _MAX_OPERATIONS):
        yield items[start : start + _MAX_OPERATIONS]
