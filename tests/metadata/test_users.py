"""SCRAM users in the metadata tree."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Create, Set, wait
from kafkapy.metadata.users import UserRegistry, path_name
from kafkapy.security.sasl.scram import new_credential

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
CREDENTIAL = new_credential(SHA_256, "secret")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LocalTree]:
    tree = LocalTree(tmp_path / FILE_NAME)
    ClusterRegistry(tree)  # creates the nodes that always exist
    yield tree
    tree.close()


@pytest.fixture
def users(tree: LocalTree) -> UserRegistry:
    return UserRegistry(tree, ConfigRegistry(tree))


def settings_of(tree: LocalTree, path: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(tree.get(path).data)["config"]
    return found


@pytest.mark.parametrize(
    ("name", "in_paths"), [("alice", "alice"), ("a b*/ü~", "a%20b%2A%2F%C3%BC%7E"), ("CN=x,O=y", "CN%3Dx%2CO%3Dy")]
)
def test_names_are_written_in_paths_as_kafka_does(
    tree: LocalTree, users: UserRegistry, name: str, in_paths: str
) -> None:
    assert path_name(name) == in_paths
    wait(users.alter, name, {SHA_256: CREDENTIAL})
    assert tree.children(paths.USERS) == [in_paths]
    assert users.all() == [name]
    assert users.find(name, SHA_256) == CREDENTIAL
    assert users.find(name, SHA_512) is None
    assert users.iterations(name) == {SHA_256: 4096}


def test_other_settings_of_the_user_are_kept_and_brokers_are_notified(tree: LocalTree, users: UserRegistry) -> None:
    path = paths.config("users", "alice")
    stored = {"version": 1, "config": {"producer_byte_rate": "1000", SHA_512: "old"}}
    tree.commit([Create(path, paths.to_json(stored))])
    wait(users.alter, "alice", {SHA_256: CREDENTIAL, SHA_512: None})
    assert settings_of(tree, path) == {"producer_byte_rate": "1000", SHA_256: CREDENTIAL.as_text()}
    (note,) = tree.children(paths.CONFIG_CHANGES)
    assert json.loads(tree.get(f"{paths.CONFIG_CHANGES}/{note}").data)["entity_path"] == "users/alice"


def test_a_change_by_another_program_at_the_same_time_is_kept(tree: LocalTree, users: UserRegistry) -> None:
    path = paths.config("users", "alice")
    wait(users.alter, "alice", {SHA_256: CREDENTIAL})
    submit: Callable[..., Any] = tree.submit
    quota = {"config": {**settings_of(tree, path), "producer_byte_rate": "1"}}

    def after_another_change(operations: Any, done: Any) -> None:
        tree.submit = submit  # type: ignore[method-assign]
        submit([Set(path, paths.to_json(quota))], lambda results, error: None)
        submit(operations, done)

    tree.submit = after_another_change  # type: ignore[method-assign]
    wait(users.alter, "alice", {SHA_256: None})
    assert settings_of(tree, path) == {"producer_byte_rate": "1"}


def test_a_missing_credential_cannot_be_removed(tree: LocalTree, users: UserRegistry) -> None:
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            wait(users.alter, "alice", {SHA_256: None})
        assert refused.value.code == Errors.RESOURCE_NOT_FOUND
    assert users.all() == []


def test_a_credential_that_cannot_be_read_is_none(tree: LocalTree, users: UserRegistry) -> None:
    path = paths.config("users", "alice")
    tree.commit([Create(path, paths.to_json({"config": {SHA_256: "salt=x"}}))])
    assert users.find("alice", SHA_256) is None
    tree.commit([Set(path, b"no json")])
    assert users.find("alice", SHA_256) is None
    with pytest.raises(KafkaError, match="not JSON"):
        wait(users.alter, "alice", {SHA_256: CREDENTIAL})
    assert tree.get(path).data == b"no json"


def test_all_brokers_use_the_same_challenge_key_which_outlives_a_restart(tree: LocalTree, tmp_path: Path) -> None:
    key = UserRegistry(tree, ConfigRegistry(tree)).challenge_key()
    assert len(key) >= 32
    assert UserRegistry(tree, ConfigRegistry(tree)).challenge_key() == key
    tree.close()
    again = LocalTree(tmp_path / FILE_NAME)
    assert UserRegistry(again, ConfigRegistry(again)).challenge_key() == key
    again.close()


def test_of_two_brokers_that_create_the_challenge_key_the_second_uses_that_of_the_first(
    tree: LocalTree, users: UserRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, looks = tree.find, []

    def first_look_finds_nothing(path: str) -> Any:
        looks.append(path)
        if len(looks) > 1:
            return find(path)
        tree.commit([Create(path, b"of the first")])
        return None

    monkeypatch.setattr(tree, "find", first_look_finds_nothing)
    assert users.challenge_key() == b"of the first"
