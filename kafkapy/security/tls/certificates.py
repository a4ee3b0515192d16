"""X.509 certificates, as far as Kafka's settings, the log and `kafkapy tls check` look into them (RFC 5280)."""

import hashlib
import ipaddress
from dataclasses import dataclass
from datetime import datetime, timezone

from kafkapy.security.tls import der
from kafkapy.security.tls.der import DerError
from kafkapy.security.tls.names import java_name

_SUBJECT_ALTERNATIVE_NAME, _BASIC_CONSTRAINTS, _EXTENDED_KEY_USAGE = "2.5.29.17", "2.5.29.19", "2.5.29.37"
_ANY_USE, _SERVER_USE, _CLIENT_USE = "2.5.29.37.0", "1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"
_TEXT_NAMES = {0x81: "email", 0x82: "DNS", 0x86: "URI"}
_CURVES = {
    "1.2.840.10045.3.1.7": "P-256",
    "1.3.132.0.34": "P-384",
    "1.3.132.0.35": "P-521",
}
_RSA, _EC = "1.2.840.113549.1.1.1", "1.2.840.10045.2.1"
_OTHER_KEYS = {
    "1.2.840.113549.1.1.10": "RSA-PSS",
    "1.2.840.10040.4.1": "DSA",
    "1.3.101.112": "Ed25519",
    "1.3.101.113": "Ed448",
}
_DAY_S = 86400.0


@dataclass(frozen=True)
class Certificate:
    """A certificate. `subject` and `issuer` are names as Java writes them; the `…_der` fields are their encodings.

    `alternative_names` are (kind, name): kinds are DNS, IP, email, URI and, with the value in hexadecimal, others.
    `uses` are the object identifiers of the extended key usage, None if the certificate may be used for everything.
    """

    der: bytes
    subject: str
    issuer: str
    subject_der: bytes
    issuer_der: bytes
    not_before: datetime
    not_after: datetime
    key: str
    alternative_names: tuple[tuple[str, str], ...]
    is_authority: bool
    uses: frozenset[str] | None

    @staticmethod
    def parse(encoded: bytes) -> "Certificate":
        """Return the certificate in `encoded`, which is DER. Raises DerError for bytes that are no certificate."""
        _, _, issuer, validity, subject, key, *rest = _signed_fields(encoded)
        not_before, not_after = _validity(validity)
        extensions = _extensions(rest)
        return Certificate(
            der=encoded,
            subject=java_name(subject.encoded),
            issuer=java_name(issuer.encoded),
            subject_der=subject.encoded,
            issuer_der=issuer.encoded,
            not_before=not_before,
            not_after=not_after,
            key=_key(key),
            alternative_names=_alternative_names(extensions.get(_SUBJECT_ALTERNATIVE_NAME)),
            is_authority=_is_authority(extensions.get(_BASIC_CONSTRAINTS)),
            uses=_uses(extensions.get(_EXTENDED_KEY_USAGE)),
        )

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate in hexadecimal, in pairs with colons, as keytool and openssl print it."""
        return hashlib.sha256(self.der).digest().hex(":").upper()

    @property
    def is_self_issued(self) -> bool:
        """True if subject and issuer are the same, as in a root."""
        return self.subject_der == self.issuer_der

    def days_left(self, now: datetime | None = None) -> float:
        """Return the days until this certificate expires, negative if it has expired."""
        return (self.not_after - (now or datetime.now(timezone.utc))).total_seconds() / _DAY_S

    def may_be(self, *, server: bool) -> bool:
        """Return True if the extended key usage lets the certificate be a server's (or a client's)."""
        return self.uses is None or not self.uses.isdisjoint((_ANY_USE, _SERVER_USE if server else _CLIENT_USE))


def peer_name(encoded: bytes) -> str:
    """Return the subject of a certificate in DER (as `getpeercert(True)` gives it) as Java writes it, which is Kafka's
    principal before mapping rules. Raises DerError for bytes that are no certificate."""
    return java_name(_signed_fields(encoded)[4].encoded)


def has_expired(encoded: bytes) -> bool:
    """Return True if a certificate in DER is no longer valid. Raises DerError for bytes that are no certificate."""
    _, not_after = _validity(_signed_fields(encoded)[3])
    return not_after < datetime.now(timezone.utc)


def _signed_fields(encoded: bytes) -> list[der.Value]:
    """Return the fields of TBSCertificate from the serial number on: at least six, up to the public key.

    Raise DerError if there are fewer.
    """
    signed, _ = der.read(der.whole(encoded, der.SEQUENCE).content)
    fields = der.children(der.expected(signed, der.SEQUENCE))
    if fields and fields[0].tag == 0xA0:  # the version
        del fields[0]
    if len(fields) < 6:
        raise DerError("the certificate has too few fields")
    return fields


def _validity(value: der.Value) -> tuple[datetime, datetime]:
    """Return from when and until when a certificate is valid."""
    times = der.children(der.expected(value, der.SEQUENCE))
    if len(times) != 2:
        raise DerError("the validity is not two times")
    return _time(times[0]), _time(times[1])


def _time(value: der.Value) -> datetime:
    text = value.content.decode("ascii", "replace")
    if value.tag == der.UTC_TIME:  # two digits of the year: 1950 to 2049
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    elif value.tag != der.GENERALIZED_TIME:
        raise DerError("the validity is not two times")
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        raise DerError(f"{text!r} is not a time") from None


def _extensions(fields: list[der.Value]) -> dict[str, bytes]:
    found = {}
    for field in fields:
        if field.tag == 0xA3:
            for extension in der.children(der.whole(field.content, der.SEQUENCE)):
                parts = der.children(der.expected(extension, der.SEQUENCE))
                if len(parts) < 2:
                    raise DerError("an extension has no value")
                found[der.object_identifier(parts[0])] = der.expected(parts[-1], der.OCTET_STRING).content
    return found


def _alternative_names(extension: bytes | None) -> tuple[tuple[str, str], ...]:
    if extension is None:
        return ()
    return tuple(_alternative_name(name) for name in der.children(der.whole(extension, der.SEQUENCE)))


def _alternative_name(name: der.Value) -> tuple[str, str]:
    if name.tag in _TEXT_NAMES:
        return _TEXT_NAMES[name.tag], name.content.decode("ascii", "backslashreplace")
    if name.tag == 0x87 and len(name.content) in (4, 16):
        return "IP", str(ipaddress.ip_address(name.content))
    if name.tag == 0xA4:
        return "directory", java_name(name.content)
    return f"type {name.tag & 0x1F}", name.content.hex()


def _is_authority(extension: bytes | None) -> bool:
    if extension is None:
        return False
    parts = der.children(der.whole(extension, der.SEQUENCE))
    return bool(parts) and parts[0].tag == der.BOOLEAN and parts[0].content != b"\0"


def _uses(extension: bytes | None) -> frozenset[str] | None:
    if extension is None:
        return None
    return frozenset(map(der.object_identifier, der.children(der.whole(extension, der.SEQUENCE))))


def _key(info: der.Value) -> str:
    """Return the kind of a public key for people, such as "RSA 2048" or "EC P-256"."""
    parts = der.children(der.expected(info, der.SEQUENCE))
    if len(parts) != 2:
        raise DerError("the public key is not a kind with bits")
    algorithm = der.children(der.expected(parts[0], der.SEQUENCE))
    if not algorithm:
        raise DerError("the public key has no kind")
    kind = der.object_identifier(algorithm[0])
    if kind == _RSA:
        numbers = der.children(der.whole(der.expected(parts[1], der.BIT_STRING).content[1:], der.SEQUENCE))
        return f"RSA {int.from_bytes(numbers[0].content, 'big').bit_length() if numbers else 0}"
    if kind == _EC and len(algorithm) > 1 and algorithm[1].tag == der.OBJECT_IDENTIFIER:
        curve = der.object_identifier(algorithm[1])
        return f"EC {_CURVES.get(curve, curve)}"
    return _OTHER_KEYS.get(kind, kind)
