"""TLS versions and cipher suites: Java's names, which are IANA's, and those of OpenSSL."""

import re
import ssl
from collections.abc import Mapping
from ssl import TLSVersion
from typing import Any, NamedTuple

from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.settings import text, words

PROTOCOLS, SUITES = "ssl.enabled.protocols", "ssl.cipher.suites"
VERSIONS = {"TLSv1.2": TLSVersion.TLSv1_2, "TLSv1.3": TLSVersion.TLSv1_3}
_OLD_VERSIONS = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
# What OpenSSL offers in TLS 1.3. Python (up to 3.14) cannot choose among them.
SUITES_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
# Suites of TLS 1.2 that both Java and OpenSSL have. Left out: without encryption or authentication, DSS, RC4, 3DES.
SUITES_1_2 = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}
_BY_OPENSSL_NAME = {openssl: java for java, openssl in SUITES_1_2.items()}


class Offer(NamedTuple):
    """The TLS versions and cipher suites that a context offers: the range of versions, and the suites of TLS 1.2 by
    OpenSSL's names (None: OpenSSL's default)."""

    minimum: TLSVersion
    maximum: TLSVersion
    suites: list[str] | None

    def apply(self, context: ssl.SSLContext) -> None:
        """Set versions and suites of `context`. Raises StoreError for suites that this OpenSSL does not have."""
        context.minimum_version, context.maximum_version = self.minimum, self.maximum
        if self.suites is None:
            return
        try:
            context.set_ciphers(":".join(self.suites))
        except ssl.SSLError:
            raise StoreError(SUITES, f"{ssl.OPENSSL_VERSION} has none of {', '.join(self.suites)}") from None
        missing = set(self.suites) - {cipher["name"] for cipher in context.get_ciphers()}
        if missing:
            raise StoreError(SUITES, f"{ssl.OPENSSL_VERSION} does not have {', '.join(sorted(missing))}")


def offer(settings: Mapping[str, Any]) -> Offer:
    """Return the Offer that `ssl.protocol`, `ssl.enabled.protocols` and `ssl.cipher.suites` ask for.

    Without them: TLS 1.2 and 1.3 with the suites of Python's default. Raises StoreError if exactly these settings are
    not possible, so that nothing is offered that they exclude.
    """
    protocol = text(settings, "ssl.protocol")
    if protocol not in (None, "TLS", *VERSIONS):
        raise StoreError("ssl.protocol", f"{protocol!r} is not supported: use TLSv1.3, TLSv1.2 or TLS")
    versions = _versions(settings)
    suites = [_known_suite(name) for name in _suite_names(settings)]
    if not suites:
        return Offer(min(versions), max(versions), None)
    of_1_2 = [SUITES_1_2[name] for name in suites if name in SUITES_1_2]
    of_1_3 = {name for name in suites if name in SUITES_1_3}
    # A list without suites of a version excludes the version, as in Java.
    usable = {version for version in versions if (of_1_3 if version == TLSVersion.TLSv1_3 else of_1_2)}
    if not usable:
        raise StoreError(SUITES, f"no suite in it belongs to {' or '.join(_names(versions))}, which {PROTOCOLS} allows")
    if TLSVersion.TLSv1_3 in usable and len(of_1_3) < len(SUITES_1_3):
        raise StoreError(
            SUITES,
            f"Python cannot choose among the suites of TLS 1.3: name all of {', '.join(SUITES_1_3)}, or none of them "
            "for TLS 1.2 only",
        )
    return Offer(min(usable), max(usable), list(dict.fromkeys(of_1_2)) if TLSVersion.TLSv1_2 in usable else None)


def java_name(suite: str) -> str:
    """Return Java's name of a cipher suite that has this name in OpenSSL. In TLS 1.3 both are the same."""
    return _BY_OPENSSL_NAME.get(suite, suite)


def _versions(settings: Mapping[str, Any]) -> set[TLSVersion]:
    names = words(settings, PROTOCOLS) or list(VERSIONS)
    for name in names:
        if name in _OLD_VERSIONS:
            raise StoreError(
                PROTOCOLS, f"{name} is not secure and not supported: remove it, TLSv1.2 and TLSv1.3 remain"
            )
        if name not in VERSIONS:
            raise StoreError(PROTOCOLS, f"{name!r} is no TLS version: use TLSv1.2 and TLSv1.3")
    return {VERSIONS[name] for name in names}


def _names(versions: set[TLSVersion]) -> list[str]:
    return [name for name, version in VERSIONS.items() if version in versions]


def _suite_names(settings: Mapping[str, Any]) -> list[str]:
    """Return the names in `ssl.cipher.suites`. librdkafka's lists have colons."""
    return [name for word in words(settings, SUITES) for name in re.split(r"[:\s]+", word) if name]


def _known_suite(name: str) -> str:
    """Return Java's name of a suite that is given by Java's or OpenSSL's name."""
    name = java_name(name)
    if name not in SUITES_1_2 and name not in SUITES_1_3:
        raise StoreError(
            SUITES,
            f"{name!r} is not supported: use names such as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 "
            "(docs/security.md lists them)",
        )
    return name
