"""How a client protects its connections: `security.protocol` and the properties for TLS and SASL.

The names are those of Kafka's Java clients and of librdkafka (confluent-kafka).
Source: CommonClientConfigs, SslConfigs and SaslConfigs of Kafka 3.9; CONFIGURATION.md of librdkafka.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkapy.client.errors import BadSecuritySettings, UnsupportedByBroker
from kafkapy.client.properties import ClientProperties, is_security
from kafkapy.security.sasl.errors import MECHANISMS

if TYPE_CHECKING:
    import ssl

    from kafkapy.security.sasl.client import ClientMechanism

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_TLS = frozenset(
    """
    security.providers ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type
    """.split()  # noqa: SIM905
)
# librdkafka's; those that only have another name than Java's are in SECURITY_NAMES of the module properties.
_TLS_OF_LIBRDKAFKA = frozenset(
    {"ssl.certificate.location", "ssl.key.location", "enable.ssl.certificate.verification"},
)
_SASL = frozenset(
    """
    sasl.jaas.config sasl.login.callback.handler.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url
    """.split()  # noqa: SIM905
)
_SASL_OF_LIBRDKAFKA = frozenset(
    """
    enable.sasl.oauthbearer.unsecure.jwt sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.method sasl.oauthbearer.scope sasl.password
    sasl.username
    """.split()  # noqa: SIM905
)
_CLASSES = "it names a Java class, which this client cannot load"
_OPENSSL = "Python's TLS cannot set it"
_REFUSED = {
    "sasl.login.class": _CLASSES,
    "sasl.client.callback.handler.class": _CLASSES,
    "ssl.crl.location": "revocation lists are not supported",
    "ssl.curves.list": _OPENSSL,
    "ssl.sigalgs.list": _OPENSSL,
    "ssl.engine.id": _OPENSSL,
    "ssl.engine.location": _OPENSSL,
}
# Settings for Kerberos, for Windows, and settings that others have superseded.
_WITHOUT_EFFECT = frozenset(
    """
    sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    ssl.ca.certificate.stores ssl.protocol ssl.providers
    """.split()  # noqa: SIM905
)


class Security:
    """How to protect connections: the security protocol, and the properties for TLS and login.

    Equal objects protect connections in the same way. An object can be pickled. Its repr does not show the properties,
    some of which are secret.

    Args:
        protocol: One of PROTOCOLS.
        settings: The properties for TLS and login, by Java's names, and those of librdkafka that Java does not have.
    """

    def __init__(self, protocol: str = "PLAINTEXT", settings: Mapping[str, str] | None = None) -> None:
        self.protocol = protocol
        self._settings = dict(settings or {})
        self._context: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Security({self.protocol})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Security) and self._state() == other._state()

    def __hash__(self) -> int:
        return hash(self.protocol)

    def __reduce__(self) -> tuple[type[Security], tuple[str, Mapping[str, str]]]:
        return Security, self._state()

    def _state(self) -> tuple[str, Mapping[str, str]]:
        return self.protocol, self._settings

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def login(self) -> bool:
        """Whether connections begin with a SASL login."""
        return self.protocol.startswith("SASL")

    @property
    def names(self) -> Collection[str]:
        """The names of the properties for TLS and login."""
        return self._settings.keys()

    def refuse_for_07(self) -> None:
        """Raise UnsupportedByBroker, for a broker of Kafka 0.7, unless the protocol is PLAINTEXT."""
        if self.protocol != "PLAINTEXT":
            raise UnsupportedByBroker(f"Kafka 0.7 has neither TLS nor logins: security.protocol is {self.protocol}.")

    def context(self) -> ssl.SSLContext:
        """Return the context for TLS connections. The key and trust stores are read by the first call.

        Raise BadSecuritySettings if the properties or the stores cannot be used.
        """
        if self._context is None:
            import ssl

            from kafkapy.security.tls.context import client_context
            from kafkapy.security.tls.errors import StoreError

            try:
                context = client_context(self.tls_settings())
            except (StoreError, OSError) as error:
                raise BadSecuritySettings(f"TLS cannot be set up: {error}") from error
            if self._settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._context = context
        return self._context

    def mechanism(self, host: str) -> ClientMechanism:
        """Return a new login to the broker at `host`. Raise BadSecuritySettings if the properties cannot be used."""
        from kafkapy.security.sasl.client import client_mechanism

        try:
            return client_mechanism(self._settings, host)
        except (ValueError, OSError) as error:
            raise BadSecuritySettings(f"the login cannot be set up: {error}") from error

    def tls_settings(self) -> dict[str, str]:
        """Return the TLS properties by Java's names.

        librdkafka has the certificate and the key in two PEM files; Java has them in one, or in two properties.
        """
        settings = {name: value for name, value in self._settings.items() if name in _TLS}
        for name, java in (("certificate", "ssl.keystore.certificate.chain"), ("key", "ssl.keystore.key")):
            if path := self._settings.get(f"ssl.{name}.location"):
                settings[java] = Path(path).read_text(encoding="ascii", errors="replace")
                settings["ssl.keystore.type"] = "PEM"
        if settings.get("ssl.endpoint.identification.algorithm", "").lower() == "none":  # librdkafka's word
            settings["ssl.endpoint.identification.algorithm"] = ""
        return settings


PLAINTEXT = Security()


def security_of(given: Security | Mapping[str, Any] | None) -> Security:
    """Return `given`, or the Security that it describes: properties such as {"security.protocol": "SSL"}, or None.

    Raise ValueError for properties that are unknown, refused, missing or invalid.
    """
    if isinstance(given, Security):
        return given
    if not given:
        return PLAINTEXT
    read = ClientProperties(given)
    read.check_names(honoured={"security.protocol"}, refused={}, without_effect=(), client="TLS and login")
    return read_security(read)


def read_security(read: ClientProperties, no_effect: str = "") -> Security:
    """Return how to protect connections, from the properties `read`.

    Log a warning for each property for TLS or login that has no effect. `no_effect` replaces the words of `read` in
    warnings about the properties of a protocol that is not used. Raise the error of `read` for a property that is
    unknown, refused or invalid, and if properties are missing.
    """
    given = [name for name in read if is_security(name)]
    protocol = read.text("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise read.bad(
            f"{read.called('security.protocol')} is {read.text('security.protocol')!r}; it can be "
            f"{', '.join(PROTOCOLS)}"
        )
    security = Security(protocol, {name: read.text(name) for name in given})
    tls, sasl = _TLS | _TLS_OF_LIBRDKAFKA, _SASL | _SASL_OF_LIBRDKAFKA
    used: frozenset[str] = (tls if security.tls else frozenset()) | (sasl if security.login else frozenset())
    for name in given:
        if protocol != "PLAINTEXT" and name in _REFUSED and read.text(name):
            raise read.bad(f"{read.called(name)} cannot be set: {_REFUSED[name]}")
        if name not in tls | sasl | _REFUSED.keys() | _WITHOUT_EFFECT:
            near = difflib.get_close_matches(name, sorted(tls | sasl), n=1, cutoff=0.7)
            hint = f"; did you mean {read.called(near[0])}?" if near else ""
            raise read.bad(f"{read.called(name)} is not a property of Kafka's clients{hint}")
        if name not in used:
            read.warn(f"{read.called(name)} {no_effect or f'has no effect with the protocol {protocol}'}")
    if security.tls:
        _check_tls(read)
    if security.login:
        _check_login(read)
    return Security(protocol, {name: read.text(name) for name in given if name in used})


def _check_tls(read: ClientProperties) -> None:
    if ("ssl.certificate.location" in read) != ("ssl.key.location" in read):
        one, other = "ssl.certificate.location", "ssl.key.location"
        missing, there = (one, other) if one not in read else (other, one)
        raise read.bad(f"{read.called(there)} needs {read.called(missing)} too")
    if not read.flag("enable.ssl.certificate.verification", True):
        read.warn(
            f"{read.called('enable.ssl.certificate.verification')} is false: anybody can pretend to be the broker"
        )


def _check_login(read: ClientProperties) -> None:
    mechanism = read.text("sasl.mechanism")
    if mechanism.upper() not in MECHANISMS:
        is_it = f"is {mechanism!r}" if mechanism else "is missing, and Kafka's default GSSAPI is not supported"
        raise read.bad(f"{read.called('sasl.mechanism')} {is_it}; it can be {', '.join(MECHANISMS)}")
    missing = [read.called(name) for name in ("sasl.username", "sasl.password") if not read.text(name)]
    if missing and mechanism.upper() != "OAUTHBEARER" and "sasl.jaas.config" not in read:
        raise read.bad(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: {mechanism} needs "
            f"{read.called('sasl.jaas.config')}, or {read.called('sasl.username')} and {read.called('sasl.password')}"
        )
