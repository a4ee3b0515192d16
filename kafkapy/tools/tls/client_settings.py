"""The TLS settings in a client's properties."""

from collections.abc import Mapping

from kafkapy.client.properties import SECURITY_NAMES
from kafkapy.client.security import security_of

_OF_LIBRDKAFKA = {name for _, name in SECURITY_NAMES} | {"ssl.certificate.location", "ssl.key.location"}


def client_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the TLS settings among a client's properties, by Java's names. The given names may be librdkafka's.

    Raise ValueError for a property that no client has, and OSError for a file that cannot be read.
    """
    given = {name: value for name, value in properties.items() if name.startswith(("ssl.", "enable.ssl."))}
    return security_of({**given, "security.protocol": "SSL"}).tls_settings()


def is_of_librdkafka(properties: Mapping[str, str]) -> bool:
    """Return True if the properties name stores in librdkafka's way."""
    return not _OF_LIBRDKAFKA.isdisjoint(properties)
