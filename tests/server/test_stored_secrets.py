"""Secrets at rest: the mode of the metadata file, encrypted dynamic passwords, and secrets that are never shown."""

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.protocol import apis
from kafkapy.runtime.config_def import ConfigError
from kafkapy.security.passwords import PasswordEncoder
from kafkapy.security.sasl.jaas import PLAIN_MODULE
from kafkapy.server.config.alter import DELETE, SET, broker_operations
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.tools.main import main
from kafkapy.tools.start import add_override
from tests.harness.wire import Wire
from tests.server.requests import start_broker

NAME = "listener.name.plaintext.plain.sasl.jaas.config"
JAAS = f'{PLAIN_MODULE} required user_a="xyzzy";'
SECRET = {"password_encoder_secret": "s1"}
BROKER = 4
GOLDEN = Path(__file__).parents[1] / "data" / "passwords" / "kafka-3.9.1.jsonl"


def alter(server: Any, name: str, value: str | None, *, per_broker: bool = True, validate_only: bool = False) -> None:
    change = [(name, SET if value is not None else DELETE, value)]
    server.services.dynamic_config.alter(
        lambda current: broker_operations(current, change), per_broker=per_broker, validate_only=validate_only
    )


def stored(server: Any) -> dict[str, str]:
    return dict(server.services.configs.broker(server.services.broker_id))


def modes(directory: Path) -> set[int]:
    return {stat.S_IMODE(one.stat().st_mode) for one in directory.glob(f"{FILE_NAME}*")}


def test_only_the_owner_reads_the_metadata(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        tree = LocalTree(tmp_path / FILE_NAME)
        tree.ensure("/a")
        assert modes(tmp_path) == {0o600}
        assert len(list(tmp_path.glob(f"{FILE_NAME}*"))) > 1  # includes the write-ahead log
        tree.close()
        (tmp_path / FILE_NAME).chmod(0o644)
        tree = LocalTree(tmp_path / FILE_NAME)
        assert modes(tmp_path) == {0o600}
        tree.close()
    finally:
        os.umask(before)


def test_a_dynamic_password_is_stored_encrypted_and_used_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = start_broker(tmp_path, broker_id=0, **SECRET)
    try:
        alter(server, NAME, JAAS)
        alter(server, "message.max.bytes", "5")
        assert server.services.config.given(NAME) == JAAS
        text = stored(server)[NAME]
        assert "xyzzy" not in text
        assert PasswordEncoder("s1").decode(text) == JAAS
    finally:
        server.stop()
    server = start_broker(tmp_path, broker_id=0, **SECRET)
    try:
        assert server.services.config.given(NAME) == JAAS
        with Wire(server.bootstrap_servers) as wire:
            make = apis.DESCRIBE_CONFIGS.Request.Resources
            resource = make(resource_type=BROKER, resource_name="0", configuration_keys=None)
            answer = wire.call(apis.DESCRIBE_CONFIGS, 1, resources=[resource], include_synonyms=True)
        assert "xyzzy" not in repr(answer)
        alter(server, NAME, None)
        assert stored(server) == {"message.max.bytes": "5"}
    finally:
        server.stop()
    assert "xyzzy" not in caplog.text
    assert "password.encoder.secret" not in caplog.text


def test_a_password_needs_a_secret_and_one_broker(tmp_path: Path) -> None:
    server = start_broker(tmp_path, broker_id=0)
    try:
        for validate_only in (True, False):
            with pytest.raises(KafkaError, match=r"password\.encoder\.secret") as refused:
                alter(server, NAME, JAAS, validate_only=validate_only)
            assert refused.value.code == Errors.INVALID_REQUEST
            assert "xyzzy" not in refused.value.message
        with pytest.raises(KafkaError, match="one broker"):
            alter(server, NAME, JAAS, per_broker=False)
        assert stored(server) == {}
    finally:
        server.stop()


def test_a_password_that_kafka_encrypted_is_used(tmp_path: Path) -> None:
    case = json.loads(GOLDEN.read_text(encoding="utf-8").splitlines()[0])
    server = start_broker(tmp_path, broker_id=0, password_encoder_secret=case["secret"])
    try:
        name = "listener.name.plaintext.ssl.key.password"
        server.services.configs.alter_broker(0, lambda _: {name: case["encoded"]})
        server.services.dynamic_config.reload()
        assert server.services.config.given(name) == case["password"]
    finally:
        server.stop()


def test_a_password_with_another_secret_is_ignored_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = PasswordEncoder("other").encode(JAAS)
    server = start_broker(tmp_path, broker_id=0, **SECRET)
    try:
        server.services.configs.alter_broker(0, lambda _: {NAME: text})
        server.services.dynamic_config.reload()
        assert server.services.config.given(NAME) is None
        assert "cannot be decrypted" in caplog.text
        alter(server, "message.max.bytes", "5")
        assert stored(server) == {NAME: text, "message.max.bytes": "5"}
    finally:
        server.stop()


def test_passwords_with_the_old_secret_are_encrypted_again_at_the_start(tmp_path: Path) -> None:
    server = start_broker(tmp_path, broker_id=0, **SECRET)
    alter(server, NAME, JAAS)
    server.stop()
    server = start_broker(tmp_path, broker_id=0, password_encoder_secret="s2", password_encoder_old_secret="s1")
    try:
        assert server.services.config.given(NAME) == JAAS
        assert PasswordEncoder("s2").decode(stored(server)[NAME]) == JAAS
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password.encoder.cipher.algorithm", "DES/CBC/PKCS5Padding"),
        ("password.encoder.key.length", "64"),
        ("password.encoder.keyfactory.algorithm", "PBKDF2WithMD5"),
    ],
)
def test_an_unknown_encryption_refuses_the_start(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="must be one of"):
        BrokerConfig({name: value})


def test_secrets_are_shown_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = start_broker(tmp_path, broker_id=0, **SECRET)
    alter(server, NAME, JAAS)
    alter(server, "message.max.bytes", "5")
    text = stored(server)[NAME]
    server.stop()
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={tmp_path}\n")
    add = ["users", "add", "alice", "--password", "xyzzy", "--offline", "--command-config", str(properties)]
    assert main(add) == 0

    def said(*words: str) -> str:
        capsys.readouterr()
        assert main(["zk", *words, "--directory", str(tmp_path)]) == 0
        return capsys.readouterr().out

    user, broker = paths.config("users", "alice"), paths.config("brokers", "0")
    for more in ((), ("--json",)):
        shown = said("get", user, *more) + said("get", broker, *more) + said("tree", "/config", "--data", *more)
        assert "stored_key" not in shown
        assert text not in shown
        assert "[hidden]" in shown
        assert "message.max.bytes" in shown
        assert "stored_key" in said("get", user, *more, "--show-secrets")
        assert text in said("tree", "/config", "--data", *more, "--show-secrets")


def test_the_challenge_key_of_scram_is_shown_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_broker(tmp_path)
    key = server.services.users.challenge_key().decode()
    server.stop()
    for words in (("get", paths.SCRAM_CHALLENGE_KEY), ("tree", "/cluster", "--data")):
        assert main(["zk", *words, "--directory", str(tmp_path)]) == 0
        hidden = capsys.readouterr().out
        assert ("[hidden]" in hidden, key in hidden) == (True, False)
        assert main(["zk", *words, "--directory", str(tmp_path), "--show-secrets"]) == 0
        assert key in capsys.readouterr().out


def test_the_value_of_an_option_may_be_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a=b\nc\n")
    overrides: dict[str, str] = {}
    add_override(overrides, f"ssl.key.password=@{secret}")
    add_override(overrides, "other=@@x")
    assert overrides == {"ssl.key.password": "a=b\nc", "other": "@x"}
    with pytest.raises(Exception, match="cannot be read") as failed:
        add_override(overrides, f"ssl.key.password=@{tmp_path / 'none'}")
    assert "ssl.key.password" in str(failed.value)
