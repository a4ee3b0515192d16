"""Checks key stores, trust stores, and the stores that a properties file names."""

import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkapy.security.tls import pem
from kafkapy.security.tls.context import Stores, client_context_of, server_context_of
from kafkapy.security.tls.errors import NoPrivateKey, StoreError
from kafkapy.security.tls.stores import KEY_STORE, TRUST_STORE, KeyStore, TrustStore, key_store, trust_store
from kafkapy.security.tls.trial import TrialError, handshake
from kafkapy.server.config.properties import parse_properties
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.tls.client_settings import client_settings, is_of_librdkafka
from kafkapy.tools.tls.findings import Finding, described, of_chain, trust_needed, validity

Document = dict[str, Any]
_LISTENER = re.compile(r"listener\.name\.([^.]+)\.(ssl\..+)")
_PROPERTY = re.compile(rb"^[ \t]*(?:ssl|listener\.name\.[^.=]+\.ssl)\.[a-z.]+[ \t]*[=:]", re.MULTILINE)


def check_file(path: Path, passwords: Mapping[str, str], days: int) -> list[Document]:
    """Return a document for each store in the file, or for each that a properties file names.

    `passwords` are settings with the passwords of the store. Raises ToolError for a file that cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe or a device might never end
            raise ToolError(f"{path} is not a regular file")
        data = path.read_bytes()
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error
    if not pem.looks_like_pem(data) and _PROPERTY.search(data):
        return check_settings(str(path), parse_properties(data.decode("utf-8", "replace")), days)
    names = ("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password")
    given = {name: passwords[name] for name in names if passwords.get(name)}
    store_password = given.get("ssl.keystore.password") or given.get("ssl.truststore.password")
    try:
        return [_checked_keys(str(path), _key_settings(str(path), given, store_password, data), {}, days, server=True)]
    except NoPrivateKey:
        settings = {TRUST_STORE: str(path)}
        if store_password and not pem.looks_like_pem(data):
            settings["ssl.truststore.password"] = store_password
        return [_checked_trust(str(path), _loaded(trust_store, settings), days)]


def _key_settings(path: str, given: Mapping[str, str], password: str | None, data: bytes) -> dict[str, str]:
    settings = {KEY_STORE: path}
    if pem.looks_like_pem(data):
        if "ssl.key.password" in given:
            settings["ssl.key.password"] = given["ssl.key.password"]
    elif password is not None:
        settings["ssl.keystore.password"] = password
    return settings


def check_settings(name: str, properties: Mapping[str, str], days: int) -> list[Document]:
    """Return the documents for the stores that the properties of a broker or a client name, also for each listener that
    has its own."""
    general = {key: value for key, value in properties.items() if key.startswith("ssl.")}
    if is_of_librdkafka(properties):
        try:
            general = client_settings(properties)
        except (OSError, ValueError) as error:
            raise ToolError(f"{name}: {error}") from error
    groups = {"": general}
    for key, value in properties.items():
        if found := _LISTENER.fullmatch(key):
            groups.setdefault(found[1], dict(general))[found[2]] = value
    broker = bool({"log.dirs", "log.dir", "listeners", "broker.id"} & set(properties)) or len(groups) > 1
    documents = []
    for listener, settings in groups.items():
        target = f"{name}, listener {listener}" if listener else name
        if not listener and len(groups) > 1 and not (settings.get(KEY_STORE) or settings.get("ssl.keystore.key")):
            continue  # only defaults for the listeners
        try:
            documents += _checked_group(target, settings, days, server=broker)
        except ToolError as error:
            documents.append(_document(target, "settings", [], [Finding("error", str(error))]))
    if not documents:
        raise ToolError(f"{name} names no key store and no trust store")
    return documents


def _checked_group(target: str, settings: Mapping[str, str], days: int, *, server: bool) -> list[Document]:
    stores = Stores(_loaded(key_store, settings), _loaded(trust_store, settings))
    documents = []
    if stores.keys is not None:
        documents.append(_checked_keys(target, settings, settings, days, server=server))
    if stores.trust is not None:
        documents.append(_checked_trust(target, stores.trust, days))
    return documents


def _checked_keys(
    target: str, settings: Mapping[str, str], more: Mapping[str, str], days: int, *, server: bool
) -> Document:
    """Return the document of a key store. Raises NoPrivateKey if it has no private key, ToolError if it is invalid."""
    keys: KeyStore = _loaded(key_store, settings)
    findings = of_chain(keys.chain, days, server=server)
    stores = Stores(keys, _loaded(trust_store, more))
    try:
        context = server_context_of(more, stores) if server else client_context_of(more, stores)
        if server and stores.trust is not None:
            client = client_context_of({**more, "ssl.endpoint.identification.algorithm": ""}, stores)
            handshake(context, client)
    except StoreError as error:
        if "expired" not in error.reason:  # which the chain has shown
            findings.append(Finding("error", str(error)))
    except TrialError as error:
        findings.append(
            Finding("warning", f"brokers cannot connect to each other with this key store and trust store: {error}")
        )
    document = _document(target, "key store", [described(one) for one in keys.chain], findings)
    return {**document, "trustNeeded": trust_needed(keys.chain)}


def _checked_trust(target: str, store: TrustStore, days: int) -> Document:
    findings = [finding for one in store.certificates for finding in validity(one, days)]
    return _document(target, "trust store", [described(one) for one in store.certificates], findings)


def _document(target: str, kind: str, certificates: list[Document], findings: list[Finding]) -> Document:
    return {
        "target": target,
        "kind": kind,
        "certificates": certificates,
        "findings": [finding._asdict() for finding in findings],
    }


def _loaded(load: Any, settings: Mapping[str, str]) -> Any:
    """Return the store that `load` reads. NoPrivateKey passes through; other errors become ToolError."""
    try:
        return load(settings)
    except NoPrivateKey:
        raise
    except StoreError as error:
        hint = ""
        if error.setting.endswith(".password") and "not set" in error.reason:
            hint = f" (put {error.setting}=... into a file, and give it with --command-config)"
        raise ToolError(f"{error}{hint}") from error
