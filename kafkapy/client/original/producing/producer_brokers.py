"""The brokers registered in ZooKeeper, for producers with `zk.connect`. Watches notice changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from kafkapy.client.errors import ConnectionFailed
from kafkapy.extras import how_to_install
from kafkapy.metadata.zookeeper.properties import read_security
from kafkapy.runtime.addresses import host_port

if TYPE_CHECKING:
    from kafkapy.client.original.znodes.cluster_tree import Address, ClusterTree

T = TypeVar("T")

IDS = "/brokers/ids"
RETRY_S = 1.0  # between two logins, if ZooKeeper refuses them


class ZooKeeperBrokers:
    """Reads the cluster's brokers and topics from ZooKeeper.

    The constructor and the reading methods raise ConnectionFailed if ZooKeeper cannot be reached or has no broker, or
    if kazoo is not installed.
    """

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        trust: Mapping[str, Any] = MappingProxyType(read_security({})),
        protocol: str = "PLAINTEXT",
    ) -> None:
        try:
            from kafkapy.client.original.znodes.cluster_tree import cluster_tree
            from kafkapy.client.original.znodes.nodes import Znodes
            from kafkapy.metadata.zookeeper.client import ZooKeeperError, ZooKeeperSettings, connected
        except ImportError as error:
            raise ConnectionFailed(f"zk.connect needs kazoo: {how_to_install('zookeeper')}.") from error
        settings = ZooKeeperSettings(connect, session_timeout_ms, connection_timeout_ms).with_security(trust)
        self._connect = connect
        self._has_changed = threading.Event()
        self._try_again_at = 0.0
        try:
            self._client: Any = connected(settings, connect, lambda _: self._has_changed.set())
        except ZooKeeperError as error:
            raise ConnectionFailed(str(error)) from error
        nodes = Znodes(self._client, connection_timeout_ms / 1000)
        try:
            self._tree: ClusterTree = self._read(lambda: cluster_tree(nodes, protocol))
        except ConnectionFailed:
            self.close()
            raise
        self.layout = self._tree.layout

    def has_changed(self) -> bool:
        """Return True if brokers, topics or the connection may have changed since `brokers` was called.

        Return False while ZooKeeper cannot be reached: reading would wait for the time limit, and then fail. Connect
        again if the client has given up after a refused login.
        """
        if not self._has_changed.is_set():
            return False
        if self._client.connected:
            return True
        now = time.monotonic()
        if now >= self._try_again_at:
            from kafkapy.metadata.zookeeper.client import revive

            self._try_again_at = now + RETRY_S
            revive(self._client)
        return False

    def addresses(self) -> list[str]:
        """Return HOST:PORT of each broker, ordered by broker id. Set watches on brokers and topics."""
        return [host_port(*address) for address in self.brokers().values()]

    def brokers(self) -> dict[int, Address]:
        """Return the address of each broker by broker id. Set watches on brokers and topics."""
        self._has_changed.clear()
        found = self._read(lambda: self._tree.brokers(self._changed))
        self._read(lambda: self._tree.topics(self._changed))
        if not found:
            self._has_changed.set()
            raise ConnectionFailed(
                f"ZooKeeper at {self._connect} has no broker at {IDS}. Is one running, and is the chroot right?"
            )
        return found

    def partitions(self, topic: str) -> list[str]:
        """Return the names that a topic's partitions have in ZooKeeper. Set a watch on the topic."""
        return self._read(lambda: self._tree.partitions(topic, self._changed))

    def close(self) -> None:
        from kafkapy.metadata.zookeeper.client import close

        close(self._client)

    def _read(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, a function that reads from ZooKeeper.

        Turn ZooKeeper's errors into ConnectionFailed.
        """
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return ask()
        except (KazooException, KazooTimeoutError) as error:
            self._has_changed.set()  # no watch may be set: read again soon
            raise ConnectionFailed(f"The brokers in ZooKeeper at {self._connect} cannot be read: {error!r}.") from error

    def _changed(self, _: Any) -> None:
        self._has_changed.set()
