"""A group's znodes: its members, what each owns, and what is committed, in the same places in all layouts.

Calls wait, and raise, as those of KeeperNodes. Source: ZkUtils and ZKGroupTopicDirs of Kafka 0.8.2. Imports kazoo.
"""

from __future__ import annotations

import time
from typing import Any

from kafkapy.client.original.assignment import Partition, Thread
from kafkapy.client.original.cluster_tree import BROKERS, TOPICS, ClusterTree, cluster_tree
from kafkapy.client.original.errors import ConsumerIdTaken
from kafkapy.client.original.keeper_nodes import KeeperNodes, Watch
from kafkapy.client.original.subscriptions import Subscription, read_subscription
from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.addresses import host_port

__all__ = ["BROKERS", "TOPICS", "GroupTree", "Watch"]

_GLANCE_S = 0.05
_LARGEST = 2**63 - 1


class GroupTree:
    def __init__(self, client: Any, group: str, *, patience_s: float) -> None:
        """`patience_s` is how long each answer may take: then KazooTimeoutError is raised."""
        self._nodes = KeeperNodes(client, patience_s)
        self._group = f"/consumers/{group}"
        self._ids = f"{self._group}/ids"
        self._cluster: ClusterTree | None = None

    @property
    def session(self) -> int | None:
        """As KeeperNodes has it."""
        return self._nodes.session

    @property
    def cluster(self) -> ClusterTree:
        """Of the layout that was found at the first look."""
        if self._cluster is None:
            self._cluster = cluster_tree(self._nodes)
        return self._cluster

    def has_brokers(self) -> bool:
        """Whether a cluster lives here, or has lived here."""
        return self._nodes.exists(BROKERS)

    def brokers(self) -> list[str]:
        """HOST:PORT of those that listen in plain text."""
        return [host_port(*address) for address in self.cluster.brokers().values()]

    def register(self, consumer: str, data: bytes, *, patience_s: float = 0.0) -> int:
        """The session that it is bound to. Raises ConsumerIdTaken when somebody else still has the id after
        `patience_s`."""
        path = f"{self._ids}/{consumer}"
        deadline = time.monotonic() + patience_s
        while (session := self._nodes.make_ours(path, data)) is None:
            if time.monotonic() >= deadline:
                raise ConsumerIdTaken(
                    f"{path} in ZooKeeper is there: another consumer of the group has this id. Choose another "
                    "consumer.id, or wait until the session of the one that had it is over."
                )
            time.sleep(_GLANCE_S)
        return session

    def members(self, watch: Watch) -> dict[str, Subscription]:
        """Those that can be read, by consumer id; the others are named in the log, and get nothing."""
        found = {}
        paths = {f"{self._ids}/{consumer}": consumer for consumer in self._nodes.children(self._ids, watch)}
        for path, data in self._nodes.data_of(paths).items():  # who has left meanwhile is not in it
            try:
                found[paths[path]] = read_subscription(data)
            except ValueError as error:
                self._nodes.say_once(path, data, str(error))
        return found

    def claim(self, partition: Partition, thread: Thread) -> bool:
        """Whether the partition is ours now."""
        return self._nodes.make_ours(self.owner_path(partition), str(thread).encode()) is not None

    def owner(self, partition: Partition, watch: Watch) -> bytes | None:
        """Who has it, in the words of the znode."""
        return self._nodes.data(self.owner_path(partition), watch)

    def release(self, partition: Partition) -> None:
        """Unless it is another's."""
        self._nodes.remove_ours(self.owner_path(partition))

    def owner_path(self, partition: Partition) -> str:
        return f"{self._group}/owners/{partition[0]}/{partition[1]}"

    def offset(self, partition: Partition) -> int | None:
        """What the group has committed. Raises KafkaError that names the path where that is no offset."""
        path = self._offset_path(partition)
        data = self._nodes.data(path)
        if data is None:
            return None
        if data.isdigit() and len(data) < 20 and int(data) <= _LARGEST:
            return int(data)
        raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"{path} in ZooKeeper has {data[:100]!r}, which is no offset")

    def set_offset(self, partition: Partition, offset: int) -> None:
        self._nodes.write(self._offset_path(partition), str(offset).encode())

    def _offset_path(self, partition: Partition) -> str:
        return f"{self._group}/offsets/{partition[0]}/{partition[1]}"
