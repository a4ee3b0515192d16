"""Settings by which ZooKeeper and we trust each other: zookeeper.ssl.* and the login, of brokers and clients alike.

Source: KafkaConfig and ZKClientConfig of Kafka 3.9; the login is our own, for Java has it in a JAAS file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kafkapy.runtime.config_def import ConfigError, ConfigType, parse_value

USER = "kafkapy.zookeeper.sasl.username"
PASSWORD = "kafkapy.zookeeper.sasl.password"

# Type and default of each.
TRUST: dict[str, tuple[str, Any]] = {
    "zookeeper.ssl.client.enable": (ConfigType.BOOLEAN, False),
    "zookeeper.ssl.keystore.location": (ConfigType.STRING, None),
    "zookeeper.ssl.keystore.password": (ConfigType.PASSWORD, None),
    "zookeeper.ssl.keystore.type": (ConfigType.STRING, None),
    "zookeeper.ssl.truststore.location": (ConfigType.STRING, None),
    "zookeeper.ssl.truststore.type": (ConfigType.STRING, None),
    "zookeeper.ssl.endpoint.identification.algorithm": (ConfigType.STRING, "HTTPS"),
    USER: (ConfigType.STRING, None),
    PASSWORD: (ConfigType.PASSWORD, None),
}


class Values(Protocol):
    """A value for each setting, such as a BrokerConfig."""

    def __getitem__(self, name: str, /) -> Any: ...


def read_trust(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The values of TRUST in a client's properties. Raises ConfigError."""
    given = {name: properties.get(name) for name in TRUST}
    values = {
        name: default if given[name] is None else parse_value(name, kind, given[name])
        for name, (kind, default) in TRUST.items()
    }
    check_trust(values)
    return values


def check_trust(values: Values) -> None:
    """Raises ConfigError for the first rule that is broken."""
    if values["zookeeper.ssl.client.enable"]:
        _check_store(values, "zookeeper.ssl.keystore")
        _check_store(values, "zookeeper.ssl.truststore")
    if bool(values[USER]) != bool(values[PASSWORD]):
        raise ConfigError(USER, values[USER], f"goes with {PASSWORD}: set both or neither")


def certificate_file(values: Values) -> str | None:
    """The file with our key and certificate for ZooKeeper; None without one, or without TLS."""
    location: str | None = values["zookeeper.ssl.keystore.location"]
    return location if values["zookeeper.ssl.client.enable"] else None


def _check_store(values: Values, store: str) -> None:
    location, kind = values[f"{store}.location"], values[f"{store}.type"]
    if location is None:
        return
    if (kind or "").upper() != "PEM" and not (kind is None and location.endswith(".pem")):
        raise ConfigError(
            f"{store}.location",
            location,
            f"must be a PEM file, and {store}.type=PEM: key stores of Java (JKS, PKCS12) cannot be read here; "
            "`keytool -importkeystore` and `openssl pkcs12` make PEM of them",
        )
