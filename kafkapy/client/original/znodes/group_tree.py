"""The znodes of one consumer group: members, partition owners and offsets.

The paths are the same in all layouts. Methods wait for ZooKeeper and raise its errors like those of Znodes.
Source: ZkUtils and ZKGroupTopicDirs of Kafka 0.8.2. Imports kazoo.
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
    """Reads and writes one group's znodes on behalf of one member of the group."""

    def __init__(self, client: Any, group: str, *, timeout_s: float, protocol: str = "PLAINTEXT") -> None:
        """Use a connected kazoo client. `protocol` is the security protocol for the brokers.

        Methods raise KazooTimeoutError if ZooKeeper takes over `timeout_s` to respond.
        """
        self._nodes = Znodes(client, timeout_s)
        self._group = f"/consumers/{group}"
        self._ids = f"{self._group}/ids"
        self._cluster: ClusterTree | None = None
        self._protocol = protocol

    @property
    def session(self) -> int | None:
        """The id of the current or last ZooKeeper session; see Znodes.session."""
        return self._nodes.session

    @property
    def cluster(self) -> ClusterTree:
        """The reader of the cluster's broker and topic znodes. The layout is determined on first use."""
        if self._cluster is None:
            self._cluster = cluster_tree(self._nodes, self._protocol)
        return self._cluster

    def has_brokers(self) -> bool:
        """Return True if this ZooKeeper (below the client's chroot) is or was used by a Kafka cluster."""
        return self._nodes.exists(BROKERS)

    def brokers(self) -> list[str]:
        """Return HOST:PORT of each broker's listener for the security protocol."""
        return [host_port(*address) for address in self.cluster.brokers().values()]

    def register(self, consumer: str, data: bytes, *, timeout_s: float = 0.0) -> int:
        """Register a consumer with its encoded subscription, and return the id of the ZooKeeper session used.

        Raises ConsumerIdTaken if the consumer id is still registered by another session after `timeout_s`.
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
        """Return the subscriptions of the group's members by consumer id.

        Malformed registrations are logged and ignored. `watch` is called when members join or leave.
        """
        found = {}
        paths = {f"{self._ids}/{consumer}": consumer for consumer in self._nodes.children(self._ids, watch)}
        for path, data in self._nodes.data_of(paths).items():  # without members that have just left
            try:
                found[paths[path]] = read_subscription(data)
            except ValueError as error:
                self._nodes.log_once(path, data, str(error))
        return found

    def claim(self, partition: Partition, thread: Thread) -> bool:
        """Create the owner znode of a partition for a thread of this member. Return False if another member owns it."""
        return self._nodes.create_own(self.owner_path(partition), str(thread).encode()) is not None

    def owner(self, partition: Partition, watch: Watch) -> bytes | None:
        """Return the data of the partition's owner znode, which names the owning thread; None if there is no owner."""
        return self._nodes.data(self.owner_path(partition), watch)

    def release(self, partition: Partition) -> None:
        """Delete the owner znode of a partition, unless another member owns the partition."""
        self._nodes.delete_own(self.owner_path(partition))

    def owner_path(self, partition: Partition) -> str:
        """Return the path of the partition's owner znode."""
        return f"{self._group}/owners/{partition[0]}/{partition[1]}"

    def offset(self, partition: Partition) -> int | None:
        """Return the group's committed offset of a partition, or None if there is none.

        Raises KafkaError if the znode's data is not an offset.
        """
        path = self._offset_path(partition)
        data = self._nodes.data(path)
        if data is None:
            return None
        if data.isdigit() and len(data) < 20 and int(data) <= _LARGEST:
            return int(data)
        raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"{path} in ZooKeeper has {data[:100]!r}, which is not an offset")

    def set_offset(self, partition: Partition, offset: int) -> None:
        """Write the group's committed offset of a partition."""
        self._nodes.write(self._offset_path(partition), str(offset).encode())

    def _offset_path(self, partition: Partition) -> str:
        return f"{self._group}/offsets/{partition[0]}/{partition[1]}"
