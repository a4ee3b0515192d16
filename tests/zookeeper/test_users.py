"""SCRAM users in ZooKeeper: those made by Apache Kafka 3.9.1 can log in to kafkapy, and the reverse."""

from pathlib import Path
from typing import Any

import pytest

from kafkapy.protocol.apis import SASL_AUTHENTICATE
from kafkapy.security.sasl.jaas import SCRAM_MODULE
from kafkapy.tools.main import main
from tests.harness.brokers import QUICK, KafkaBroker, free_port
from tests.harness.kafka_tools import KafkaTools
from tests.harness.wire import Wire
from tests.harness.zookeeper import eventually
from tests.server.test_sasl_logins import begin, log_in
from tests.zookeeper.conftest import Start

pytestmark = pytest.mark.other_runtime

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
}
JAAS = {f"listener.name.client.{name.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;" for name in MECHANISMS}


def can_log_in(address: str, user: str, password: str, mechanism: str) -> bool:
    with Wire(address) as wire:
        return not log_in(wire, mechanism, 1, user, password).error_code


def client_address(server: Any) -> str:
    (address,) = [one.partition("://")[2] for one in server.listeners if one.startswith("CLIENT")]
    return str(address)


def test_users_made_by_kafkas_tool_log_in_here_at_once(start: Start, connect: str, tools: KafkaTools) -> None:
    server = start(listeners="PLAINTEXT://127.0.0.1:0,CLIENT://127.0.0.1:0", **_underscored(LISTENERS))
    address = client_address(server)
    assert not can_log_in(address, "über all", "one", "SCRAM-SHA-256")

    def alter(*change: str) -> None:
        said = tools.run(
            "kafka.admin.ConfigCommand", "--zookeeper", connect, "--alter", "--entity-type", "users",
            "--entity-name", "über all", *change,
        )  # fmt: skip
        assert said.code == 0, said

    alter("--add-config", "SCRAM-SHA-256=[iterations=8192,password=one],SCRAM-SHA-512=[password=two]")
    for mechanism, password in zip(MECHANISMS, ("one", "two"), strict=True):
        eventually(lambda m=mechanism, p=password: can_log_in(address, "über all", p, m))  # type: ignore[misc]
    alter("--delete-config", "SCRAM-SHA-256")
    eventually(lambda: not can_log_in(address, "über all", "one", "SCRAM-SHA-256"))
    assert can_log_in(address, "über all", "two", "SCRAM-SHA-512")


def test_all_brokers_of_a_cluster_ask_an_unknown_user_the_same(start: Start) -> None:
    """Otherwise the challenges of two brokers would differ only for users that do not exist."""
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,CLIENT://127.0.0.1:0", **_underscored(LISTENERS)}
    listeners["controlled_shutdown_enable"] = "false"  # so that the connection ends faster
    challenges = set()
    for number in (1, 2):
        with Wire(client_address(start(number, **listeners))) as wire:
            begin(wire, "SCRAM-SHA-256")
            response = wire.call(SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=unknown,r=nonce")
            challenges.add(bytes(response.auth_bytes).partition(b",")[2])  # keeps the salt and the iterations
    assert len(challenges) == 1


def test_users_made_here_log_in_to_kafka(connect: str, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"zookeeper.connect={connect}\nlog.dirs={tmp_path / 'ours'}\n")
    add = ["users", "add", "alice", "--password", "secret", "--offline", "--command-config", str(properties)]
    assert main(add) == 0
    plain, port = free_port(), free_port()
    listeners = {**LISTENERS, **JAAS, "listeners": f"PLAINTEXT://127.0.0.1:{plain},CLIENT://127.0.0.1:{port}"}
    kafka = KafkaBroker(tmp_path / "kafka", {**QUICK, **listeners}, port=plain, zookeeper=connect)
    try:
        for mechanism in MECHANISMS:
            assert can_log_in(f"127.0.0.1:{port}", "alice", "secret", mechanism)
            assert not can_log_in(f"127.0.0.1:{port}", "alice", "wrong", mechanism)
        assert main(["users", "password", "alice", "--password", "new", "-b", f"127.0.0.1:{plain}"]) == 0
        eventually(lambda: can_log_in(f"127.0.0.1:{port}", "alice", "new", "SCRAM-SHA-512"))
    finally:
        kafka.stop()


def _underscored(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in settings.items()}
