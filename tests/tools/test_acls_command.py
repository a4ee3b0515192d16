"""The command `kafkapy acls`: it adds, lists and removes ACLs, and shows which users may do what."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.metadata.tree import Create
from kafkapy.security.acls.bindings import Binding, Entry, Filter, Pattern
from kafkapy.tools.acls.wanted import Resources, Who, wanted
from tests.server.requests import start_broker

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
TOPIC = Pattern("TOPIC", "flights")


@pytest.fixture
def acls(kafkapy: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that runs `kafkapy acls` with a broker whose clients are super users."""
    server = start_broker(tmp_path, authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS;User:root")
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", server.bootstrap_servers)
    yield lambda *words: kafkapy("acls", *words)
    server.stop()


def listed(acls: Any, *words: str) -> list[str]:
    return [
        " ".join(
            one[key]
            for key in ("resource_type", "name", "pattern_type", "permission", "principal", "operation", "host")
        )
        for one in json.loads(acls("list", "--json", *words).out)
    ]


def test_the_rights_of_a_producer_are_added_listed_tested_and_removed(acls: Any) -> None:
    assert acls("list") == (0, "There are no ACLs.\n", "")
    alice = ("--allow-principal", "User:alice", "--producer", "--topic", "flights")
    assert acls("add", *alice) == (0, "Added 3 ACLs.\n", "")
    assert listed(acls) == [
        f"Topic flights literal Allow User:alice {operation} *" for operation in ("Create", "Describe", "Write")
    ]
    table = acls("list").out.splitlines()
    assert table[0].split() == ["resource", "name", "pattern", "permission", "principal", "operation", "host"]
    assert table[1].split() == ["Topic", "flights", "literal", "Allow", "User:alice", "Create", "*"]
    assert acls("test", "alice", "write", "topic:flights") == (
        0,
        "User:alice may Write Topic flights, by the ACL: Allow Write on Topic flights for User:alice from any host.\n",
        "",
    )
    removed = acls("remove", *alice)
    assert removed.out.splitlines()[-1] == "Removed 3 ACLs."
    assert "Describe" in removed.out
    assert listed(acls) == []
    assert acls("remove", *alice).out == "Removed 0 ACLs.\n"


def test_whether_a_user_may_do_something_is_told_with_the_reason(acls: Any) -> None:
    def test(*words: str) -> tuple[int, str]:
        said = acls("test", *words)
        return said.code, said.out.splitlines()[0].partition(", ")[2]

    assert test("alice", "Read", "topic:flights") == (
        1,
        "because there is no ACL for it, and allow.everyone.if.no.acl.found is false.",
    )
    assert test("root", "Read", "topic:flights") == (0, "because the user is a super user.")
    acls(
        "add",
        "--allow-principal",
        "User:*",
        "--operation",
        "Read",
        "--topic",
        "fl",
        "--resource-pattern-type",
        "prefixed",
    )
    assert test("alice", "read", "topic:flights")[0] == 0
    assert test("alice", "Write", "topic:flights") == (1, "because no ACL allows it.")
    acls("add", "--deny-principal", "User:alice", "--deny-host", "10.0.0.1", "--topic", "flights")
    said = acls("test", "alice", "Describe", "topic:flights")
    assert said.code == 0
    assert "There are ACLs for single hosts, which --host takes into account: 10.0.0.1." in said.out
    assert test("alice", "Describe", "topic:flights", "--host", "10.0.0.1") == (
        1,
        "by the ACL: Deny All on Topic flights for User:alice from 10.0.0.1.",
    )
    found = json.loads(acls("test", "User:alice", "READ", "topic:flights", "--json").out)
    assert found["allowed"] is True
    assert found["acl"]["pattern_type"] == "prefixed"
    assert test("alice", "cluster-action", "cluster")[0] == 1


def test_acls_are_listed_and_removed_by_resource_pattern_and_user(acls: Any) -> None:
    for topic, kind, user in (("flights", "literal", "alice"), ("fl", "prefixed", "bob"), ("*", "literal", "alice")):
        acls("add", "--allow-principal", f"User:{user}", "--operation", "read", "--topic", topic,
             "--resource-pattern-type", kind)  # fmt: skip
    acls("add", "--allow-principal", "User:alice", "--group", "g", "--cluster")

    def names(*words: str) -> list[str]:
        return [line.split()[1] for line in listed(acls, *words)]

    assert names() == ["kafka-cluster", "g", "*", "fl", "flights"]
    assert names("--topic", "flights") == ["flights"]
    assert names("--topic", "flights", "--resource-pattern-type", "match") == ["*", "fl", "flights"]
    assert names("--principal", "User:bob") == ["fl"]
    assert acls("remove", "--topic", "fl").out == "Removed 0 ACLs.\n"
    assert acls("remove", "--topic", "fl", "--resource-pattern-type", "prefixed", "--force").code == 0
    assert names() == ["kafka-cluster", "g", "*", "flights"]
    assert acls("remove", "--principal", "User:alice").out.endswith("Removed 4 ACLs.\n")
    assert names() == []


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("10.0.0.0/8", "is a network: it is stored, but it never matches"),
        ("localhost", "is no IP address"),
        ("::1", "clients from there have the address 0:0:0:0:0:0:0:1"),
    ],
)
def test_a_host_that_never_matches_causes_a_warning_and_is_stored(acls: Any, host: str, message: str) -> None:
    said = acls("add", "--allow-principal", "User:a", "--allow-host", host, "--topic", "t")
    assert (said.code, said.out) == (0, "Added 1 ACL.\n")
    assert message in said.err
    assert listed(acls) == [f"Topic t literal Allow User:a All {host}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "--topic", "t"), "say who"),
        (("add", "--allow-principal", "alice", "--topic", "t"), "write User:alice"),
        (("add", "--allow-principal", "User:a"), "name a resource"),
        (("add", "--allow-principal", "User:a", "--producer", "--group", "g"), "--producer needs a --topic"),
        (("add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "needs a --topic and a --group"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--idempotent"), "--idempotent is for --producer"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--producer", "--operation", "read"), "leave out"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--operation", "fly"), "is no operation; use one of"),
        (("add", "--allow-principal", "User:a", "--group", "g", "--operation", "Write"), "makes no sense for Group"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "any"), "literal, prefixed"),
        (
            ("add", "--allow-principal", "User:a", "--deny-host", "h", "--topic", "t"),
            "--deny-principal, which is missing",
        ),
        (("remove",), "name a resource"),
        (("remove", "--topic", "t", "--operation", "read"), "say whose"),
        (("remove", "--principal", "bob"), "write User:bob"),
        (("list", "--resource-pattern-type", "some"), "is none of any, match, literal, prefixed"),
        (("test", "alice", "read", "flights"), "write topic:NAME"),
    ],
)
def test_a_wrong_call_says_what_is_missing(kafkapy: Any, words: tuple[str, ...], message: str) -> None:
    said = kafkapy("acls", *words)
    assert said.code == 2
    assert message in said.err


def test_without_an_authorizer_the_broker_says_so(kafkapy: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start_broker(tmp_path)
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", server.bootstrap_servers)
    try:
        said = kafkapy("acls", "list")
        assert said.code == 1
        assert "No Authorizer is configured on the broker (SECURITY_DISABLED)" in said.err
    finally:
        server.stop()


def test_producer_and_consumer_together_are_as_in_kafka_acls() -> None:
    resources = Resources(topics=["flights"], groups=["g"], transactional_ids=["tx"], cluster=True)
    asked = wanted(resources, Who(["User:a"]), producer=True, consumer=True, idempotent=True)
    assert {(pattern.resource_type, entry.operation) for pattern, entry in asked} == {
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TOPIC", "READ"),
        ("GROUP", "READ"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    }
    assert len(asked) == 8


def test_the_client_class_manages_acls(acls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from kafkapy.client import AclAdmin

    mine = Binding(TOPIC, Entry("User:a", "*", "READ", "ALLOW"))
    with AclAdmin(os.environ["KAFKAPY_BOOTSTRAP_SERVER"]) as admin:
        admin.create_acls([mine])
        assert admin.list_acls() == admin.list_acls(Filter("TOPIC")) == [mine]
        assert admin.delete_acls([Filter()]) == [mine]
        assert admin.list_acls() == []


def test_acls_that_cannot_be_read_are_removed_with_their_resource(
    kafkapy: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_broker(tmp_path, authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS")
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", server.bootstrap_servers)
    try:
        server._tree.commit([Create("/kafka-acl/Topic/flights", b'{"version":1,"acls":[{')])
        said = kafkapy("acls", "add", "--allow-principal", "User:a", "--topic", "flights")
        assert said.code == 1
        assert kafkapy("acls", "remove", "--topic", "flights").code == 0
        assert not server._tree.exists("/kafka-acl/Topic/flights")
        assert kafkapy("acls", "add", "--allow-principal", "User:a", "--topic", "flights").code == 0
    finally:
        server.stop()
