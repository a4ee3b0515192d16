"""The settings for TLS and login to ZooKeeper (zookeeper.ssl.* and kafkapy.zookeeper.sasl.*), for brokers and clients.

Source: KafkaConfig and ZKClientConfig of Kafka 3.9. The login settings are kafkapy's own: Kafka has them in a JAAS
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kafkapy.runtime.config_def import ConfigError, ConfigType, parse_value

USER = "kafkapy.zookeeper.sasl.username"
PASSWORD = "kafkapy.zookeeper.sasl.password"

# Type and default value of each setting.
SECURITY: dict[str, tuple[str, Any]] = {
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
    """The values of settings by name, such as a BrokerConfig."""

    def __getitem__(self, name: str, /) -> Any: ...


def read_security(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parsed values of all SECURITY settings, taken from a client's properties or the defaults. Raises
    ConfigError for invalid values."""
    given = {name: properties.get(name) for name in SECURITY}
    values = {
        name: default if given[name] is None else parse_value(name, kind, given[name])
        for name, (kind, default) in SECURITY.items()
    }
    check_security(values)
    return values


def check_security(values: Values) -> None:
    """Raise ConfigError for key stores that are not PEM files, and for a user name without a password or the
    reverse."""
    if values["zookeeper.ssl.client.enable"]:
        _check_store(values, "zookeeper.ssl.keystore")
        _check_store(values, "zookeeper.ssl.truststore")
    if bool(values[USER]) != bool(values[PASSWORD]):
        raise ConfigError(USER, values[USER], f"needs {PASSWORD}: set both or neither")


def certificate_file(values: Values) -> str | None:
    """Return the path of the PEM file with this process's key and certificate for ZooKeeper, or None if no file is set
    or TLS is off."""
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
            f"must be a PEM file, and {store}.type=PEM: Java key stores (JKS, PKCS12) are not supported; "
            "`keytool -importkeystore` and `openssl pkcs12` convert them to PEM",
        )
