"""The command `kafkapy quotas`."""

import json
from typing import Any

import pytest

import kafkapy as package
from tests.harness.wire import Wire
from tests.server.requests import batch, produce


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Any:
    with package.Broker() as broker:
        monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", broker.bootstrap_servers)
        yield broker.bootstrap_servers


def test_quotas_are_set_listed_shown_and_deleted(kafkapy: Any, bootstrap: str) -> None:
    assert kafkapy("quotas", "list").out == "There are no quotas.\n"
    assert kafkapy("quotas", "show", "wire").out == "No quota applies to the client wire of user ANONYMOUS.\n"
    done = kafkapy("quotas", "set", "--user-defaults", "--client", "wire", "producer_byte_rate=1000")
    assert done == (0, "Set producer_byte_rate=1000 of the default user, client id wire.\n", "")
    kafkapy("quotas", "set", "--client-defaults", "producer_byte_rate=5", "controller_mutation_rate=2.5")
    kafkapy("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=7")
    with Wire(bootstrap) as wire:
        wire.create_topic("flights")
        produce(wire, "flights", batch(b"x" * 400))
    lines = [line.split() for line in kafkapy("quotas", "list").out.splitlines()]
    assert ["<default>", "wire", "producer_byte_rate", "1000"] in lines
    assert ["<default>", "controller_mutation_rate", "2.5"] in lines
    assert ["10.0.0.1", "connection_creation_rate", "7"] in lines
    assert json.loads(kafkapy("quotas", "list", "--json").out)[0] == {
        "entity": {"user": None, "client-id": "wire"}, "quotas": {"producer_byte_rate": 1000},
    }  # fmt: skip
    by_key = {one["quota"]: one for one in json.loads(kafkapy("quotas", "show", "wire", "--json").out)}
    assert by_key["producer_byte_rate"]["entity"] == {"user": None, "client-id": "wire"}
    assert 40 < by_key["producer_byte_rate"]["used"] < 100
    assert by_key["controller_mutation_rate"]["entity"] == {"client-id": None}
    shown = kafkapy("quotas", "show", "wire").out.splitlines()
    assert any("the default user, client id wire" in line and line.endswith("%") for line in shown)
    assert kafkapy("quotas", "show", "other", "--user", "alice", "--json").code == 0
    deleted = kafkapy("quotas", "delete", "--client-defaults", "producer_byte_rate")
    assert deleted.out == "Deleted producer_byte_rate of the default client id.\n"
    assert kafkapy("quotas", "delete", "--client-defaults").code == 0
    again = kafkapy("quotas", "delete", "--client-defaults")
    assert again.code == 1
    assert "there is no quota of the default client id" in again.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["set", "producer_byte_rate=1"], "say whose quotas"),
        (["set", "--user", "a", "--user-defaults", "producer_byte_rate=1"], "not both"),
        (["set", "--user", "a", "bytes=1"], "'bytes' is no quota"),
        (["set", "--user", "a", "producer_byte_rate=nan"], "must be a number greater than 0"),
        (["set", "--user", "a", "producer_byte_rate"], "is not KEY=VALUE"),
        (["delete"], "say whose quotas"),
    ],
)
def test_wrong_calls_say_what_is_wrong(kafkapy: Any, arguments: list[str], why: str) -> None:
    said = kafkapy("quotas", *arguments)
    assert said.code == 2
    assert why in said.err


def test_what_the_broker_refuses_is_told(kafkapy: Any, bootstrap: str) -> None:
    said = kafkapy("quotas", "set", "--ip", "10.0.0.1", "--user", "a", "connection_creation_rate=7")
    assert said.code == 1
    assert "IP entity should not be used with user/client ID entity" in said.err
