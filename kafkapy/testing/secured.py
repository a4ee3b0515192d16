"""Certificates and settings for brokers with TLS and users, for the duration of a test."""

from __future__ import annotations

import ipaddress
import re
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkapy.extras import how_to_install

if TYPE_CHECKING:
    from cryptography import x509

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BROKER_USER = "kafkapy-broker"  # the user as which brokers log in to each other

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")  # an option's name that needs no quotes in a JAAS line
_HOSTS = ("localhost", "127.0.0.1", "::1")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Secured:
    """The security of a test's brokers: their settings, and the properties for clients.

    Attributes:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        users: the passwords by user name.
        ca_file: a PEM file with the authority of the brokers' certificate, None without TLS.
    """

    def __init__(self, *, tls: bool, users: Mapping[str, str] | None) -> None:
        """Make the certificates, in a directory that is removed with this object. Raise ImportError for `tls` if
        cryptography is not installed, and ValueError if `users` is empty or has BROKER_USER."""
        if users is not None and not users:
            raise ValueError("users is empty; name at least one user, as in users={'alice': 'secret'}")
        if users is not None and BROKER_USER in users:
            raise ValueError(f"the user {BROKER_USER} is the broker itself; choose another name")
        self.protocol = ("SASL_" if users else "") + ("SSL" if tls else "PLAINTEXT")
        self.users = dict(users or {})
        self.ca_file: Path | None = None
        self._keystore: Path | None = None
        if tls:
            directory = Path(tempfile.mkdtemp(prefix="kafkapy-tls-"))
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
            self.ca_file, self._keystore = directory / "ca.pem", directory / "keystore.pem"
            _make_certificates(self.ca_file, self._keystore)
        self._password = secrets.token_urlsafe()

    def settings(self) -> dict[str, Any]:
        """Return the settings of a broker."""
        found: dict[str, Any] = {
            "listeners": f"{self.protocol}://127.0.0.1:0",
            "security.inter.broker.protocol": self.protocol,
        }
        if self.ca_file is not None:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._keystore),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca_file),
            }
        if self.users:
            prefix = f"listener.name.{self.protocol.lower()}"
            login = {"username": BROKER_USER, "password": self._password}
            known = {**self.users, BROKER_USER: self._password}
            plain = login | {f"user_{name}": password for name, password in known.items()}
            found |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                f"{prefix}.plain.sasl.jaas.config": _jaas(_PLAIN, plain),
                f"{prefix}.scram-sha-256.sasl.jaas.config": _jaas(_SCRAM, {}),
                f"{prefix}.scram-sha-512.sasl.jaas.config": _jaas(_SCRAM, {}),
            }
        return found

    def add_users(self, bootstrap_servers: str) -> None:
        """Give the users credentials for SCRAM, through a broker. Those for PLAIN are in the settings."""
        if self.users:
            from kafkapy.client.administration.user_admin import UserAdmin

            with UserAdmin(bootstrap_servers, security=self.client_properties()) as admin:
                for user, password in self.users.items():
                    admin.set_password(user, password)

    def client_properties(self, user: str | None = None, mechanism: str = "PLAIN") -> dict[str, str]:
        """Return the properties with which a client connects, by the names of Java's clients. `user` is one of the
        users, by default the first."""
        found = {"security.protocol": self.protocol}
        if self.ca_file is not None:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file)}
        if self.users:
            name = next(iter(self.users)) if user is None else user
            module = _PLAIN if mechanism == "PLAIN" else _SCRAM
            jaas = _jaas(module, {"username": name, "password": self.users[name]})
            found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
        return found


def _jaas(module: str, options: Mapping[str, str]) -> str:
    words = [
        (name if _WORD.fullmatch(name) else f'"{_escaped(name)}"') + f'="{_escaped(value)}"'
        for name, value in options.items()
    ]
    return " ".join([module, "required", *words]) + ";"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def _make_certificates(ca_file: Path, keystore: Path) -> None:
    """Write the certificate of a new authority, and a key store with a certificate for the local host, as PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ModuleNotFoundError as error:
        message = f"tls=True needs the library cryptography: {how_to_install('security')}"
        raise ImportError(message, name=error.name) from None

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def signed(subject: str, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType) -> x509.Certificate:
        now = datetime.now(timezone.utc)
        builder = x509.CertificateBuilder(
            issuer_name=name("kafkapy test authority"),
            subject_name=name(subject),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + timedelta(days=7),
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(authority_key, hashes.SHA256())

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = signed("kafkapy test authority", authority_key, x509.BasicConstraints(ca=True, path_length=0))
    names: list[x509.GeneralName] = [x509.DNSName(_HOSTS[0])]
    names += [x509.IPAddress(ipaddress.ip_address(host)) for host in _HOSTS[1:]]
    certificate = signed("kafkapy test broker", key, x509.SubjectAlternativeName(names))
    ca_file.write_bytes(authority.public_bytes(Encoding.PEM))
    keystore.touch(mode=0o600)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    keystore.write_bytes(private + certificate.public_bytes(Encoding.PEM))
