"""Checks of the broker's zookeeper.* settings: the addresses, and the identity that ACLs need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.metadata.zookeeper.properties import USER, certificate_file, check_security
from kafkapy.runtime.config_def import ConfigError

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig


def check(config: BrokerConfig) -> None:
    """Raise ConfigError for the first wrong setting. Nothing is checked if zookeeper.connect is not set."""
    connect = (config["zookeeper.connect"] or "").strip()
    if not connect:
        return
    _check_address(connect)
    check_security(config)
    if config["zookeeper.set.acl"] and not config[USER] and not certificate_file(config):
        raise ConfigError(
            "zookeeper.set.acl",
            "true",
            f"needs an identity that ZooKeeper knows us by: set {USER}, or zookeeper.ssl.keystore.location",
        )


def _check_address(connect: str) -> None:
    servers, slash, chroot = connect.partition("/")
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ConfigError("zookeeper.connect", connect, f"must be HOST:PORT with commas between ({server} is not)")
    path = chroot.rstrip("/")
    if slash and path and any(part in ("", ".", "..") for part in path.split("/")):
        raise ConfigError("zookeeper.connect", connect, f"must end in a path such as /kafka (/{chroot} is none)")
