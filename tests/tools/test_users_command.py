"""The command `kafkapy users`, with a broker and without."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

import kafkapy as package
from tests.server.requests import start_broker


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'data'}\n")
    return file


def offline(file: Path) -> tuple[str, ...]:
    return "--offline", "--command-config", str(file)


def test_users_of_a_running_broker(kafkapy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with package.Broker() as broker:
        monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", broker.bootstrap_servers)
        assert kafkapy("users", "list").out == "There are no users.\n"
        added = kafkapy("users", "add", "alice", "--password", "secret")
        assert added == (0, "Added user alice (SCRAM-SHA-256, SCRAM-SHA-512).\n", "")
        again = kafkapy("users", "add", "alice", "--password", "secret", "-m", "scram-sha-512")
        assert again.code == 1
        assert "has a password for SCRAM-SHA-512 already" in again.err
        assert kafkapy("users", "password", "alice", "--password", "x", "--iterations", 8192).code == 0
        found = json.loads(kafkapy("users", "list", "--json").out)
        assert found == [{"name": "alice", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}}]
        assert kafkapy("users", "delete", "alice", "-m", "SCRAM-SHA-512").code == 0
        assert "SCRAM-SHA-512" not in kafkapy("users", "list").out
        assert kafkapy("users", "delete", "alice").out == "Deleted user alice.\n"
        assert kafkapy("users", "delete", "alice").code == 1
        assert kafkapy("users", "password", "alice", "--password", "x").code == 1


def test_a_first_user_before_the_first_start(kafkapy: Any, properties: Path, tmp_path: Path) -> None:
    assert kafkapy("users", "add", "admin", "--password", "secret", *offline(properties)).code == 0
    assert "admin" in kafkapy("users", "list", *offline(properties)).out
    server = start_broker(tmp_path / "data")
    try:
        assert server.services.users.iterations("admin") == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
        in_use = kafkapy("users", "list", *offline(properties))
        assert in_use.code == 1
        assert "running broker" in in_use.err
    finally:
        server.stop()
    assert kafkapy("users", "delete", "admin", *offline(properties)).code == 0
    assert kafkapy("users", "list", *offline(properties)).out == "There are no users.\n"


def test_a_directory_of_another_program_is_left_alone(kafkapy: Any, properties: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "flights-0").mkdir()
    refused = kafkapy("users", "add", "admin", "--password", "secret", *offline(properties))
    assert refused.code == 1
    assert "flights-0" in refused.err
    assert os.listdir(tmp_path / "data") == ["flights-0"]


def test_the_file_of_a_client_in_the_environment_is_not_that_of_a_broker(
    kafkapy: Any, properties: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKAPY_COMMAND_CONFIG", str(properties))
    said = kafkapy("users", "list", "--offline")
    assert said.code == 2
    assert "--command-config" in said.err


def test_a_password_from_a_file_or_standard_input(
    kafkapy: Any, properties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    assert kafkapy("users", "add", "a", "--password", f"@{secret}", *offline(properties)).code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("from stdin\n"))
    assert kafkapy("users", "add", "b", *offline(properties)).code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    empty = kafkapy("users", "add", "c", *offline(properties))
    assert (empty.code, "password is empty" in empty.err) == (2, True)
    missing = kafkapy("users", "add", "c", "--password", f"@{tmp_path / 'none'}", *offline(properties))
    assert (missing.code, "--password: the file" in missing.err) == (1, True)
    secret.write_text("one\ntwo\n")
    lines = kafkapy("users", "add", "c", "--password", f"@{secret}", *offline(properties))
    assert (lines.code, "must have one line" in lines.err, "two" in lines.err) == (2, True, False)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add", "a", "--offline"), "--command-config"),
        (("list", "--command-config", "no-such-file"), "no-such-file"),
        (("add", "a", "-m", "PLAIN"), "SCRAM-SHA-256"),
        (("add", "a", "--iterations", "1"), "4096"),
    ],
)
def test_wrong_calls(kafkapy: Any, words: tuple[str, ...], why: str) -> None:
    said = kafkapy("users", *words)
    assert said.code == 2
    assert why in said.err
