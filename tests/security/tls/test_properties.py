"""Random certificates, names, rules and settings: what is decoded agrees with the library cryptography, and whatever is
damaged raises the error for it."""

import contextlib
import re
import ssl
import subprocess
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.security.tls import der, pem
from kafkapy.security.tls.certificates import Certificate, peer_name
from kafkapy.security.tls.ciphers import SUITES_1_2, SUITES_1_3
from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.java_patterns import PatternError, compiled
from kafkapy.security.tls.mapping import NoMatchingRule, PrincipalMapper
from kafkapy.security.tls.names import java_name
from kafkapy.security.tls.stores import key_store
from tests.harness import toolchain
from tests.harness.certificates import Authority

AUTHORITY = Authority.root("CN=Root,O=Acme")
# Without numbers for unknown types, escapes and spaces at the ends, RFC 4514 and Java's RFC 2253 are the same.
PLAIN = st.text(
    st.characters(codec="utf-8", categories=("L", "N"), include_characters="-.'@ "), min_size=1, max_size=20
)
KINDS = [
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.DOMAIN_COMPONENT,
    NameOID.USER_ID,
]
PARTS = st.lists(st.tuples(st.sampled_from(KINDS), PLAIN.filter(lambda text: text == text.strip())), max_size=5)
HOSTS = st.from_regex(r"[a-z][a-z0-9]{0,8}(\.[a-z]{1,8}){0,2}", fullmatch=True) | st.ip_addresses().map(str)
KEY = AUTHORITY.key
SAMPLE = AUTHORITY.issue("CN=broker,O=Acme", names=["localhost", "127.0.0.1"])
STORES = [SAMPLE.pem().encode(), SAMPLE.pem("changeit").encode(), SAMPLE.pkcs12("changeit")]


def name_of(parts: list[tuple[x509.ObjectIdentifier, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])


@given(PARTS)
def test_a_plain_name_is_the_one_of_rfc_4514(parts: list[tuple[x509.ObjectIdentifier, str]]) -> None:
    assert java_name(name_of(parts).public_bytes()) == name_of(parts).rfc4514_string()


@given(PARTS, st.lists(HOSTS, max_size=4, unique=True), st.integers(1, 40_000))
def test_a_certificate_is_read_as_by_cryptography(
    parts: list[tuple[x509.ObjectIdentifier, str]], hosts: list[str], days: int
) -> None:
    issued = AUTHORITY.issue(name_of(parts), names=hosts, key=KEY, until=timedelta(days), use="client")
    found = Certificate.parse(issued.der)
    assert found.subject == peer_name(issued.der) == issued.certificate.subject.rfc4514_string()
    assert found.issuer == "CN=Root,O=Acme"
    assert found.not_before == issued.certificate.not_valid_before_utc
    assert found.not_after == issued.certificate.not_valid_after_utc
    assert found.not_after.tzinfo is timezone.utc
    assert [name for _, name in found.alternative_names] == hosts
    assert (found.is_authority, found.key) == (False, "EC P-256")
    assert (found.may_be(server=True), found.may_be(server=False)) == (False, True)


@given(st.data())
def test_a_damaged_certificate_is_read_or_refused(data: st.DataObject) -> None:
    encoded = bytearray(SAMPLE.der)
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(encoded) - 1), st.integers(0, 255)), max_size=4)):
        encoded[at] = byte
    damaged = bytes(encoded)[: data.draw(st.integers(0, len(encoded)))]
    for read in (Certificate.parse, peer_name):
        try:
            read(damaged)
        except der.DerError:
            pass


@given(st.binary(max_size=60))
def test_random_bytes_are_no_name(data: bytes) -> None:
    try:
        java_name(data)
    except der.DerError:
        pass


@given(st.integers(0, 255).filter(lambda tag: tag & 0x1F != 0x1F), st.binary(max_size=300))
def test_a_value_is_read_as_it_was_written(tag: int, content: bytes) -> None:
    value, end = der.read(der.encoded(tag, content) + b"more")
    assert (value.tag, value.content, end) == (tag, content, len(value.encoded))


@given(st.lists(st.tuples(st.sampled_from(["CERTIFICATE", "PRIVATE KEY"]), st.binary(min_size=1, max_size=200))))
def test_pem_is_read_as_it_was_written_also_in_one_line(blocks: list[tuple[str, bytes]]) -> None:
    written = "text\n".join(pem.text_of(pem.Block(label, content)) for label, content in blocks)
    for text in (written, written.replace("\n", " "), written.replace("\n", "\r\n")):
        assert [(one.label, one.content) for one in pem.blocks(text)] == blocks


@given(st.text(alphabet="RULE:DFAT/\\$(){}[]^.*+?,|LU =CNabk1\n\t\0é😀-&~", max_size=40), PLAIN)
def test_random_rules_are_applied_or_refused(rules: str, name: str) -> None:
    for text in (rules, f"RULE:{rules}/x/", f"RULE:.*/{rules}/"):
        try:
            assert isinstance(PrincipalMapper(text).name_of(f"CN={name}"), str)
        except (StoreError, NoMatchingRule):
            pass


@given(PLAIN, PLAIN)
def test_a_rule_takes_the_common_name(common: str, unit: str) -> None:
    mapper = PrincipalMapper("RULE:^CN=(.*?),OU=.*$/$1/L,DEFAULT")
    assert mapper.name_of(f"CN={common},OU={unit}") == common.lower()
    assert mapper.name_of(f"O={unit}") == f"O={unit}"


@given(st.text(alphabet="ab.,=@-", max_size=12))
def test_quoted_text_matches_itself(text: str) -> None:
    assert compiled(re.sub(r"(\W)", r"\\\1", text)).fullmatch(text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{L}",
        r"\Qa\E",
        "(?i)a",
        "[a&&b]",
        "[a[b]]",
        "[]a]",
        r"\h",
        r"\R",
        r"\k<a>",
        "a{",
        "a{,2}",
        r"\uD83D",
        r"(a)\11",
    ],
)
def test_patterns_that_python_reads_differently_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match=re.escape(repr(pattern))):
        compiled(pattern)


def test_no_name_matches_without_a_rule_for_it() -> None:
    mapper = PrincipalMapper("RULE:^CN=admin$/super/")
    assert mapper.name_of("CN=admin") == "super"
    for name in ("CN=admin,O=x", "O=x,CN=admin", "cn=admin", ""):
        with pytest.raises(NoMatchingRule):
            mapper.name_of(name)


def test_the_names_of_cipher_suites_are_those_of_openssl() -> None:
    said = subprocess.run(
        [toolchain.find("openssl"), "ciphers", "-stdname", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"],
        capture_output=True,
        text=True,
        check=True,
    )
    known = {words[0]: words[2] for line in said.stdout.splitlines() if len(words := line.split()) > 2}
    assert {java: known.get(java) for java in SUITES_1_2} == SUITES_1_2
    offered = {cipher["name"] for cipher in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()}
    assert {name for name in offered if name.startswith("TLS_")} == set(SUITES_1_3)


def test_the_page_lists_the_cipher_suites() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    assert set(re.findall(r"`(TLS_[A-Z0-9_]+)`", page)) == {*SUITES_1_3, *SUITES_1_2}


@given(st.data())
def test_a_damaged_key_store_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged"
    content = bytearray(data.draw(st.sampled_from(STORES)))
    settings = {"ssl.keystore.location": str(path)}
    if pem.looks_like_pem(bytes(content)):
        for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
            content[at] = data.draw(st.integers(0, 255))
    else:  # only cut off: other bytes can mean billions of iterations
        settings["ssl.keystore.password"] = "changeit"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(StoreError):
        key_store(settings)
