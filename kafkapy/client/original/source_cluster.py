"""The cluster that a member of a group reads from, found in ZooKeeper: its znodes, its brokers, where offsets are kept.

Imports kazoo.
"""

from __future__ import annotations

from collections.abc import Callable

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ConnectionFailed, UnsupportedByBroker
from kafkapy.client.original.brokers_07 import Brokers07
from kafkapy.client.original.fetch_wire import Brokers, KafkaBrokers
from kafkapy.client.original.group_tree import GroupTree
from kafkapy.client.original.layouts import Layout
from kafkapy.client.original.offset_stores import DualOffsets, KafkaOffsets, OffsetStore, ZooKeeperOffsets
from kafkapy.client.original.settings import ConsumerSettings
from kafkapy.metadata.keeper_client import KeeperError, KeeperSettings, close, connected
from kafkapy.runtime.config_def import ConfigError


class SourceCluster:
    """Connected to ZooKeeper until `close`.

    Args:
        on_state: is called by a thread of kazoo's when the connection is another, or lost.
    Raises:
        KeeperError: nobody answers, or no cluster lives there.
        ConfigError: offsets.storage=kafka, and brokers that cannot keep any.
    """

    def __init__(self, settings: ConsumerSettings, on_state: Callable[[str], None]) -> None:
        self._settings = settings
        keeper = KeeperSettings(
            settings.zookeeper_connect,
            settings.zookeeper_session_timeout_ms,
            settings.zookeeper_connection_timeout_ms,
        ).with_trust(settings.trust)
        self.client = connected(keeper, keeper.servers + keeper.chroot, on_state)
        self.tree = GroupTree(self.client, settings.group_id, patience_s=settings.zookeeper_session_timeout_ms / 1000)
        self._offsets_cluster: Cluster | None = None
        self._store: OffsetStore | None = None
        try:
            self._is_07 = self._layout() is Layout.V07
            if self._is_07 and settings.offsets_storage == "kafka":
                raise ConfigError("offsets.storage", "kafka", "must be zookeeper: the brokers are of Kafka 0.7")
        except (KeeperError, ConfigError):
            self.close()
            raise

    def close(self) -> None:
        """Ends the session, and with it the registration and what is owned."""
        close(self.client)
        if self._offsets_cluster is not None:
            self._offsets_cluster.close()

    def brokers(self) -> Brokers:
        """With connections of their own."""
        return Brokers07(self._settings, self.tree.cluster) if self._is_07 else KafkaBrokers(self._settings, self.open)

    def open(self) -> Cluster:
        """Connects to the brokers that are there now. Raises ConnectionFailed; UnsupportedByBroker for Kafka 0.7."""
        self.refuse_07("be asked as later ones")
        try:
            brokers = self.tree.brokers()
        except (KazooException, KazooTimeoutError) as error:
            raise ConnectionFailed(f"ZooKeeper does not tell of the brokers: {type(error).__name__}") from None
        if not brokers:
            raise ConnectionFailed("no broker is registered in ZooKeeper below /brokers/ids")
        timeout_s = self._settings.offsets_channel_socket_timeout_ms / 1000
        try:
            return Cluster(brokers, client_id=self._settings.client_id, timeout_s=timeout_s, old_brokers=True)
        except ValueError as error:
            raise ConnectionFailed(
                f"what is registered in ZooKeeper below /brokers/ids cannot be used: {error}"
            ) from None

    def offsets(self) -> OffsetStore:
        """Where offsets.storage says. Raises as `open`."""
        if self._store is None:
            self._store = ZooKeeperOffsets(self.tree)
            if self._settings.offsets_storage == "kafka":
                self._offsets_cluster = self.open()
                in_kafka = KafkaOffsets(self._offsets_cluster, self._settings.group_id)
                self._store = DualOffsets(in_kafka, self._store) if self._settings.dual_commit else in_kafka
        return self._store

    def refuse_07(self, what: str) -> None:
        """Raises UnsupportedByBroker when the brokers are of Kafka 0.7."""
        if self._is_07:
            raise UnsupportedByBroker(
                f"the brokers in ZooKeeper at {self._settings.zookeeper_connect} are of Kafka 0.7, and cannot {what}; "
                "a ConsumerConnector reads them record by record, and so does `kafkapy consume --zookeeper`"
            )

    def _layout(self) -> Layout:
        try:
            if self.tree.has_brokers():
                return self.tree.cluster.layout
            problem = "has no /brokers/ids: no cluster lives there. Is the path at its end right?"
        except (KazooException, KazooTimeoutError) as error:
            problem = f"does not answer: {type(error).__name__}"
        raise KeeperError(f"zookeeper.connect is {self._settings.zookeeper_connect!r}, which {problem}")
