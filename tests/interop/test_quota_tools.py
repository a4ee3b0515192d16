"""Kafka's own ConfigCommand (kafka-configs) sets, shows and removes quotas, which throttle clients of librdkafka."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness import brokers
from tests.harness.kafka_tools import KafkaTools

pytestmark = pytest.mark.other_runtime

LIMIT = 20_000
SIZE = 10_000


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {**brokers.QUICK, "quota.window.num": "2"}  # allows one second's worth at once, for short tests
    broker = brokers.start(tmp_path_factory.mktemp("broker"), settings)
    yield broker.bootstrap
    broker.stop()


@pytest.fixture
def configs(tools: KafkaTools, bootstrap: str) -> Any:
    def run(*options: str) -> list[str]:
        said = tools.run("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *options)
        assert said.code == 0, said
        return said.out.splitlines()

    return run


def test_quotas_of_all_entities_are_set_shown_and_removed(configs: Any) -> None:
    for entity, key, shown in (
        (["--user", "alice"], "producer_byte_rate=1024", "for user-principal 'alice' are producer_byte_rate=1024.0"),
        (["--user-defaults"], "consumer_byte_rate=5", "for the default user-principal are consumer_byte_rate=5.0"),
        (["--client", "a b"], "request_percentage=12.5", "for client-id 'a b' are request_percentage=12.5"),
        (["--client-defaults"], "controller_mutation_rate=2",
         "for the default client-id are controller_mutation_rate=2.0"),
        (["--user", "al*", "--client", "x/y"], "producer_byte_rate=1",
         "for user-principal 'al*', client-id 'x/y' are producer_byte_rate=1.0"),
        (["--user-defaults", "--client-defaults"], "producer_byte_rate=2",
         "for the default user-principal, the default client-id are producer_byte_rate=2.0"),
        (["--ip", "127.0.0.9"], "connection_creation_rate=7", "for ip '127.0.0.9' are connection_creation_rate=7.0"),
        (["--ip-defaults"], "connection_creation_rate=900", "for the default ip are connection_creation_rate=900.0"),
    ):  # fmt: skip
        assert "Completed updating" in configs("--alter", *entity, "--add-config", key)[0]
        assert f"Quota configs {shown}" in configs("--describe", *entity)
        configs("--alter", *entity, "--delete-config", key.partition("=")[0])
        assert not any("Quota configs" in line for line in configs("--describe", *entity))


def test_users_are_described_with_quotas_and_passwords(configs: Any) -> None:
    configs("--alter", "--user", "bob", "--add-config", "SCRAM-SHA-256=[password=secret]")
    configs("--alter", "--user", "bob", "--add-config", "producer_byte_rate=7,request_percentage=50")
    lines = configs("--describe", "--entity-type", "users")
    (quota,) = (line for line in lines if line.startswith("Quota configs for user-principal 'bob'"))
    assert "producer_byte_rate=7.0" in quota
    assert "request_percentage=50.0" in quota
    assert any(
        "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=" in one for one in lines
    )
    configs("--alter", "--user", "bob", "--delete-config", "producer_byte_rate,request_percentage")
    assert "SCRAM-SHA-256=iterations=" in configs("--describe", "--user", "bob")[-1]


def test_a_producer_and_a_consumer_beyond_their_quotas_are_throttled_and_lose_nothing(
    configs: Any, bootstrap: str, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("throttled", 1)])["throttled"].result(30)
    for client, quota in (("greedy-producer", "producer_byte_rate"), ("greedy-consumer", "consumer_byte_rate")):
        configs("--alter", "--client", client, "--add-config", f"{quota}={LIMIT}")
    times: list[int] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": "greedy-producer", "throttle_cb": lambda e: times.append(1),
         "linger.ms": 0, "batch.num.messages": 1, "max.in.flight": 1}
    )  # fmt: skip
    producer.poll(0)
    count = LIMIT // SIZE + 2  # more than one second's worth
    for number in range(count):
        producer.produce("throttled", number.to_bytes(4, "big") * (SIZE // 4))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert times
    times.clear()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "client.id": "greedy-consumer", "group.id": "g",
         "auto.offset.reset": "earliest", "throttle_cb": lambda e: times.append(1),
         "fetch.message.max.bytes": 3 * SIZE}
    )  # fmt: skip
    consumer.assign([TopicPartition("throttled", 0, 0)])
    found = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        found.append(int.from_bytes(message.value()[:4], "big"))
    consumer.close()
    assert found == list(range(count))
    assert times


def test_kafkas_own_producer_beyond_its_quota_is_throttled(configs: Any, bootstrap: str, tools: KafkaTools) -> None:
    configs("--alter", "--client", "java-producer", "--add-config", f"producer_byte_rate={LIMIT}")
    said = tools.run(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "java-throttled", "--num-records", LIMIT // SIZE + 2,
        "--record-size", SIZE, "--throughput", "-1", "--print-metrics", "--producer-props",
        f"bootstrap.servers={bootstrap}", "client.id=java-producer", "linger.ms=0", "batch.size=0",
    )  # fmt: skip
    assert said.code == 0, said
    (longest,) = re.findall(r"producer-metrics:produce-throttle-time-max:\S+ *: *([\d.]+)", said.out)
    assert float(longest) > 0
