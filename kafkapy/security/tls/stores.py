"""Key stores and trust stores of Kafka's settings: PEM files, PEM inline, and PKCS12 files.

A file is recognised by its content, because `ssl.keystore.type` is JKS unless it is set, and keytool has written PKCS12
under that name since Java 9. Which settings exclude each other is as in Kafka's DefaultSslEngineFactory.
"""

import os
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafkapy.security.tls import der, pem, pkcs12
from kafkapy.security.tls.certificates import Certificate
from kafkapy.security.tls.errors import NoPrivateKey, StoreError
from kafkapy.security.tls.settings import store_type, text

KEY_STORE, TRUST_STORE = "ssl.keystore.location", "ssl.truststore.location"
KEY_PASSWORD = "ssl.key.password"
INLINE_KEY, INLINE_CHAIN = "ssl.keystore.key", "ssl.keystore.certificate.chain"
INLINE_TRUSTED = "ssl.truststore.certificates"
_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_MAX_FILE = 16 << 20


@dataclass(frozen=True)
class KeyStore:
    """A private key with its certificate chain, the key's own certificate first.

    `setting` and `where` are for messages: the setting that the store came from, and its file, if it has one. `key` is
    PEM, and `password` decrypts it.
    """

    setting: str
    where: str
    chain: tuple[Certificate, ...]
    key: str
    password: str | None

    def __repr__(self) -> str:  # without the key
        return f"KeyStore({self.where}, {self.chain[0].subject})"


@dataclass(frozen=True)
class TrustStore:
    """Trusted certificates. `setting` and `where` are as in KeyStore."""

    setting: str
    where: str
    certificates: tuple[Certificate, ...]


def key_store(settings: Mapping[str, Any]) -> KeyStore | None:
    """Return the key store that the settings describe, None if they describe none.

    The key and its certificates are decoded, but not yet compared. Raises StoreError for settings that contradict each
    other, for a file that cannot be read, and for a wrong password of a PKCS12 file.
    """
    path, password = text(settings, KEY_STORE), text(settings, "ssl.keystore.password")
    key, chain = text(settings, INLINE_KEY), text(settings, INLINE_CHAIN)
    kind = store_type(settings, "ssl.keystore.type")
    if key is not None or chain is not None:
        return _inline_key_store(settings, key, chain)
    if path is None:
        if password is not None:
            raise StoreError("ssl.keystore.password", f"set, but {KEY_STORE} is not: set it or remove the password")
        return None
    data = _read(KEY_STORE, path)
    if pem.looks_like_pem(data):
        if password is not None:
            raise StoreError(
                "ssl.keystore.password", f"{path} is PEM and has no store password: use {KEY_PASSWORD} for its key"
            )
        return _key_store_of_pem(KEY_STORE, path, data.decode("utf-8", "replace"), text(settings, KEY_PASSWORD))
    _check_pkcs12(KEY_STORE, path, data, kind)
    if password is None:
        raise StoreError("ssl.keystore.password", f"not set, but {path} is PKCS12: set the password of the file")
    key_password = text(settings, KEY_PASSWORD)
    if key_password not in (None, password):
        raise StoreError(
            KEY_PASSWORD, f"differs from ssl.keystore.password, which the key in the PKCS12 file {path} has, too"
        )
    opened = pkcs12.opened(KEY_STORE, path, data, password)
    if opened.key is None or opened.certificate is None:
        raise NoPrivateKey(
            KEY_STORE, f"{path} has no private key with a certificate: is it a trust store? Use a key store"
        )
    encoded = (opened.certificate, *_ordered(opened.certificate, [one.encoded for one in opened.others]))
    return KeyStore(KEY_STORE, path, _certificates(KEY_STORE, path, encoded), opened.key, None)


def trust_store(settings: Mapping[str, Any]) -> TrustStore | None:
    """Return the trust store that the settings describe, None if they describe none. Raises StoreError as `key_store`
    does, and for a store without certificates."""
    path, password = text(settings, TRUST_STORE), text(settings, "ssl.truststore.password")
    inline = text(settings, INLINE_TRUSTED)
    kind = store_type(settings, "ssl.truststore.type")
    if inline is not None:
        _exclude(settings, INLINE_TRUSTED, TRUST_STORE, "ssl.truststore.password")
        return _trust_store_of_pem(INLINE_TRUSTED, "the value", inline)
    if path is None:
        if password is not None:
            raise StoreError("ssl.truststore.password", f"set, but {TRUST_STORE} is not: set it or remove the password")
        return None
    data = _read(TRUST_STORE, path)
    if pem.looks_like_pem(data):
        if password is not None:
            raise StoreError("ssl.truststore.password", f"{path} is PEM and has no password: remove this setting")
        return _trust_store_of_pem(TRUST_STORE, path, data.decode("utf-8", "replace"))
    _check_pkcs12(TRUST_STORE, path, data, kind)
    opened = pkcs12.opened(TRUST_STORE, path, data, password)
    return _checked_trust(TRUST_STORE, path, opened.trusted())


def files_of(settings: Mapping[str, Any]) -> list[str]:
    """Return the paths of the files that the settings name."""
    return [path for path in (text(settings, KEY_STORE), text(settings, TRUST_STORE)) if path is not None]


def _inline_key_store(settings: Mapping[str, Any], key: str | None, chain: str | None) -> KeyStore:
    if chain is None:
        raise StoreError(INLINE_CHAIN, f"not set, but {INLINE_KEY} is: set both")
    if key is None:
        raise StoreError(INLINE_KEY, f"not set, but {INLINE_CHAIN} is: set both")
    _exclude(settings, INLINE_KEY, KEY_STORE, "ssl.keystore.password")
    password = text(settings, KEY_PASSWORD)
    certificates = _certificates(INLINE_CHAIN, "the value", _pem_certificates(INLINE_CHAIN, "the value", chain))
    return KeyStore(INLINE_CHAIN, "the value", certificates, _pem_key(INLINE_KEY, "the value", key, password), password)


def _exclude(settings: Mapping[str, Any], inline: str, location: str, password: str) -> None:
    """Raise StoreError if a file or its password is set besides inline PEM."""
    for name in (location, password):
        if text(settings, name) is not None:
            hint = f" ({KEY_PASSWORD} is the password of the key)" if inline == INLINE_KEY and name == password else ""
            raise StoreError(name, f"set besides {inline}: remove one of the two{hint}")


def _key_store_of_pem(setting: str, where: str, content: str, password: str | None) -> KeyStore:
    certificates = _certificates(setting, where, _pem_certificates(setting, where, content))
    return KeyStore(setting, where, certificates, _pem_key(setting, where, content, password), password)


def _trust_store_of_pem(setting: str, where: str, content: str) -> TrustStore:
    return _checked_trust(setting, where, _pem_certificates(setting, where, content))


def _checked_trust(setting: str, where: str, encoded: list[bytes]) -> TrustStore:
    if not encoded:
        raise StoreError(setting, f"{where} has no trusted certificate: add one, or give the password of the file")
    return TrustStore(setting, where, _certificates(setting, where, encoded))


def _pem_blocks(setting: str, where: str, content: str) -> list[pem.Block]:
    try:
        return list(pem.blocks(content))
    except pem.PemError as error:
        raise StoreError(setting, f"{where} is not PEM: {error}") from None


def _pem_certificates(setting: str, where: str, content: str) -> list[bytes]:
    found = [block.content for block in _pem_blocks(setting, where, content) if block.label in pem.CERTIFICATE]
    if not found:
        raise StoreError(setting, f"{where} has no certificate: BEGIN CERTIFICATE is missing")
    return found


def _pem_key(setting: str, where: str, content: str, password: str | None) -> str:
    keys = [block for block in _pem_blocks(setting, where, content) if block.is_key]
    if not keys:
        raise NoPrivateKey(setting, f"{where} has no private key: add it to the certificates")
    if len(keys) > 1:
        raise StoreError(setting, f"{where} has {len(keys)} private keys: one is needed")
    if keys[0].is_encrypted and password is None:
        raise StoreError(KEY_PASSWORD, f"not set, but the private key in {where} of {setting} is encrypted")
    return pem.text_of(keys[0])


def _certificates(setting: str, where: str, encoded: "list[bytes] | tuple[bytes, ...]") -> tuple[Certificate, ...]:
    found = []
    for number, one in enumerate(encoded, 1):
        try:
            found.append(Certificate.parse(one))
        except der.DerError as error:
            raise StoreError(setting, f"certificate {number} in {where} is damaged: {error}") from None
    return tuple(found)


def _ordered(leaf: bytes, others: list[bytes]) -> list[bytes]:
    """Return the certificates of `others` that are above `leaf`, each followed by its issuer. PKCS12 files have no
    order."""
    try:
        left = {certificate.subject_der: certificate for certificate in map(Certificate.parse, others)}
        last, chain = Certificate.parse(leaf), []
        while not last.is_self_issued and last.issuer_der in left:
            last = left.pop(last.issuer_der)
            chain.append(last.der)
    except der.DerError:
        return others  # the caller parses them again, and names the damaged one
    return chain


def _read(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StoreError(setting, f"{path} is a pipe or a device: use a file, or a link to one")
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise StoreError(setting, f"{path} cannot be read: {error.strerror}") from None
    if not data:
        raise StoreError(setting, f"{path} is empty")
    if len(data) > _MAX_FILE:
        raise StoreError(setting, f"{path} is larger than {_MAX_FILE >> 20} MiB: it is no key or trust store")
    return data


def _without_waiting(path: str, flags: int) -> int:
    """Open a file as `open` does, but do not wait for a writer if it is a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _check_pkcs12(setting: str, path: str, data: bytes, kind: str) -> None:
    """Raise StoreError unless `data` may be PKCS12. For a JKS file the error has the command that converts it."""
    for magic, name in ((_JKS, "JKS"), (_JCEKS, "JCEKS")):
        if data.startswith(magic):
            raise StoreError(setting, f"{path} is a {name} file, which only Java reads: {converting(path, name)}")
    if data[0] != der.SEQUENCE:
        raise StoreError(setting, f"{path} is neither PEM nor PKCS12 (its type is given as {kind})")
    if _is_certificate(data):
        command = shlex.join(["openssl", "x509", "-inform", "DER", "-in", path, "-out", f"{_stem(path)}.pem"])
        raise StoreError(setting, f"{path} is a certificate in DER: convert it with {command}, and name that file")


def converting(path: str, kind: str = "JKS") -> str:
    """Return the command that converts a JKS file, and what to do then."""
    converted = f"{_stem(path)}.p12"
    command = ["keytool", "-importkeystore", "-srckeystore", path, "-srcstoretype", kind]
    command += ["-destkeystore", converted, "-deststoretype", "PKCS12"]
    return f"convert it with `{shlex.join(command)}`, and name {converted} instead"


def _stem(path: str) -> str:
    return os.path.splitext(path)[0]


def _is_certificate(data: bytes) -> bool:
    try:
        Certificate.parse(data)
    except der.DerError:
        return False
    return True
