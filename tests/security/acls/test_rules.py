"""The rules of authorization: as Kafka's own authorizer decides, and each rule by an example."""

import json
from typing import Any

import pytest

from kafkapy.security.acls.bindings import (
    OPERATIONS_OF,
    Binding,
    Entry,
    Filter,
    Pattern,
    decode_entries,
    display_name,
    encode_entries,
    name_of,
)
from kafkapy.security.acls.hosts import host_text
from kafkapy.security.acls.index import UNREADABLE, AclIndex, index_of
from kafkapy.security.acls.rules import Client, Decision, decide, is_allowed_on_some
from tests.security.acls.cases import cases, our_answers
from tests.security.acls.oracle import SAMPLE, kafkas_answers

ALICE = Client("User:alice", "10.0.0.1")
FLIGHTS = Pattern("TOPIC", "flights")


def entry(operation: str, permission: str = "ALLOW", principal: str = "User:alice", host: str = "*") -> Entry:
    return Entry(principal, host, operation, permission)


def may(index: AclIndex, operation: str, name: str = "flights", client: Client = ALICE, **settings: Any) -> Decision:
    return decide(index, client, operation, "TOPIC", name, **{"everyone_without_acls": False, **settings})


def test_the_answers_that_kafka_gave_are_given_here() -> None:
    with SAMPLE.open(encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            assert our_answers(case["lines"]) == case["answers"], case["lines"]


def test_kafkas_authorizer_decides_as_we_do_on_sets_that_nobody_has_seen(pytestconfig: pytest.Config) -> None:
    import random

    seed = random.randrange(1 << 30)
    for lines, theirs in zip(cases(1000, seed), kafkas_answers(cases(1000, seed)), strict=True):
        assert our_answers(lines) == theirs, (seed, lines)


def test_without_acls_a_setting_decides_and_any_acl_closes_the_resource_for_everybody_else() -> None:
    nothing, of_bob = AclIndex(), index_of([Binding(FLIGHTS, entry("READ", principal="User:bob"))])
    assert not may(nothing, "READ").is_allowed
    assert may(nothing, "READ", everyone_without_acls=True) == Decision(True)
    assert not may(of_bob, "READ", everyone_without_acls=True).is_allowed
    assert may(of_bob, "READ", "other", everyone_without_acls=True).is_allowed


def test_a_denial_wins_and_both_name_their_acl() -> None:
    allowing, denying = (
        Binding(FLIGHTS, entry("READ")),
        Binding(Pattern("TOPIC", "fl", "PREFIXED"), entry("ALL", "DENY")),
    )
    assert may(index_of([allowing]), "READ") == Decision(True, allowing)
    assert may(index_of([allowing, denying]), "READ") == Decision(False, denying)
    assert may(index_of([allowing, denying]), "READ", client=ALICE._replace(is_super_user=True)) == Decision(True)


@pytest.mark.parametrize(
    ("given", "asked", "is_allowed"),
    [
        ("ALL", "CREATE", True),
        ("READ", "DESCRIBE", True),
        ("WRITE", "DESCRIBE", True),
        ("DELETE", "DESCRIBE", True),
        ("ALTER", "DESCRIBE", True),
        ("CREATE", "DESCRIBE", False),
        ("ALTER_CONFIGS", "DESCRIBE_CONFIGS", True),
        ("ALTER_CONFIGS", "DESCRIBE", False),
        ("DESCRIBE", "READ", False),
    ],
)
def test_some_permissions_imply_others_and_no_prohibition_does(given: str, asked: str, is_allowed: bool) -> None:
    assert may(index_of([Binding(FLIGHTS, entry(given))]), asked).is_allowed == is_allowed
    everything = [Binding(FLIGHTS, entry("ALL")), Binding(FLIGHTS, entry(given, "DENY"))]
    assert may(index_of(everything), asked).is_allowed == (given not in (asked, "ALL"))


def test_a_prefix_is_plain_text_and_a_star_is_everything_only_as_a_literal() -> None:
    index = index_of([Binding(Pattern("TOPIC", name, "PREFIXED"), entry("READ")) for name in ("fl", "*", "flights-eu")])
    allowed = [name for name in ("f", "fl", "flights", "Fl", "*", "*x", "x") if may(index, "READ", name).is_allowed]
    assert allowed == ["fl", "flights", "*", "*x"]
    assert may(index_of([Binding(Pattern("TOPIC", "*"), entry("READ"))]), "READ", "x").is_allowed


def test_hosts_are_compared_as_text() -> None:
    index = index_of(
        [Binding(FLIGHTS, entry("READ", host="10.0.0.0/8")), Binding(FLIGHTS, entry("WRITE", host="10.0.0.1"))]
    )
    assert not may(index, "READ").is_allowed
    assert may(index, "WRITE").is_allowed
    assert not may(index, "WRITE", client=ALICE._replace(host="10.0.0.2")).is_allowed


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::ff00:42:8329", "2001:db8:0:0:0:ff00:42:8329"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("/run/socket", "/run/socket"),
        ("", ""),
    ],
)
def test_addresses_are_written_as_java_does(address: str, text: str) -> None:
    assert host_text(address) == text


def test_what_cannot_be_read_denies_its_resources() -> None:
    index = AclIndex().changed({FLIGHTS: UNREADABLE, Pattern("TOPIC", "*"): frozenset({entry("ALL")})})
    assert not may(index, "READ", everyone_without_acls=True).is_allowed
    assert may(index, "READ", "other").is_allowed
    everything = AclIndex().changed({Pattern("TOPIC", "*"): UNREADABLE, FLIGHTS: frozenset({entry("ALL")})})
    assert not may(everything, "READ").is_allowed
    assert not is_allowed_on_some(everything, ALICE, "WRITE", "TOPIC", everyone_without_acls=True)


def test_a_reader_of_an_index_sees_no_later_change() -> None:
    before = index_of([Binding(FLIGHTS, entry("READ"))])
    after = before.changed({FLIGHTS: frozenset(), Pattern("TOPIC", "f", "PREFIXED"): frozenset({entry("WRITE")})})
    assert (may(before, "READ").is_allowed, may(before, "WRITE").is_allowed) == (True, False)
    assert (may(after, "READ").is_allowed, may(after, "WRITE").is_allowed) == (False, True)
    assert list(before) == [Binding(FLIGHTS, entry("READ"))]
    assert list(after.changed({Pattern("TOPIC", "f", "PREFIXED"): frozenset()})) == []


def test_what_is_encoded_is_decoded_and_kafkas_names_are_known() -> None:
    entries = frozenset({entry("DESCRIBE_CONFIGS"), entry("ALL", "DENY", "User:CN=ü,O=b", "h")})
    assert decode_entries(encode_entries(entries)) == entries
    assert name_of("IdempotentWrite") == name_of("IDEMPOTENTWRITE") == "IDEMPOTENT_WRITE"
    assert name_of(display_name("TRANSACTIONAL_ID")) == "TRANSACTIONAL_ID"
    assert name_of("Nonsense") == ""
    assert set(OPERATIONS_OF) == {"TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"}


@pytest.mark.parametrize(
    ("which", "matches"),
    [
        (Filter(), True),
        (Filter("GROUP"), False),
        (Filter("TOPIC", "fl", "PREFIXED"), True),
        (Filter("TOPIC", "fl"), True),
        (Filter("TOPIC", "fl", "LITERAL"), False),
        (Filter("TOPIC", "flights", "MATCH"), True),
        (Filter("TOPIC", "flights"), False),
        (Filter("TOPIC", "f", "MATCH"), False),
        (Filter(""), False),
        (Filter("TOPIC", "fl", ""), False),
    ],
)
def test_a_filter_selects_patterns_as_in_kafka(which: Filter, matches: bool) -> None:
    assert which.matches_pattern(Pattern("TOPIC", "fl", "PREFIXED")) == matches
