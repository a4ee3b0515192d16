"""Rules of the settings zookeeper.*: addresses, PEM files, and who may change the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.runtime.config_def import ConfigError

if TYPE_CHECKING:
    from kafkapy.server.config import BrokerConfig

USER = "kafkapy.zookeeper.sasl.username"
PASSWORD = "kafkapy.zookeeper.sasl.password"


def check(config: BrokerConfig) -> None:
    """Raises ConfigError for the first rule that is broken; without zookeeper.connect there is none."""
    connect = (config["zookeeper.connect"] or "").strip()
    if not connect:
        return
    _check_address(connect)
    if config["zookeeper.ssl.client.enable"]:
        _check_store(config, "zookeeper.ssl.keystore")
        _check_store(config, "zookeeper.ssl.truststore")
    if bool(config[USER]) != bool(config[PASSWORD]):
        raise ConfigError(USER, config[USER], f"goes with {PASSWORD}: set both or neither")
    if config["zookeeper.set.acl"] and not config[USER] and not certificate_file(config):
        raise ConfigError(
            "zookeeper.set.acl",
            "true",
            f"needs an identity that ZooKeeper knows us by: set {USER}, or zookeeper.ssl.keystore.location",
        )


def certificate_file(config: BrokerConfig) -> str | None:
    """The file with our key and certificate for ZooKeeper; None without one, or without TLS."""
    location: str | None = config["zookeeper.ssl.keystore.location"]
    return location if config["zookeeper.ssl.client.enable"] else None


def _check_address(connect: str) -> None:
    servers, slash, chroot = connect.partition("/")
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ConfigError("zookeeper.connect", connect, f"must be HOST:PORT with commas between ({server} is not)")
    path = chroot.rstrip("/")
    if slash and path and any(part in ("", ".", "..") for part in path.split("/")):
        raise ConfigError("zookeeper.connect", connect, f"must end in a path such as /kafka (/{chroot} is none)")


def _check_store(config: BrokerConfig, store: str) -> None:
    location, kind = config[f"{store}.location"], config[f"{store}.type"]
    if location is None:
        return
    if (kind or "").upper() != "PEM" and not (kind is None and location.endswith(".pem")):
        raise ConfigError(
            f"{store}.location",
            location,
            f"must be a PEM file, and {store}.type=PEM: key stores of Java (JKS, PKCS12) cannot be read here; "
            "`keytool -importkeystore` and `openssl pkcs12` make PEM of them",
        )
