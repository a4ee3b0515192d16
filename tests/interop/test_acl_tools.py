"""Kafka's own AclCommand (kafka-acls) grants, shows and removes rights of users, which applies to clients."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.harness import brokers
from tests.harness.kafka_tools import KafkaTools, Said
from tests.harness.secured_kafka import jaas

pytestmark = pytest.mark.other_runtime

LISTENER = re.compile(r"SASL_PLAINTEXT://([^ ,]+)")


class Closed:
    """A broker that authorizes its clients. Clients of its plain listener may do everything. `bootstrap` is the address
    of the listener on which `alice` logs in."""

    def __init__(self, directory: Path) -> None:
        ports = [brokers.free_port() for _ in range(2)]
        plain, login = (f"127.0.0.1:{port}" for port in ports)
        settings = {
            "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{login}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas("PLAIN", user_alice="secret"),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            **brokers.QUICK,
        }
        self.running = brokers.start(directory, settings, port=ports[0])
        self.plain, self.bootstrap = plain, login

    def alice(self, **more: Any) -> dict[str, Any]:
        """Return alice's properties for a client of librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
            **{name.replace("_", "."): value for name, value in more.items()},
        }


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    broker = Closed(tmp_path_factory.mktemp("closed"))
    yield broker
    broker.running.stop()


@pytest.fixture
def acls(tools: KafkaTools, closed: Closed) -> Any:
    def run(*options: str) -> Said:
        said = tools.run("kafka.admin.AclCommand", "--bootstrap-server", closed.plain, *options)
        assert said.code == 0, said
        return said

    yield run
    run("--remove", "--force", "--topic", "*", "--resource-pattern-type", "any")


def produce(closed: Closed, topic: str, **settings: Any) -> str | None:
    """Produce a record as alice. Return the name of the error that the client gets, None if it is stored."""
    errors: list[KafkaError | None] = []
    producer = Producer(closed.alice(message_timeout_ms=20_000, **settings))
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    (error,) = errors
    return None if error is None else error.name()


def listed(said: Said) -> dict[str, set[str]]:
    """Return the ACLs that kafka-acls shows, by resource: principal, host, operation, permission."""
    shown: dict[str, set[str]] = {}
    for line in said.out.splitlines():
        if found := re.search(r"name=([^,]+), patternType=(\w+)\)`", line):
            shown[f"{found[2]}:{found[1]}"] = entries = set()
        elif found := re.search(r"\(principal=(.+), host=(.+), operation=(.+), permissionType=(.+)\)", line):
            entries.add(" ".join(found.groups()))
    return shown


def test_a_producer_gets_its_right_and_loses_it(closed: Closed, acls: Any) -> None:
    assert produce(closed, "flights") == "TOPIC_AUTHORIZATION_FAILED"
    acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "flights")
    assert listed(acls("--list", "--topic", "flights")) == {
        "LITERAL:flights": {f"User:alice * {operation} ALLOW" for operation in ("WRITE", "DESCRIBE", "CREATE")}
    }
    assert produce(closed, "flights") is None
    assert produce(closed, "flights", enable_idempotence=True) is None  # allowed by the right to write to any topic
    acls("--add", "--deny-principal", "User:alice", "--deny-host", "127.0.0.1", "--operation", "write",
         "--topic", "fl", "--resource-pattern-type", "prefixed")  # fmt: skip
    assert produce(closed, "flights") == "TOPIC_AUTHORIZATION_FAILED"
    assert set(listed(acls("--list", "--topic", "flights", "--resource-pattern-type", "match"))) == {
        "LITERAL:flights",
        "PREFIXED:fl",
    }
    acls("--remove", "--force", "--topic", "fl", "--resource-pattern-type", "prefixed")
    assert produce(closed, "flights") is None
    acls("--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", "flights")
    assert listed(acls("--list")) == {}
    assert produce(closed, "flights") == "TOPIC_AUTHORIZATION_FAILED"


def test_what_kafka_acls_stores_for_every_kind_of_resource_is_listed(acls: Any) -> None:
    for resource in (
        "--topic=*",
        "--group=g",
        "--transactional-id=t",
        "--delegation-token=d",
        "--user-principal=User:u",
    ):
        name, _, value = resource.partition("=")
        operation = {"--user-principal": "DescribeTokens"}.get(name, "Describe")
        acls("--add", "--allow-principal", "User:CN=a,O=b", name, value, "--operation", operation)
    acls("--add", "--allow-principal", "User:*", "--cluster", "--operation", "All")
    shown = listed(acls("--list"))
    assert set(shown) == {f"LITERAL:{name}" for name in ("*", "g", "t", "d", "User:u", "kafka-cluster")}
    assert shown["LITERAL:g"] == {"User:CN=a,O=b * DESCRIBE ALLOW"}
    assert "User:CN=a,O=b" in acls("--list", "--principal", "User:CN=a,O=b").out
    for resource in (
        "--group=g",
        "--transactional-id=t",
        "--delegation-token=d",
        "--user-principal=User:u",
        "--cluster",
    ):
        acls("--remove", "--force", *resource.split("="))
    assert set(listed(acls("--list"))) == {"LITERAL:*"}


def test_librdkafka_manages_acls_and_is_told_who_may_not(closed: Closed, acls: Any) -> None:
    mine = AclBinding(
        ResourceType.TOPIC, "flights", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = AdminClient({"bootstrap.servers": closed.plain})
    (created,) = admin.create_acls([mine]).values()
    created.result(30)
    assert admin.describe_acls(everything).result(30) == [mine]
    as_alice = AdminClient(closed.alice())
    (refused,) = as_alice.create_acls([mine]).values()
    with pytest.raises(KafkaException) as told:
        refused.result(30)
    assert told.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"
    # Here librdkafka reports no error, with Apache Kafka neither.
    assert as_alice.describe_acls(everything).result(30) == []
    (deleted,) = admin.delete_acls([everything]).values()
    assert deleted.result(30) == [mine]
