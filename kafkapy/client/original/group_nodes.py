"""Groups in ZooKeeper seen from outside: who is in them, who owns what, what is committed; offsets set, groups deleted.

Nodes that cannot be read are left out, and `problems` names them. Every call waits for ZooKeeper and raises
KazooException or KazooTimeoutError where it does not answer. Imports kazoo: load it only where there is a ZooKeeper.

Source: ZkConsumerGroupService, AdminUtils and ZkUtils of Kafka 0.10.2; ConsumerOffsetChecker of 0.8.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError, NotEmptyError, RolledBackError
from kazoo.exceptions import RuntimeInconsistency as NotTried

from kafkapy.client.original.assignment import Partition
from kafkapy.client.original.cluster_tree import ClusterTree
from kafkapy.client.original.group_tree import GroupTree
from kafkapy.client.original.layouts import Layout, layout_of_topic, partitions_07, partitions_in
from kafkapy.client.original.subscriptions import Subscription, read_subscription
from kafkapy.errors import KafkaError
from kafkapy.metadata.paths import BROKER_IDS, CONSUMERS, TOPICS
from kafkapy.metadata.refresh import ahead

# ZooKeeper takes 1 MiB in one change, and a path is some hundred bytes long.
_MAX_OPERATIONS = 500
_WINDOW = 64  # reads under way at once
_LARGEST = 2**63 - 1


class OldGroup(NamedTuple):
    """`members` are the registrations by consumer id, None for one that cannot be read; `owners` are consumer threads.
    `partitions` are those of all topics that the group has owned, and those with an offset, in their order."""

    name: str
    members: dict[str, Subscription | None]
    owners: dict[Partition, str]
    offsets: dict[Partition, int]
    partitions: list[Partition]

    def member_of(self, partition: Partition) -> str | None:
        """The consumer id in the name of the thread that owns it."""
        owner = self.owners.get(partition)
        return None if owner is None else owner.rpartition("-")[0]


class GroupNodes:
    def __init__(self, client: Any, *, patience_s: float) -> None:
        """`patience_s` is how long each answer may take."""
        self.problems: list[str] = []
        self._client = client
        self._patience_s = patience_s

    def is_a_cluster(self) -> bool:
        """Whether a cluster lives here, or has lived here."""
        return self._wait(self._client.exists_async(BROKER_IDS)) is not None

    def cluster(self) -> ClusterTree:
        """Its brokers, in the layout that is found."""
        return GroupTree(self._client, "", patience_s=self._patience_s).cluster

    def topics(self) -> list[str]:
        """Of the cluster."""
        return self._children(TOPICS)

    def names(self) -> list[str]:
        return self._children(CONSUMERS)

    def exists(self, group: str) -> bool:
        return self._wait(self._client.exists_async(_home(group))) is not None

    def member_ids(self, groups: Iterable[str]) -> dict[str, list[str]]:
        """Of those that are registered now in each group, whether their registration can be read or not."""
        paths = {group: f"{_home(group)}/ids" for group in groups}
        found = self._ask(paths.values(), self._client.get_children_async)
        return {group: sorted(found.get(path, ())) for group, path in paths.items()}

    def describe(self, group: str) -> OldGroup:
        home = _home(group)
        registered = self._data(f"{home}/ids/{member}" for member in self._children(f"{home}/ids"))
        members = {path.rpartition("/")[2]: self._subscription(path, data) for path, data in registered.items()}
        topics = self._children(f"{home}/owners")
        owners = {where: data.decode("utf-8", "replace") for where, data in self._below(f"{home}/owners", topics)}
        offsets = self.offsets(group)
        found = {(topic, name) for topic, names in self.partitions(topics).items() for name in names}
        return OldGroup(group, members, owners, offsets, sorted({*found, *owners, *offsets}, key=partition_order))

    def offsets(self, group: str) -> dict[Partition, int]:
        """What is committed in ZooKeeper."""
        home = f"{_home(group)}/offsets"
        found = {}
        for (topic, name), data in self._below(home, self._children(home)):
            if data.isdigit() and int(data) <= _LARGEST:
                found[topic, name] = int(data)
            else:
                self.problems.append(f"{home}/{topic}/{name} in ZooKeeper has {data[:100]!r}, which is no offset")
        return found

    def partitions(self, topics: Iterable[str]) -> dict[str, list[str]]:
        """The names of the topics' partitions in their order, in either layout; none of a topic that is not there."""
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
        """Up to 500 are set as a whole."""
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
        """False, and nothing is changed, where members are registered."""
        home = _home(group)
        members = f"{home}/ids"
        # The members' node goes first: it cannot while one is registered, also one that has just come.
        return self._delete(sorted(self._all(home), key=lambda path: path != members))

    def delete_topic(self, group: str, topic: str) -> bool:
        """What is committed for the topic, and that it was owned. False where something has come to it meanwhile."""
        home = _home(group)
        return self._delete([*self._all(f"{home}/owners/{topic}"), *self._all(f"{home}/offsets/{topic}")])

    def delete_offsets(self, group: str, partitions: Iterable[Partition]) -> None:
        self._delete([f"{_home(group)}/offsets/{topic}/{name}" for topic, name in partitions])

    def _delete(self, paths: list[str]) -> bool:
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
        """Raises the error of the operation that was refused; then none of them was made."""
        results = self._wait(change.commit_async())
        for result in results:
            if isinstance(result, KazooException) and not isinstance(result, RolledBackError | NotTried):
                raise result

    def _ensure(self, path: str) -> None:
        try:
            self._wait(self._client.create_async(path, None))  # null, as Kafka's are
        except NoNodeError:
            self._ensure(path.rpartition("/")[0])
            self._ensure(path)
        except NodeExistsError:
            pass

    def _all(self, path: str) -> list[str]:
        """A node and all below it, children before their parents; empty where there is none."""
        if self._wait(self._client.exists_async(path)) is None:
            return []
        found, level = [path], [path]
        while level:
            below = self._ask(level, self._client.get_children_async)
            level = [f"{parent}/{name}" for parent, names in below.items() for name in names]
            found += level
        return found[::-1]

    def _below(self, home: str, topics: Iterable[str]) -> Iterator[tuple[Partition, bytes]]:
        """What the nodes HOME/TOPIC/PARTITION hold."""
        names = self._ask([f"{home}/{topic}" for topic in topics], self._client.get_children_async)
        for path, data in self._data(f"{parent}/{name}" for parent in names for name in names[parent]).items():
            topic, name = path.rsplit("/", 2)[1:]
            yield (topic, name), data

    def _subscription(self, path: str, data: bytes) -> Subscription | None:
        try:
            return read_subscription(data)
        except ValueError as error:
            self.problems.append(f"{path} in ZooKeeper is left out: {error}")
            return None

    def _data(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Of those that are there."""
        return {path: data or b"" for path, (data, _) in self._ask(paths, self._client.get_async).items()}

    def _children(self, path: str) -> list[str]:
        return sorted(self._ask([path], self._client.get_children_async).get(path, ()))

    def _ask(self, paths: Iterable[str], ask: Any) -> dict[str, Any]:
        """The answers for those nodes that are there."""
        found = {}
        for path, asked in ahead(paths, ask, _WINDOW):
            try:
                found[path] = self._wait(asked)
            except NoNodeError:
                pass
        return found

    def _wait(self, asked: Any) -> Any:
        return asked.get(timeout=self._patience_s)


def partition_order(partition: Partition) -> tuple[str, bool, int, str]:
    """By topic and number; partitions of Kafka 0.7, BROKER-NUMBER, as texts."""
    topic, name = partition
    is_number = name.isascii() and name.isdigit()
    return topic, not is_number, int(name) if is_number else 0, name


def _home(group: str) -> str:
    return f"{CONSUMERS}/{group}"


def _batches(items: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), _MAX_OPERATIONS):
        yield items[start : start + _MAX_OPERATIONS]
