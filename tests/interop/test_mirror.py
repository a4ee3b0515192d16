"""Mirrors copy from old brokers of Kafka by way of ZooKeeper, and from and to Apache Kafka 3.9.1."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkapy.client import Admin, Consumer, KeyedMessage, NewTopic, Producer, RecordProducer
from kafkapy.client.fetched import ConsumerRecord
from kafkapy.client.producing.partitioner import partition_of_key
from tests.harness.broker_08 import Kafka08Broker
from tests.harness.brokers import KafkaBroker, KafkapyBroker, Process, kafkapy_command
from tests.harness.zookeeper import ZooKeeper

pytestmark = pytest.mark.other_runtime

PATIENCE_S = 60.0
RECORDS = 500


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkapyBroker]:
    broker = KafkapyBroker(tmp_path_factory.mktemp("target"), {"group.initial.rebalance.delay.ms": "0"})
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    quick = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), {**quick, "transaction.state.log.num.partitions": "3"})
    yield broker
    broker.stop()


@pytest.fixture
def mirror(tmp_path: Path) -> Callable[..., Process]:
    def start(source: str, target: str, *words: str) -> Process:
        (tmp_path / "source.properties").write_text(source)
        (tmp_path / "target.properties").write_text(target)
        files = ["--consumer", f"{tmp_path}/source.properties", "--producer", f"{tmp_path}/target.properties"]
        return Process([*kafkapy_command(), "mirror", *files, *words], tmp_path / "mirror.log")

    return start


def arrived(servers: str, topic: str, count: int) -> list[ConsumerRecord]:
    """Wait until the topic has `count` records. Return them."""
    deadline = time.monotonic() + PATIENCE_S
    with Admin(servers) as admin:
        while topic not in {one.name for one in admin.list_topics()}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with Consumer(servers, isolation="read_committed") as consumer:
        consumer.assign_topic(topic)
        found: list[ConsumerRecord] = []
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            found += consumer.poll()
        return found


@pytest.mark.parametrize("version", ["0.8.2.2", "0.10.2.2"])
def test_an_old_source_is_read_through_zookeeper(
    version: str, keeper: ZooKeeper, target: KafkapyBroker, tmp_path: Path, mirror: Callable[..., Process]
) -> None:
    topic = f"from-{version}"
    connect = f"{keeper.address}/{version}"
    source = Kafka08Broker(tmp_path / "source", connect, version)
    properties = f"zookeeper.connect={connect}\ngroup.id=g\nzookeeper.session.timeout.ms=2000\n"
    try:
        with Producer({"metadata.broker.list": source.bootstrap, "compression.codec": "gzip"}) as producer:
            producer.send([KeyedMessage(topic, b"%d" % n, b"k%d" % (n % 7)) for n in range(RECORDS)])
        running = mirror(properties, f"bootstrap.servers={target.bootstrap}\n", "--whitelist", f"{topic},other")
        found = arrived(target.bootstrap, topic, RECORDS)
        assert running.stop() == 0, running.output
        assert sorted(int(record.value or b"") for record in found) == list(range(RECORDS))
        assert all(record.partition == partition_of_key(record.key or b"", 3) for record in found)
        again = mirror(properties, f"metadata.broker.list={target.bootstrap}\n", "--blacklist=x")
        with Producer({"metadata.broker.list": source.bootstrap}) as producer:
            producer.send(KeyedMessage(topic, b"last", b"k"))
        values = [record.value for record in arrived(target.bootstrap, topic, RECORDS + 1)]
        assert again.stop() == 0, again.output
        assert len(set(values)) == len(values) == RECORDS + 1  # the mirror resumed at the group's offsets
    finally:
        source.stop()


@pytest.mark.parametrize("words", [[], ["--exactly-once", "--keep-partitions"]], ids=["at-least-once", "exactly-once"])
def test_from_and_to_apache_kafka(
    words: list[str], target: KafkapyBroker, kafka: KafkaBroker, mirror: Callable[..., Process]
) -> None:
    for source, other in ((kafka, target), (target, kafka)):
        topic = f"from-{source.kind}-{len(words)}"
        now_ms = int(time.time() * 1000)  # otherwise retention would delete the records
        with Admin(source.bootstrap) as admin, RecordProducer(source.bootstrap, codec=4) as producer:
            admin.create_topics([NewTopic(topic, 4)])
            for n in range(RECORDS):
                key = b"k%d" % (n % 7) if n % 2 else None
                value = b"%d" % n if n % 5 else None
                producer.send(topic, value, key, headers=(("n", b"%d" % n), ("null", None)), timestamp=now_ms + n)
            producer.flush()
        running = mirror(
            f"bootstrap.servers={source.bootstrap}\ngroup.id=g\n",
            f"bootstrap.servers={other.bootstrap}\ncompression.type=lz4\n",
            "--whitelist",
            topic,
            *words,
        )
        found = arrived(other.bootstrap, topic, RECORDS)
        assert running.stop() == 0, running.output
        with Consumer(source.bootstrap) as consumer:
            consumer.assign_topic(topic)
            copied = list(consumer.records(until=consumer.end_offsets()))
        assert sorted(map(facts, found)) == sorted(map(facts, copied))
        # With the same number of partitions, keys choose the same partitions.
        stay = [[one for one in records if one.key is not None or words] for records in (found, copied)]
        there, here = (sorted((one.partition, *facts(one)) for one in records) for records in stay)
        assert there == here


def facts(record: ConsumerRecord) -> tuple[str, str, str, int]:
    """Return the fields that must stay unchanged, in a sortable form."""
    return repr(record.headers), repr(record.key), repr(record.value), record.timestamp
