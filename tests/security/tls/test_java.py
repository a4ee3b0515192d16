"""Names, mapping rules and stores as Java, Kafka, keytool and openssl make them (tests/data/tls)."""

import base64
import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.security.tls.context import client_context, server_context
from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.mapping import NoMatchingRule, PrincipalMapper
from kafkapy.security.tls.names import java_name
from kafkapy.security.tls.stores import key_store, trust_store
from kafkapy.security.tls.trial import handshake

DATA = Path(__file__).parents[2] / "data" / "tls"
# Syntax of rules that is refused here, although Java accepts it.
NOT_IN_PYTHON = (r"\p{", r"\Q", "(?i)", "&&", "*+", "(?>")
PASSWORD = "changeit"


def golden(kind: str) -> Iterator[list[str]]:
    """Yield the words of each line of this kind in the golden file."""
    with gzip.open(DATA / "names-and-rules.txt.gz", "rt") as file:
        lines = [line.split() for line in file]
    yield from (line[1:] for line in lines if line[0] == kind)


def text(word: str) -> str:
    return "" if word == "-" else base64.b64decode(word).decode()


def test_names_are_written_as_java_writes_them() -> None:
    checked = 0
    for name, expected in golden("name"):
        assert java_name(bytes.fromhex(name)) == text(expected.removeprefix("=")), name
        checked += 1
    assert checked > 600


def test_rules_map_names_as_in_kafka() -> None:
    """What Kafka refuses is refused. A rule that would fail only when it is applied is refused at once."""
    checked = 0
    for rules, name, expected in golden("rule"):
        case = (text(rules), text(name))
        if expected.startswith("="):
            try:
                assert PrincipalMapper(case[0]).name_of(case[1]) == text(expected[1:]), case
                checked += 1
            except StoreError:
                assert any(part in case[0] for part in NOT_IN_PYTHON), case
        elif expected == "ERROR:NoMatchingRule":
            try:
                with pytest.raises(NoMatchingRule):
                    PrincipalMapper(case[0]).name_of(case[1])
            except StoreError:
                pass  # Kafka notices such a replacement, or such a lack of rules, only when a client logs in
        else:
            with pytest.raises(StoreError, match=r"ssl\.principal\.mapping\.rules"):
                PrincipalMapper(case[0])
    assert checked > 600


@pytest.mark.parametrize("name", ["keystore.p12", "keystore-legacy.p12", "keystore-and-trust.p12", "openssl.p12",
                                  "openssl-legacy.p12", "openssl.pem", "openssl-encrypted.pem"])  # fmt: skip
def test_key_stores_of_keytool_and_openssl(name: str) -> None:
    password = "ssl.key.password" if name.endswith(".pem") else "ssl.keystore.password"
    settings = {"ssl.keystore.location": str(DATA / name), password: PASSWORD}
    store = key_store(settings)
    assert store is not None
    assert [one.subject for one in store.chain][:2] == ["CN=broker,OU=Test,O=Acme", "CN=Keytool Intermediate,O=Acme"]
    trusted = {"ssl.truststore.location": str(DATA / "truststore.p12"), "ssl.truststore.password": PASSWORD}
    handshake(server_context(settings), client_context(trusted), "127.0.0.1")
    assert "PRIVATE KEY" not in repr(store)


@pytest.mark.parametrize("name", ["truststore.p12", "truststore-legacy.p12", "truststore-open.p12"])
def test_trust_stores_of_keytool(name: str) -> None:
    store = trust_store({"ssl.truststore.location": str(DATA / name), "ssl.truststore.password": PASSWORD})
    assert store is not None
    assert [one.subject for one in store.certificates] == ["CN=Keytool CA,O=Acme"]


def test_of_a_store_with_a_key_java_trusts_the_certificate_and_the_trusted_entries_but_not_the_chain() -> None:
    settings = {"ssl.truststore.location": str(DATA / "keystore-and-trust.p12"), "ssl.truststore.password": PASSWORD}
    store = trust_store(settings)
    assert store is not None
    assert {one.subject for one in store.certificates} == {"CN=broker,OU=Test,O=Acme", "CN=Other CA"}


def test_a_jks_file_is_refused() -> None:
    with pytest.raises(StoreError, match=r"keytool -importkeystore -srckeystore .*keystore\.jks -srcstoretype JKS"):
        key_store({"ssl.keystore.location": str(DATA / "keystore.jks"), "ssl.keystore.password": PASSWORD})
