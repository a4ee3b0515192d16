"""Converts the zookeeper.* settings into those of the ZooKeeper client. Imports kazoo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.metadata.zookeeper.client import ZooKeeperSettings

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings:
    """Return the client's settings. The connection time-out is zookeeper.connection.timeout.ms if set, otherwise the
    session time-out."""
    session_ms = config["zookeeper.session.timeout.ms"]
    connection_ms = config["zookeeper.connection.timeout.ms"]
    settings = ZooKeeperSettings(
        config["zookeeper.connect"].strip(),
        session_timeout_ms=session_ms,
        connection_timeout_ms=session_ms if connection_ms is None else connection_ms,
        max_in_flight=config["zookeeper.max.in.flight.requests"],
        set_acl=config["zookeeper.set.acl"],
    )
    return settings.with_security(config)
