"""A group's znodes: members, owners and offsets. Their paths are the same in all layouts.

Methods wait and raise like those of Znodes. Source: ZkUtils and ZKGroupTopicDirs of Kafka 0.8.2. Imports kazoo.
"""

from __future__ import annotations

import time
from typing import Any

from kafkapy.client.original.assignment import Partition, Thread
from kafkapy.client.original.errors import ConsumerIdTaken
from kafkapy.client.original.znodes.cluster_tree import BROKERS, TOPICS, ClusterTree, cluster_tree
from kafkapy.client.original.znodes.nodes import Watch, Znodes
from kafkapy.client.original.znodes.subscriptions import Subscription, read_subscription
from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.addresses import host_port

__all__ = ["BROKERS", "TOPICS", "GroupTree", "Watch"]

_POLL_S = 0.05
_LARGEST = 2**63 - 1


class GroupTree:
    """Reads and writes one group's znodes as one of its members."""

    def __init__(self, client: Any, group: str, *, timeout_s: float) -> None:
        """Set a time limit for each response of ZooKeeper, after which methods raise KazooTimeoutError."""
        self._nodes = Znodes(client, timeout_s)
        self._group = f"/consumers/{group}"
        self._ids = f"{self._group}/ids"
        self._cluster: ClusterTree | None = None

    @property
    def session(self) -> int | None:
        """The id of the ZooKeeper session; see Znodes.session."""
        return self._nodes.session

    @property
    def cluster(self) -> ClusterTree:
        """The cluster's brokers and topics. The layout is determined on first use."""
        if self._cluster is None:
            self._cluster = cluster_tree(self._nodes)
        return self._cluster

    def has_brokers(self) -> bool:
        """Return True if a Kafka cluster uses, or has used, this part of ZooKeeper."""
        return self._nodes.exists(BROKERS)

    def brokers(self) -> list[str]:
        """Return HOST:PORT of the brokers' plaintext listeners."""
        return [host_port(*address) for address in self.cluster.brokers().values()]

    def register(self, consumer: str, data: bytes, *, timeout_s: float = 0.0) -> int:
        """Register a consumer and return the session of the registration.

        Raises ConsumerIdTaken if another session still has the id after `timeout_s`.
        """
        path = f"{self._ids}/{consumer}"
        deadline = time.monotonic() + timeout_s
        while (session := self._nodes.create_own(path, data)) is None:
            if time.monotonic() >= deadline:
                raise ConsumerIdTaken(
                    f"{path} in ZooKeeper exists: another consumer of the group has this id. Choose another "
                    "consumer.id, or wait until the other consumer's session has expired."
                )
            time.sleep(_POLL_S)
        return session

    def members(self, watch: Watch) -> dict[str, Subscription]:
        """Return the members' subscriptions by consumer id. Malformed ones are logged and ignored."""
        found = {}
        paths = {f"{self._ids}/{consumer}": consumer for consumer in self._nodes.children(self._ids, watch)}
        for path, data in self._nodes.data_of(paths).items():  # without members that have just left
            try:
                found[paths[path]] = read_subscription(data)
            except ValueError as error:
                self._nodes.log_once(path, data, str(error))
        return found

    def claim(self, partition: Partition, thread: Thread) -> bool:
        """Claim a partition for a thread. Return False if another member owns it."""
        return self._nodes.create_own(self.owner_path(partition), str(thread).encode()) is not None

    def owner(self, partition: Partition, watch: Watch) -> bytes | None:
        """Return the data of the owner's znode, which names the owning thread; None without an owner."""
        return self._nodes.data(self.owner_path(partition), watch)

    def release(self, partition: Partition) -> None:
        """Give up a partition, unless another member owns it."""
        self._nodes.delete_own(self.owner_path(partition))

    def owner_path(self, partition: Partition) -> str:
        """Return the path of the partition's owner node."""
        return f"{self._group}/owners/{partition[0]}/{partition[1]}"

    def offset(self, partition: Partition) -> int | None:
        """Return the committed offset, or None. Raises KafkaError if the node's data is not an offset."""
        path = self._offset_path(partition)
        data = self._nodes.data(path)
        if data is None:
            return None
        if data.isdigit() and len(data) < 20 and int(data) <= _LARGEST:
            return int(data)
        raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"{path} in ZooKeeper has {data[:100]!r}, which is not an offset")

    def set_offset(self, partition: Partition, offset: int) -> None:
        """Commit an offset."""
        self._nodes.write(self._offset_path(partition), str(offset).encode())

    def _offset_path(self, partition: Partition) -> str:
        return f"{self._group}/offsets/{partition[0]}/{partition[1]}"
