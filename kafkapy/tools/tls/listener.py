"""Checks a TLS listener over the network: its certificates, its TLS versions, and whether clients accept it."""

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from kafkapy.security.tls.certificates import Certificate
from kafkapy.security.tls.ciphers import VERSIONS
from kafkapy.security.tls.context import Stores, client_context_of
from kafkapy.security.tls.der import DerError
from kafkapy.security.tls.errors import StoreError
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.tls.findings import Finding, described, of_chain, trust_needed

TIMEOUT_S = 10
# An ApiVersions request, version 0, which a broker answers before anybody has logged in.
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)
_FRAME = struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS
_CERTIFICATE_REQUIRED = (
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "SSLV3_ALERT_HANDSHAKE_FAILURE",
    "SSLV3_ALERT_BAD_CERTIFICATE",
)


def check_listener(host: str, port: int, settings: Mapping[str, Any], name: str | None, days: int) -> dict[str, Any]:
    """Return the document of the listener at host:port.

    `settings` are those of a client: its trust store, without which the system's is used, and its key store. `name` is
    the host name to verify if it is not `host`. Raises ToolError if nothing there speaks TLS.
    """
    try:
        stores = Stores.load(settings)
        verifying = client_context_of(settings, stores)
    except StoreError as error:
        raise ToolError(str(error)) from error
    versions: list[dict[str, Any]] = []
    chain: list[Certificate] = []
    for version, number in VERSIONS.items():
        context = client_context_of({**settings, "ssl.endpoint.identification.algorithm": ""}, stores)
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = context.maximum_version = number
        try:
            with _connected(host, port, context, name) as connection:
                versions.append({"version": version, "accepted": True, "cipher": (connection.cipher() or ("",))[0]})
                chain = _chain(connection) or chain
        except ssl.SSLError as error:
            versions.append({"version": version, "accepted": False, "reason": _reason(error)})
        except (ConnectionError, TimeoutError) as error:
            versions.append({"version": version, "accepted": False, "reason": str(error)})
    if not chain:
        reasons = "; ".join(f"{one['version']}: {one['reason']}" for one in versions if not one["accepted"])
        raise ToolError(f"{host}:{port} does not finish a TLS handshake ({reasons}): is it a listener without TLS?")
    findings = of_chain(chain, days)
    verified = _verified(host, port, verifying, name)
    if verified is not None:
        findings.append(Finding("error", verified))
    return {
        "target": f"{host}:{port}",
        "kind": "listener",
        "certificates": [described(one) for one in chain],
        "trustNeeded": trust_needed(chain),
        "protocols": versions,
        "findings": [finding._asdict() for finding in findings],
    }


def _verified(host: str, port: int, context: ssl.SSLContext, name: str | None) -> str | None:
    """Connect as a client. Return the reason if that fails, or None if the broker responds to a request."""
    try:
        with _connected(host, port, context, name) as connection:
            connection.sendall(_FRAME)
            if not connection.recv(4):
                return "the broker closes the connection instead of answering a request"
    except ssl.SSLCertVerificationError as error:
        return f"a client refuses the listener: {error.verify_message}"
    except (ssl.SSLEOFError, ConnectionError) as error:
        return (
            f"the connection ends without an answer ({_reason(error)}): does the listener refuse a client without a "
            "certificate that it trusts (ssl.keystore.location)?"
        )
    except ssl.SSLError as error:
        if error.reason in _CERTIFICATE_REQUIRED:
            return "the listener refuses a client without a certificate that it trusts (ssl.keystore.location)"
        return f"the listener refuses a client: {_reason(error)}"
    except OSError as error:
        return f"the connection ends: {error}"
    return None


def _connected(host: str, port: int, context: ssl.SSLContext, name: str | None) -> ssl.SSLSocket:
    try:
        plain = socket.create_connection((host, port), TIMEOUT_S)
    except OSError as error:
        raise ToolError(f"cannot connect to {host}:{port}: {error.strerror or error}") from error
    except UnicodeError:
        raise ToolError(f"{host!r} cannot be a host name") from None
    try:
        return context.wrap_socket(plain, server_hostname=name or host)
    except BaseException as error:
        plain.close()
        if isinstance(error, ValueError) and not isinstance(error, ssl.SSLError):
            raise ToolError(f"no certificate can have the host name {name or host!r}") from None
        raise


def _chain(connection: ssl.SSLSocket) -> list[Certificate]:
    """Return the certificates that the server has sent. Before Python 3.13, the method for this is not public."""
    public: Any = getattr(connection, "get_unverified_chain", None)
    if public is not None:
        encoded = public()
    else:
        import _ssl

        private: Any = connection._sslobj  # type: ignore[attr-defined]
        encoded = [one.public_bytes(_ssl.ENCODING_DER) for one in private.get_unverified_chain() or ()]
    try:
        return [Certificate.parse(bytes(one)) for one in encoded]
    except DerError as error:
        raise ToolError(f"the server sends a certificate that is damaged: {error}") from error


def _reason(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return (reason or str(error)).replace("_", " ").lower()
