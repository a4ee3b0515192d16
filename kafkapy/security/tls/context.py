"""TLS contexts of Python's `ssl` from Kafka's settings, for servers and for clients."""

import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from kafkapy.security.tls import pem
from kafkapy.security.tls.ciphers import SUITES, offer
from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.settings import check_built_in, text
from kafkapy.security.tls.stores import (
    KEY_PASSWORD,
    KEY_STORE,
    TRUST_STORE,
    KeyStore,
    TrustStore,
    key_store,
    trust_store,
)

log = logging.getLogger("kafkapy.security.tls")
CLIENT_AUTH = "ssl.client.auth"
ENDPOINT_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
_VERIFY_MODES = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
# The group ffdhe2048 of RFC 7919. Without parameters OpenSSL cannot use the suites with DHE.
_DH_PARAMETERS = """-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""


@dataclass(frozen=True)
class Stores:
    """The loaded stores of some settings."""

    keys: KeyStore | None
    trust: TrustStore | None

    @staticmethod
    def load(settings: Mapping[str, Any]) -> "Stores":
        """Read the files and return the stores. Raises StoreError if a store cannot be used."""
        return Stores(key_store(settings), trust_store(settings))


def server_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the context of a listener. `settings` have Kafka's names without a listener's prefix.

    Sessions can be resumed by tickets that this context made. Renegotiation is refused. Raises StoreError, which names
    the setting, for a store or a value that cannot be used.
    """
    return server_context_of(settings, Stores.load(settings))


def client_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the context of a client, or of a broker that connects to another one.

    The server's certificate is always verified, with the system's authorities if there is no trust store. Its name is
    verified, too (`check_hostname`), unless `ssl.endpoint.identification.algorithm` is empty: the caller passes the
    host that it dialled as `server_hostname`. Raises StoreError as `server_context` does.
    """
    return client_context_of(settings, Stores.load(settings))


def server_context_of(settings: Mapping[str, Any], stores: Stores) -> ssl.SSLContext:
    """Return the context of a listener for stores that are already loaded; see `server_context`."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    if stores.keys is None:
        raise StoreError(KEY_STORE, "not set: a TLS listener needs a private key with a certificate")
    auth = (text(settings, CLIENT_AUTH) or "none").lower()
    if auth not in _VERIFY_MODES:
        raise StoreError(CLIENT_AUTH, f"{auth!r} is none of {', '.join(_VERIFY_MODES)}")
    _use(context, stores.keys if auth == "none" else _with_issuers(stores.keys, stores.trust))
    if any(cipher["name"].startswith("DHE-") for cipher in context.get_ciphers()) and text(settings, SUITES):
        with _in_memory(_DH_PARAMETERS) as path:
            context.load_dh_params(path)
    context.verify_mode = _VERIFY_MODES[auth]
    if auth != "none":
        if stores.trust is None:
            log.warning(
                "%s is %s, but %s is not set: clients with a certificate of any authority that this system trusts can "
                "connect, as with Apache Kafka",
                CLIENT_AUTH,
                auth,
                TRUST_STORE,
            )
        _trust(context, stores.trust, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context_of(settings: Mapping[str, Any], stores: Stores) -> ssl.SSLContext:
    """Return the context of a client for stores that are already loaded; see `client_context`."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    given = settings.get(ENDPOINT_IDENTIFICATION)
    algorithm = "https" if given is None else str(given).strip().lower()
    if algorithm not in ("https", "", "none"):  # librdkafka says none
        raise StoreError(ENDPOINT_IDENTIFICATION, f"{algorithm!r} is not supported: use https, or nothing")
    context.check_hostname = algorithm == "https"
    context.verify_mode = ssl.CERT_REQUIRED
    if stores.keys is not None:
        _use(context, _with_issuers(stores.keys, stores.trust))
    _trust(context, stores.trust, ssl.Purpose.SERVER_AUTH)
    return context


def _with_issuers(keys: KeyStore, trust: TrustStore | None) -> KeyStore:
    """Return the key store. If its chain is only one certificate, the issuers that the trust store has come after it.

    OpenSSL would look for them, and verify the chain, in every handshake: a quarter more CPU time with an EC key.
    """
    if len(keys.chain) > 1 or trust is None:
        return keys
    issuers = {one.subject_der: one for one in trust.certificates}
    chain = [keys.chain[0]]
    while not chain[-1].is_self_issued and chain[-1].issuer_der in issuers:
        chain.append(issuers.pop(chain[-1].issuer_der))
    if len(chain) > 2 and chain[-1].is_self_issued:
        del chain[-1]  # the other side has the root
    return replace(keys, chain=tuple(chain))


def _context(protocol: int, settings: Mapping[str, Any]) -> ssl.SSLContext:
    check_built_in(settings)
    context = ssl.SSLContext(protocol)
    offer(settings).apply(context)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # A Java trust store trusts whatever it holds, also an intermediate authority or a single certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _trust(context: ssl.SSLContext, trust: TrustStore | None, purpose: ssl.Purpose) -> None:
    if trust is None:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cadata=b"".join(one.der for one in trust.certificates))
    except ssl.SSLError as error:
        raise StoreError(trust.setting, f"a certificate in {trust.where} cannot be used: {_reason(error)}") from None
    for one in trust.certificates:
        if one.days_left() < 0:
            log.warning("%s: %s in %s expired on %s", trust.setting, one.subject, trust.where, f"{one.not_after:%F}")


def _use(context: ssl.SSLContext, keys: KeyStore) -> None:
    """Give the key and its chain to `context`. Raises StoreError if they do not belong together, have expired, or are
    refused by OpenSSL."""
    leaf = keys.chain[0]
    problem = _load(context, keys)
    if problem is not None:
        raise problem
    if leaf.days_left() < 0:
        raise StoreError(
            keys.setting, f"the certificate of {leaf.subject} in {keys.where} expired on {leaf.not_after:%F}: renew it"
        )
    if leaf.not_before > datetime.now(timezone.utc):
        log.warning(
            "%s: the certificate of %s in %s is valid only from %s on",
            keys.setting,
            leaf.subject,
            keys.where,
            f"{leaf.not_before:%F %T} UTC",
        )


def _load(context: ssl.SSLContext, keys: KeyStore) -> StoreError | None:
    """Load key and chain into `context`. Return the error if OpenSSL refuses them."""
    where, chain = keys.where, "".join(pem.certificate(one.der) for one in keys.chain)
    try:
        with _in_memory(chain) as chain_path, _in_memory(keys.key) as key_path:
            context.load_cert_chain(chain_path, key_path, keys.password or "")
    except ValueError:
        return StoreError(KEY_PASSWORD, "longer than 1024 bytes, which OpenSSL does not take")
    except ssl.SSLError as error:
        # OpenSSL does not say more about a key than that it cannot read it. The certificates were parsed before.
        if error.reason is None or error.reason == "BAD_DECRYPT":
            if "ENCRYPTED" in keys.key:
                return StoreError(KEY_PASSWORD, f"wrong for the private key in {where}, or the key is damaged")
            return StoreError(keys.setting, f"the private key in {where} is damaged, or of an unknown kind")
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
            return StoreError(keys.setting, _mismatch(keys))
        return StoreError(keys.setting, f"OpenSSL refuses the certificate in {where}: {_reason(error)}")
    return None


def _mismatch(keys: KeyStore) -> str:
    """Return the message, with what to do, for a key that does not belong to the first certificate."""
    for one in keys.chain[1:]:
        moved = KeyStore(keys.setting, keys.where, (one,), keys.key, keys.password)
        if _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), moved) is None:
            return f"the certificate of the private key must come first in {keys.where}: move {one.subject} up"
    first = keys.chain[0]
    return (
        f"the private key in {keys.where} does not belong to the certificate of {first.subject}: use the key that the "
        "certificate was requested with"
    )


_REASONS = {
    "EE_KEY_TOO_SMALL": "its key is too short: use RSA with 2048 bits or more, or EC",
    "CA_KEY_TOO_SMALL": "the key of an authority above it is too short: RSA needs 2048 bits",
    "CA_MD_TOO_WEAK": "an authority signed it with a hash that is too weak, such as SHA-1",
}


def _reason(error: ssl.SSLError) -> str:
    return _REASONS.get(error.reason or "", (error.reason or str(error)).replace("_", " ").lower())


@contextmanager
def _in_memory(content: str) -> Iterator[str]:
    """Yield the path of a file in memory with this content. Python's `ssl` takes keys from files only, and a key must
    not be in a file on disk."""
    file = os.memfd_create("kafkapy-tls", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(file), "wb") as writer:
            writer.write(content.encode())
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)
