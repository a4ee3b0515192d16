"""Consumer groups work for clients with protocol versions of Kafka 0.8 to 0.10, on topics of every message format."""

import subprocess
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from kafka import KafkaConsumer, TopicPartition

from tests.harness import brokers, toolchain
from tests.harness.clients.confluent import Confluent
from tests.harness.clients.old import OLD

FORMATS = ("0.9.0", "0.10.2", "2.8")
COUNT = 20
PATIENCE_S = 30


@pytest.fixture(scope="module")
def old_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """Start a broker with a protocol version at which message.format.version is not ignored."""
    running = brokers.start(tmp_path_factory.mktemp("old"), {**brokers.QUICK, "inter.broker.protocol.version": "2.8"})
    client = Confluent(running.bootstrap)
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for version in FORMATS:
        client.create_topic(f"in-{version}", 2, {"message.format.version": version, "retention.ms": "-1"})
        for number in range(COUNT):
            producer.produce(f"in-{version}", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    client.close()
    yield running
    running.stop()


@pytest.mark.parametrize("version", [(0, 9), (0, 10), (0, 11), (1, 0)], ids=str)
def test_kafka_python(old_broker: brokers.Broker, version: tuple[int, int]) -> None:
    """Of two members one after the other, the second resumes at the offsets that the first has committed."""
    for stored in FORMATS:
        topic, group = f"in-{stored}", f"kafka-python-{version}-{stored}"
        places = [TopicPartition(topic, index) for index in range(2)]
        seen: list[bytes] = []
        for wanted in (COUNT // 2, COUNT):
            with KafkaConsumer(
                topic,
                bootstrap_servers=old_broker.bootstrap,
                api_version=version,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                max_poll_records=1,
            ) as consumer:
                deadline = time.monotonic() + PATIENCE_S
                while len(seen) < wanted:
                    assert time.monotonic() < deadline, (group, seen)
                    seen += [one.value for batch in consumer.poll(500).values() for one in batch]
                consumer.commit()
                assert sum(consumer.committed(one) or 0 for one in places) == wanted
        assert sorted(seen, key=int) == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
def test_librdkafka_without_api_versions_requests(old_broker: brokers.Broker, version: str) -> None:
    for stored in FORMATS:
        topic = f"in-{stored}"
        consumer = Consumer(
            {
                "bootstrap.servers": old_broker.bootstrap,
                "group.id": f"librdkafka-{version}-{stored}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "api.version.request": False,
                "broker.version.fallback": version,
            }
        )
        consumer.subscribe([topic])
        seen = []
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < COUNT:
            assert time.monotonic() < deadline, (stored, seen)
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None
                seen.append(message.value())
        assert sorted(seen, key=int) == [b"%d" % number for number in range(COUNT)]
        consumer.commit(asynchronous=False)
        committed = consumer.committed([Place(topic, index) for index in range(2)], PATIENCE_S)
        assert [one.offset for one in committed] == [COUNT // 2, COUNT // 2]
        consumer.close()


def java(tool: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of Kafka 0.10.2.2."""
    classpath = toolchain.maven_classpath(OLD / "pom-0.10.2.2.xml", "0.10.2.2")
    command = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += [f"-Dlog4j.configuration=file:{OLD / 'log4j.properties'}", "-cp", classpath, tool, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.other_runtime
def test_the_consumer_of_0_10(old_broker: brokers.Broker) -> None:
    """The console consumer and group command of Kafka 0.10.2.2 work."""
    output = java(
        "kafka.tools.ConsoleConsumer",
        *("--bootstrap-server", old_broker.bootstrap, "--whitelist", "in-.*", "--from-beginning"),
        *("--max-messages", str(len(FORMATS) * COUNT), "--timeout-ms", "30000"),
        *("--consumer-property", "group.id=java-0.10"),
    )
    assert sorted(map(int, output.stdout.split())) == sorted(list(range(COUNT)) * len(FORMATS)), output
    described = java(
        "kafka.admin.ConsumerGroupCommand",
        "--bootstrap-server",
        old_broker.bootstrap,
        "--describe",
        "--group",
        "java-0.10",
    )
    rows = [line.split() for line in described.stdout.splitlines() if line.startswith("in-")]
    assert sorted(row[:5] for row in rows) == [
        [f"in-{stored}", str(index), "10", "10", "0"] for stored in sorted(FORMATS) for index in range(2)
    ], described
