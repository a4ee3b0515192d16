"""ACLs in the metadata tree: Kafka's paths, JSON and notifications, and nodes that cannot be read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.acls import AclRegistry, Deletion
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Create, Delete, Set, wait
from kafkapy.runtime.config_def import ConfigError
from kafkapy.security.acls.bindings import Binding, Entry, Filter, Pattern
from kafkapy.security.acls.index import UNREADABLE

ALICE = Entry("User:alice", "*", "READ", "ALLOW")
BOB = Entry("User:CN=bob,O=y", "10.0.0.1", "ALTER_CONFIGS", "DENY")
FLIGHTS = Pattern("TOPIC", "flights")
PREFIX = Pattern("TRANSACTIONAL_ID", "fl", "PREFIXED")
STORED = b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LocalTree]:
    tree = LocalTree(tmp_path / FILE_NAME)
    yield tree
    tree.close()


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def acls(tree: LocalTree, changes: list[str]) -> AclRegistry:
    return AclRegistry(tree, lambda: changes.append("changed"))


class Hiding(LocalTree):
    """A tree of which some nodes cannot be read, as in a ZooKeeper with ACLs of its own."""

    paths: tuple[str, ...] = ()

    @property
    def hidden(self) -> tuple[str, ...]:
        return self.paths

    def find(self, path: str) -> Any:
        return None if path in self.paths else super().find(path)


@pytest.fixture
def hiding(tmp_path: Path) -> Iterator[Hiding]:
    tree = Hiding(tmp_path / FILE_NAME)
    yield tree
    tree.close()


def done(change: Any, *arguments: Any) -> Any:
    """Call a method of the registry and return what its callback gets."""
    return wait(change, *arguments)


def create(acls: AclRegistry, *bindings: Binding) -> list[KafkaError | None]:
    outcome: list[KafkaError | None] = done(acls.create, bindings)
    return outcome


def delete(acls: AclRegistry, *filters: Filter) -> list[Deletion]:
    outcome: list[Deletion] = done(acls.delete, filters)
    return outcome


def everything(acls: AclRegistry) -> set[Binding]:
    return set(acls.find(Filter()))


def test_acls_are_stored_and_announced_as_kafka_does(tree: LocalTree, acls: AclRegistry, changes: list[str]) -> None:
    assert create(acls, Binding(FLIGHTS, ALICE), Binding(PREFIX, BOB), Binding(FLIGHTS, ALICE)) == [None] * 3
    assert json.loads(tree.get("/kafka-acl/Topic/flights").data) == json.loads(STORED)
    (stored,) = json.loads(tree.get("/kafka-acl-extended/prefixed/TransactionalId/fl").data)["acls"]
    assert stored == {
        "principal": "User:CN=bob,O=y",
        "permissionType": "Deny",
        "operation": "AlterConfigs",
        "host": "10.0.0.1",
    }
    assert tree.get("/kafka-acl-changes/acl_changes_0000000000").data == b"TOPIC:flights"
    assert json.loads(tree.get("/kafka-acl-extended-changes/acl_changes_0000000000").data) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "fl",
        "patternType": "PREFIXED",
    }
    assert everything(acls) == {Binding(FLIGHTS, ALICE), Binding(PREFIX, BOB)}
    assert changes


def test_what_is_there_already_is_not_written_again(tree: LocalTree, acls: AclRegistry) -> None:
    create(acls, Binding(FLIGHTS, ALICE))
    before = tree.get("/kafka-acl/Topic/flights")
    assert create(acls, Binding(FLIGHTS, ALICE)) == [None]
    assert tree.get("/kafka-acl/Topic/flights") == before
    assert len(tree.children(paths.ACL_CHANGES)) == 1


def test_acls_of_an_earlier_process_are_read_and_those_of_other_programs_are_followed(
    tree: LocalTree, acls: AclRegistry
) -> None:
    create(acls, Binding(FLIGHTS, ALICE))
    again = AclRegistry(tree, lambda: None)
    assert everything(again) == {Binding(FLIGHTS, ALICE)}
    tree.commit([Create("/kafka-acl/Group/g", STORED)])
    assert everything(again) == {Binding(FLIGHTS, ALICE), Binding(Pattern("GROUP", "g"), ALICE)}
    tree.commit([Delete("/kafka-acl/Topic/flights"), Set("/kafka-acl/Group/g", STORED.replace(b"alice", b"eve"))])
    assert everything(again) == {Binding(Pattern("GROUP", "g"), ALICE._replace(principal="User:eve"))}


def test_a_change_that_another_program_makes_at_the_same_time_is_kept(
    tree: LocalTree, acls: AclRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tree.read_through
    raced = []

    def read_through(wanted: Any, read: Any) -> None:
        plain(wanted, read) if raced else plain(wanted, lambda nodes, error: intrude(nodes, error, read))

    def intrude(nodes: Any, error: Any, read: Any) -> None:
        raced.append(wanted := "/kafka-acl/Topic/flights")
        tree.submit([Create(wanted, STORED)], lambda results, problem: read(nodes, error))

    monkeypatch.setattr(tree, "read_through", read_through)
    assert create(acls, Binding(FLIGHTS, BOB)) == [None]
    assert everything(acls) == {Binding(FLIGHTS, ALICE), Binding(FLIGHTS, BOB)}


def test_deletions_belong_to_the_first_filter_and_remove_empty_nodes(tree: LocalTree, acls: AclRegistry) -> None:
    create(acls, Binding(FLIGHTS, ALICE), Binding(FLIGHTS, BOB), Binding(PREFIX, BOB))
    by_user, rest, nothing = delete(
        acls,
        Filter(principal="User:alice"),
        Filter("TOPIC", "flights", "LITERAL"),
        Filter("TOPIC", "a/b\0", "LITERAL"),
    )
    assert by_user.acls == {Binding(FLIGHTS, ALICE): None}
    assert rest.acls == {Binding(FLIGHTS, BOB): None}
    assert (nothing.acls, nothing.error) == ({}, None)
    assert not tree.exists("/kafka-acl/Topic/flights")
    assert everything(acls) == {Binding(PREFIX, BOB)}


@pytest.mark.parametrize(
    "data",
    [
        b" ",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"acls":[]}',
        STORED.replace(b"1", b"2"),
        STORED.replace(b"1", b'"1"'),
        STORED[:-20],
        STORED.replace(b"Allow", b"Permit"),
        STORED.replace(b"Read", b"Browse"),
        STORED.replace(b"Read", b"Any"),
        STORED.replace(b"User:alice", b"alice"),
        STORED.replace(b'"*"', b"7"),
        STORED.replace(b'"*"', b"null"),
        b'{"version":1,"acls":{"principal":"User:a"}}',
        b'{"version":1,"acls":' + b"[" * 100_000,
    ],
)
def test_acls_that_cannot_be_read_deny_everything_until_they_are_removed(
    tree: LocalTree, acls: AclRegistry, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    tree.commit([Create("/kafka-acl/Topic/flights", data)])
    assert acls.index.entries(FLIGHTS) is UNREADABLE
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "nobody may use the resource Topic flights" in caplog.text
    assert everything(acls) == set()
    (error,) = create(acls, Binding(FLIGHTS, ALICE))
    assert error is not None
    assert error.code == Errors.UNKNOWN_SERVER_ERROR
    (refused,) = delete(acls, Filter(principal="User:alice"))
    assert refused.error is not None
    assert tree.get("/kafka-acl/Topic/flights").data == data
    (whole,) = delete(acls, Filter("TOPIC", "flights", "LITERAL"))
    assert (whole.acls, whole.error) == ({}, None)
    assert not tree.exists("/kafka-acl/Topic/flights")
    assert acls.index.entries(FLIGHTS) == frozenset()


def test_a_node_without_data_has_no_acls(tree: LocalTree, acls: AclRegistry) -> None:
    tree.commit([Create("/kafka-acl/Topic/flights", b"")])
    assert acls.index.entries(FLIGHTS) == frozenset()
    assert not acls.index.matching("TOPIC", "flights")
    assert create(acls, Binding(FLIGHTS, ALICE)) == [None]
    assert everything(acls) == {Binding(FLIGHTS, ALICE)}


def test_names_as_kafka_writes_them_are_read_in_any_case_and_other_nodes_are_ignored(
    tree: LocalTree, caplog: pytest.LogCaptureFixture
) -> None:
    AclRegistry(tree, lambda: None)
    tree.commit([Create("/kafka-acl/Nonsense"), Create("/kafka-acl/Nonsense/x", STORED)])
    tree.commit([Create("/kafka-acl/Topic/flights", STORED.replace(b"Allow", b"ALLOW").replace(b"Read", b"read"))])
    assert everything(AclRegistry(tree, lambda: None)) == {Binding(FLIGHTS, ALICE)}
    assert "/kafka-acl/Nonsense: this is not a resource type" in caplog.text


@pytest.mark.parametrize("name", [".", "..", "a\0b", "a\x7f"])
def test_a_name_that_no_node_can_have_is_refused(acls: AclRegistry, name: str) -> None:
    (error, other) = create(acls, Binding(Pattern("TOPIC", name), ALICE), Binding(FLIGHTS, ALICE))
    assert error is not None
    assert error.code == Errors.UNKNOWN_SERVER_ERROR
    assert other is None


def test_many_acls_in_one_request_change_the_index_few_times(acls: AclRegistry, changes: list[str]) -> None:
    many = [Binding(Pattern("TOPIC", f"t{number}"), ALICE) for number in range(1000)]
    assert create(acls, *many) == [None] * 1000
    assert everything(acls) == set(many)
    assert len(changes) < 100


@pytest.mark.parametrize("hidden", ["/kafka-acl/Topic/flights", "/kafka-acl/Topic"])
def test_acls_that_the_login_may_not_read_any_more_deny_everybody(hiding: Hiding, hidden: str) -> None:
    acls = AclRegistry(hiding, lambda: None)
    create(acls, Binding(FLIGHTS, ALICE))
    assert acls.index.entries(FLIGHTS) == {ALICE}
    hiding.paths = (hidden,)
    wait(hiding.submit, [Set("/kafka-acl/Topic/flights", STORED, -1)])
    assert acls.index.entries(FLIGHTS) == UNREADABLE


def test_a_node_that_the_login_may_not_read_denies_everybody_from_the_start(hiding: Hiding) -> None:
    create(AclRegistry(hiding, lambda: None), Binding(FLIGHTS, ALICE))
    hiding.paths = ("/kafka-acl/Topic/flights",)
    assert AclRegistry(hiding, lambda: None).index.entries(FLIGHTS) == UNREADABLE


@pytest.mark.parametrize("hidden", ["/kafka-acl", "/kafka-acl/Topic", "/kafka-acl-extended/prefixed/Group"])
def test_a_broker_that_may_not_list_all_acls_does_not_start(hiding: Hiding, hidden: str) -> None:
    hiding.paths = (hidden,)
    with pytest.raises(ConfigError, match=f"the broker's login may not read {hidden} in ZooKeeper"):
        AclRegistry(hiding, lambda: None)
