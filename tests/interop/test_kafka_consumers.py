"""The consumer tools of Apache Kafka 3.9.1 work as group members."""

import re

import pytest

from tests.harness import brokers
from tests.harness.clients.base import Record
from tests.harness.clients.confluent import Confluent
from tests.harness.clients.registry import Clients
from tests.harness.kafka_tools import KafkaTools

pytestmark = pytest.mark.other_runtime

PARTITIONS = 3


@pytest.fixture
def filled(coordinated: Clients, topic_name: str) -> tuple[str, list[bytes], Confluent]:
    """Return (topic, its values, a client for checks)."""
    admin = coordinated["confluent-kafka"]
    assert isinstance(admin, Confluent)
    admin.create_topic(topic_name, PARTITIONS)
    values = [b"value %d" % number for number in range(3000)]
    admin.produce(topic_name, [Record(value, partition=number % PARTITIONS) for number, value in enumerate(values)])
    return topic_name, values, admin


def test_the_console_consumer_reads_in_a_group_and_resumes(
    filled: tuple[str, list[bytes], Confluent], tools: KafkaTools, coordinator: brokers.Broker
) -> None:
    topic, values, admin = filled
    options = ["--bootstrap-server", coordinator.bootstrap, "--topic", topic, "--group", topic, "--from-beginning"]
    read: list[str] = []
    for count in (1000, 2000):  # the tool ends after so many records, and commits
        output = tools.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *options, "--max-messages", count)
        assert f"Processed a total of {count} messages" in output.out + output.err
        read += [line for line in output.out.splitlines() if line.startswith("value ")]
    assert sorted(read) == sorted(value.decode() for value in values)
    assert admin.committed(topic, topic) == dict.fromkeys(range(PARTITIONS), 1000)


def test_the_console_consumer_reads_committed_records(
    coordinated: Clients, tools: KafkaTools, coordinator: brokers.Broker, topic_name: str
) -> None:
    writer = coordinated["confluent-kafka"]
    writer.create_topic(topic_name, 1)
    writer.open_transactional(topic_name)
    for word, outcome in (("kept", "commit"), ("regretted", "abort"), ("kept too", "commit")):
        writer.transact(topic_name, topic_name, [Record(word.encode(), partition=0)], outcome)
    writer.close_transactional(topic_name)
    where = ["--bootstrap-server", coordinator.bootstrap, "--topic", topic_name, "--from-beginning"]
    output = tools.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *where,
        *("--isolation-level", "read_committed", "--max-messages", 2),
    )
    assert [line for line in output.out.splitlines() if line] == ["kept", "kept too"], output


def test_kafkas_consumer_performance_test_reads_all_records_in_a_group(
    filled: tuple[str, list[bytes], Confluent], tools: KafkaTools, coordinator: brokers.Broker
) -> None:
    topic, values, admin = filled
    options = ["--bootstrap-server", coordinator.bootstrap, "--topic", topic, "--group", topic]
    output = tools.run("org.apache.kafka.tools.ConsumerPerformance", *options, "--messages", len(values))
    assert output.code == 0, output
    figures = re.search(r"^20\d\d-.*$", output.out, re.MULTILINE)
    assert figures is not None, output
    assert int(figures[0].split(", ")[4]) == len(values)
    assert admin.committed(topic, topic) == dict.fromkeys(range(PARTITIONS), 1000)
