"""The brokers as ZooKeeper has them, for `zk.connect`: watched, so that a producer hears of what comes and goes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from kafkapy.client.errors import ConnectionFailed
from kafkapy.metadata.keeper_properties import read_trust
from kafkapy.runtime.addresses import host_port

if TYPE_CHECKING:
    from kafkapy.client.original.cluster_tree import Address, ClusterTree

T = TypeVar("T")

IDS = "/brokers/ids"


class ZooKeeperBrokers:
    """Raises ConnectionFailed where ZooKeeper cannot be reached or has no broker there, or kazoo is not installed."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        trust: Mapping[str, Any] = MappingProxyType(read_trust({})),
    ) -> None:
        try:
            from kafkapy.client.original.cluster_tree import cluster_tree
            from kafkapy.client.original.keeper_nodes import KeeperNodes
            from kafkapy.metadata.keeper_client import KeeperError, KeeperSettings, connected
        except ImportError as error:
            raise ConnectionFailed("zk.connect needs kazoo: pip install 'kafkapy[zookeeper]'.") from error
        settings = KeeperSettings(connect, session_timeout_ms, connection_timeout_ms).with_trust(trust)
        self._connect = connect
        self._news = threading.Event()
        try:
            self._client: Any = connected(settings, connect, lambda _: self._news.set())
        except KeeperError as error:
            raise ConnectionFailed(str(error)) from error
        nodes = KeeperNodes(self._client, connection_timeout_ms / 1000)
        try:
            self._tree: ClusterTree = self._read(lambda: cluster_tree(nodes))
        except ConnectionFailed:
            self.close()
            raise
        self.layout = self._tree.layout

    def has_news(self) -> bool:
        """Whether brokers or topics, or the connection, may have changed since `addresses`."""
        return self._news.is_set()

    def addresses(self) -> list[str]:
        """Of all brokers there are, in the order of their ids; leaves watches behind."""
        return [host_port(*address) for address in self.brokers().values()]

    def brokers(self) -> dict[int, Address]:
        """The same by their ids."""
        self._news.clear()
        found = self._read(lambda: self._tree.brokers(self._changed))
        self._read(lambda: self._tree.topics(self._changed))
        if not found:
            self._news.set()
            raise ConnectionFailed(
                f"ZooKeeper at {self._connect} has no broker at {IDS}. Is one running, and the chroot the right one?"
            )
        return found

    def partitions(self, topic: str) -> list[str]:
        """Their names in ZooKeeper; leaves a watch behind."""
        return self._read(lambda: self._tree.partitions(topic, self._changed))

    def close(self) -> None:
        from kafkapy.metadata.keeper_client import close

        close(self._client)

    def _read(self, ask: Callable[[], T]) -> T:
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return ask()
        except (KazooException, KazooTimeoutError) as error:
            self._news.set()  # no watch could be left: the next look has to be soon
            raise ConnectionFailed(f"The brokers in ZooKeeper at {self._connect} cannot be read: {error!r}.") from error

    def _changed(self, _: Any) -> None:
        self._news.set()
