"""Certificates for tests: authorities, servers and clients, with their keys as PEM and PKCS12.

    authority = Authority("Test CA")
    server = authority.issue("CN=broker,O=Acme", names=["localhost", "127.0.0.1"])
    settings = server.settings(tmp_path, trusted=[authority])  # ssl.keystore.* and ssl.truststore.*, PEM files

Keys are EC (P-256) unless `kind` says rsa: an EC key is made at once, an RSA key takes 0.1 s.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
Kind = Literal["ec", "rsa", "ed25519"]
DAY = timedelta(days=1)


def new_key(kind: Kind = "ec") -> PrivateKey:
    """Return a new private key: EC on P-256, RSA of 2048 bits, or Ed25519."""
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1())


def name_of(subject: str | x509.Name) -> x509.Name:
    """Return a distinguished name. Its text is RFC 4514, as in "CN=broker,O=Acme"; text without "=" is the CN."""
    if isinstance(subject, x509.Name):
        return subject
    return x509.Name.from_rfc4514_string(subject if "=" in subject else f"CN={subject}")


def alternative_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    """Return the extension for DNS names and IP addresses."""
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return x509.SubjectAlternativeName(found)


@dataclass(frozen=True)
class Issued:
    """A certificate with its key and the intermediate certificates above it, without the root."""

    certificate: x509.Certificate
    key: PrivateKey
    above: Sequence[x509.Certificate] = ()

    @property
    def chain(self) -> str:
        """The certificate and the intermediate ones above it, in PEM."""
        return "".join(pem(one) for one in (self.certificate, *self.above))

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str | None = None) -> str:
        """Return the key in PEM as PKCS#8, encrypted if there is a password."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)).decode()

    def old_key_pem(self) -> str:
        """Return the key in PEM in OpenSSL's older form: BEGIN RSA PRIVATE KEY or BEGIN EC PRIVATE KEY."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()

    def pem(self, password: str | None = None) -> str:
        """Return a key store in PEM: the key, then the chain."""
        return self.key_pem(password) + self.chain

    def pkcs12(self, password: str, alias: str = "kafka") -> bytes:
        """Return a key store in PKCS12, as keytool or `openssl pkcs12` would make it."""
        return pkcs12.serialize_key_and_certificates(
            alias.encode(), self.key, self.certificate, list(self.above), _encryption(password)
        )

    def settings(
        self, directory: Path, *, trusted: Sequence["Issued"] = (), password: str | None = None, name: str = "keystore"
    ) -> dict[str, str]:
        """Write PEM files to `directory` and return the settings for them, with Kafka's names. `password` encrypts the
        key; without `trusted` there is no trust store."""
        directory.mkdir(parents=True, exist_ok=True)
        keystore = directory / f"{name}.pem"
        keystore.write_text(self.pem(password))
        result = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
        if password is not None:
            result["ssl.key.password"] = password
        return result | (trust_settings(directory, trusted) if trusted else {})

    def java_settings(self, directory: Path, *, trusted: Sequence["Issued"] = (), password: str) -> dict[str, str]:
        """Write PKCS12 files to `directory` and return the settings for them. Java's clients take them, too."""
        directory.mkdir(parents=True, exist_ok=True)
        keystore = directory / "keystore.p12"
        keystore.write_bytes(self.pkcs12(password))
        result = {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(keystore),
            "ssl.keystore.password": password,
            "ssl.key.password": password,
        }
        return result | (java_trust_settings(directory, trusted, password) if trusted else {})


@dataclass(frozen=True)
class Authority(Issued):
    """A certificate that signs others."""

    @staticmethod
    def root(subject: str | x509.Name = "Test CA", *, kind: Kind = "ec") -> "Authority":
        """Return a new authority that has signed itself."""
        key = new_key(kind)
        return Authority(_signed(name_of(subject), key, name_of(subject), key, authority=True), key)

    def intermediate(self, subject: str | x509.Name = "Test intermediate CA", *, kind: Kind = "ec") -> "Authority":
        """Return an authority below this one."""
        key = new_key(kind)
        made = _signed(name_of(subject), key, self.certificate.subject, self.key, authority=True)
        return Authority(made, key, self._above_issued)

    def issue(
        self,
        subject: str | x509.Name,
        *,
        names: Sequence[str] = (),
        kind: Kind = "ec",
        key: PrivateKey | None = None,
        since: timedelta = -DAY,
        until: timedelta = 365 * DAY,
        use: Literal["server", "client"] | None = None,
    ) -> Issued:
        """Return a new certificate that this authority has signed.

        `names` are DNS names and IP addresses for the SAN extension, without which a client can't verify the host.
        `since` and `until` are the limits of its validity, counted from now. `use` limits what it may be used for.
        """
        key = key or new_key(kind)
        made = _signed(
            name_of(subject),
            key,
            self.certificate.subject,
            self.key,
            names=names,
            since=since,
            until=until,
            use=use,
        )
        return Issued(made, key, self._above_issued)

    def expired(self, subject: str = "expired", *, names: Sequence[str] = ("localhost", "127.0.0.1")) -> Issued:
        """Return a certificate that expired a day ago."""
        return self.issue(subject, names=names, since=-10 * DAY, until=-DAY)

    @property
    def _above_issued(self) -> tuple[x509.Certificate, ...]:
        """The intermediate certificates that a certificate of this authority brings along."""
        is_root = self.certificate.subject == self.certificate.issuer
        return () if is_root else (self.certificate, *self.above)


@dataclass(frozen=True)
class Pki:
    """What most tests need: an authority, a broker for localhost and 127.0.0.1, a client, and a stranger."""

    authority: Authority = field(default_factory=Authority.root)

    @cached_property
    def server(self) -> Issued:
        return self.authority.issue("CN=broker,OU=Test,O=Acme", names=["localhost", "127.0.0.1", "::1"])

    @cached_property
    def client(self) -> Issued:
        return self.authority.issue("CN=alice,OU=Test,O=Acme")

    @cached_property
    def stranger(self) -> Issued:
        """A certificate for localhost and 127.0.0.1 of an authority that no trust store has."""
        return Authority.root("Foreign CA").issue("CN=mallory", names=["localhost", "127.0.0.1"])


def self_signed(subject: str | x509.Name, *, names: Sequence[str] = (), kind: Kind = "ec") -> Issued:
    """Return a certificate that has signed itself and is no authority."""
    key = new_key(kind)
    return Issued(_signed(name_of(subject), key, name_of(subject), key, names=names), key)


def pem(certificate: x509.Certificate) -> str:
    """Return a certificate in PEM."""
    return certificate.public_bytes(Encoding.PEM).decode()


def trust_settings(directory: Path, trusted: Sequence[Issued]) -> dict[str, str]:
    """Write a trust store in PEM and return the settings for it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "truststore.pem"
    path.write_text("".join(pem(one.certificate) for one in trusted))
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}


def java_trust_settings(directory: Path, trusted: Sequence[Issued], password: str) -> dict[str, str]:
    """Write a trust store in PKCS12, with the attribute by which Java knows trusted certificates, and return the
    settings for it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "truststore.p12"
    entries = [
        pkcs12.PKCS12Certificate(one.certificate, f"trusted-{number}".encode()) for number, one in enumerate(trusted)
    ]
    path.write_bytes(pkcs12.serialize_java_truststore(entries, _encryption(password)))
    return {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(path),
        "ssl.truststore.password": password,
    }


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


def _signed(
    subject: x509.Name,
    key: PrivateKey,
    issuer: x509.Name,
    issuer_key: PrivateKey,
    *,
    authority: bool = False,
    names: Sequence[str] = (),
    since: timedelta = -DAY,
    until: timedelta = 365 * DAY,
    use: Literal["server", "client"] | None = None,
) -> x509.Certificate:
    now = datetime.now(timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(alternative_names(names), critical=False)
    if use is not None:
        oid = ExtendedKeyUsageOID.SERVER_AUTH if use == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([oid]), critical=False)
    algorithm = None if isinstance(issuer_key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(issuer_key, algorithm)
