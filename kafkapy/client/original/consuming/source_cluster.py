"""The cluster that a consumer of a ZooKeeper group reads from: its znodes, its brokers and its offset store.

Imports kazoo.
"""

from __future__ import annotations

from collections.abc import Callable

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ConnectionFailed, UnsupportedByBroker
from kafkapy.client.original.consuming.fetch_wire import Brokers, KafkaBrokers
from kafkapy.client.original.consuming.offset_stores import DualOffsets, KafkaOffsets, OffsetStore, ZooKeeperOffsets
from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.kafka_07.brokers import Brokers07
from kafkapy.client.original.znodes.group_tree import GroupTree
from kafkapy.client.original.znodes.layouts import Layout
from kafkapy.metadata.zookeeper.client import (
    ZooKeeperError,
    ZooKeeperSettings,
    close,
    connected,
    granted_timeout_ms,
    revive,
)
from kafkapy.runtime.config_def import ConfigError


class SourceCluster:
    """The cluster that a ZooKeeper consumer group reads from, found through a ZooKeeper connection, open until `close`.

    Args:
        on_state: Called by a kazoo thread when the connection is lost or re-established.
    Raises:
        ZooKeeperError: ZooKeeper cannot be reached, or has no Kafka cluster at the given path.
        ConfigError: offsets.storage=kafka is set, but the brokers are of Kafka 0.7.
    """

    def __init__(self, settings: ConsumerSettings, on_state: Callable[[str], None]) -> None:
        self._settings = settings
        zookeeper = ZooKeeperSettings(
            settings.zookeeper_connect,
            settings.zookeeper_session_timeout_ms,
            settings.zookeeper_connection_timeout_ms,
        ).with_security(settings.trust)
        self.logs_in = zookeeper.login is not None  # to ZooKeeper
        self.client = connected(zookeeper, zookeeper.servers + zookeeper.chroot, on_state)
        self.tree = GroupTree(
            self.client,
            settings.group_id,
            timeout_s=settings.zookeeper_session_timeout_ms / 1000,
            protocol=settings.security.protocol,
        )
        self._offsets_cluster: Cluster | None = None
        self._store: OffsetStore | None = None
        try:
            self.is_07 = self._layout() is Layout.V07
            if self.is_07 and settings.offsets_storage == "kafka":
                raise ConfigError("offsets.storage", "kafka", "must be zookeeper for brokers of Kafka 0.7")
        except (ZooKeeperError, ConfigError):
            self.close()
            raise

    def close(self) -> None:
        """End the ZooKeeper session, which removes this consumer's registration and its ownership of partitions."""
        close(self.client)
        if self._offsets_cluster is not None:
            self._offsets_cluster.close()

    def revive(self) -> None:
        """Connect to ZooKeeper again if the client has given up after a refused login. To be called regularly."""
        revive(self.client)

    def session_timeout_s(self) -> float:
        """Return the time-out of the present session, which ZooKeeper may have made shorter than the setting."""
        asked_ms = self._settings.zookeeper_session_timeout_ms
        return min(asked_ms, granted_timeout_ms(self.client, asked_ms)) / 1000

    def brokers(self) -> Brokers:
        """Return a new object for access to the cluster's brokers, with its own connections."""
        return Brokers07(self._settings, self.tree.cluster) if self.is_07 else KafkaBrokers(self._settings, self.open)

    def open(self) -> Cluster:
        """Return a new Cluster for the brokers registered in ZooKeeper.

        Raises ConnectionFailed, or UnsupportedByBroker if the brokers are of Kafka 0.7.
        """
        self.refuse_07("be used like later ones")
        try:
            brokers = self.tree.brokers()
        except (KazooException, KazooTimeoutError) as error:
            raise ConnectionFailed(f"the brokers cannot be read from ZooKeeper: {type(error).__name__}") from None
        if not brokers:
            raise ConnectionFailed("no broker is registered in ZooKeeper below /brokers/ids")
        timeout_s = self._settings.offsets_channel_socket_timeout_ms / 1000
        try:
            return Cluster(
                brokers,
                client_id=self._settings.client_id,
                timeout_s=timeout_s,
                old_brokers=True,
                security=self._settings.security,
            )
        except ValueError as error:
            raise ConnectionFailed(
                f"what is registered in ZooKeeper below /brokers/ids cannot be used: {error}"
            ) from None

    def offsets(self) -> OffsetStore:
        """Return the offset store that offsets.storage selects, ZooKeeper, Kafka or both.

        Raises the errors of `open`.
        """
        if self._store is None:
            if self._settings.offsets_storage == "kafka":
                self._offsets_cluster = self.open()
            self._store = self.offsets_over(self._offsets_cluster)
        return self._store

    def offsets_over(self, cluster: Cluster | None) -> OffsetStore:
        """Return an offset store that uses the broker connections of `cluster`, for the thread that may use `cluster`.

        With offsets.storage=zookeeper, `cluster` may be None.
        """
        in_zookeeper = ZooKeeperOffsets(self.tree)
        if self._settings.offsets_storage != "kafka":
            return in_zookeeper
        assert cluster is not None
        in_kafka = KafkaOffsets(cluster, self._settings.group_id)
        return DualOffsets(in_kafka, in_zookeeper) if self._settings.dual_commit else in_kafka

    def refuse_07(self, what: str) -> None:
        """Raise UnsupportedByBroker if the brokers are of Kafka 0.7. `what` completes the text "they cannot ..."."""
        if self.is_07:
            raise UnsupportedByBroker(
                f"the brokers in ZooKeeper at {self._settings.zookeeper_connect} are of Kafka 0.7, and cannot {what}; "
                "a ConsumerConnector reads them record by record, and so does `kafkapy consume --zookeeper`"
            )

    def _layout(self) -> Layout:
        """Return the layout of the cluster's znodes.

        Raise ZooKeeperError if there is no Kafka cluster or no response.
        """
        try:
            if self.tree.has_brokers():
                return self.tree.cluster.layout
            problem = "has no /brokers/ids: there is no Kafka cluster. Is the path at its end right?"
        except (KazooException, KazooTimeoutError) as error:
            problem = f"does not answer: {type(error).__name__}"
        raise ZooKeeperError(f"zookeeper.connect is {self._settings.zookeeper_connect!r}, which {problem}")
