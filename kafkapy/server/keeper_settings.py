"""The settings zookeeper.* as the tree in ZooKeeper takes them. Loads kazoo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.metadata.keeper_client import KeeperSettings

if TYPE_CHECKING:
    from kafkapy.server.config import BrokerConfig


def keeper_settings(config: BrokerConfig) -> KeeperSettings:
    """From Kafka's names; without zookeeper.connection.timeout.ms the session's time-out counts."""
    session_ms = config["zookeeper.session.timeout.ms"]
    connection_ms = config["zookeeper.connection.timeout.ms"]
    settings = KeeperSettings(
        config["zookeeper.connect"].strip(),
        session_timeout_ms=session_ms,
        connection_timeout_ms=session_ms if connection_ms is None else connection_ms,
        max_in_flight=config["zookeeper.max.in.flight.requests"],
        set_acl=config["zookeeper.set.acl"],
    )
    return settings.with_trust(config)
