"""Kafka 3.9.1 fills a directory, kafkapy adopts it and continues with it, and Kafka takes it back: no record is lost or
changed on the way, and neither broker logs errors."""

import re
import subprocess
import time
from itertools import cycle, islice
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from tests.harness.brokers import KafkaBroker, KafkapyBroker, Process, kafkapy_command
from tests.harness.clients.confluent import Confluent
from tests.harness.consumed import Read, consumed
from tests.harness.scenario import records

pytestmark = pytest.mark.other_runtime

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {"segment.bytes": "16384", "index.interval.bytes": "512", "retention.ms": "-1"}
OLD = 1_600_000_000_000  # timestamp of the records, far older than the default retention
PARTS = {f"sent-{codec}": 2 for codec in CODECS} | {
    "append-time": 1,
    "deleted": 1,
    "transactions": 2,
    "open": 1,
    "compacted": 1,
    "in-zookeeper-only": 1,
}
PARTITIONS = [(topic, partition) for topic, count in PARTS.items() for partition in range(count)]
View = dict[str, dict[tuple[str, int], object]]


def view_of(bootstrap: str) -> View:
    """Return everything that consumers can read from the partitions."""
    committed = consumed(bootstrap, PARTITIONS, "read_committed")
    uncommitted = consumed(bootstrap, PARTITIONS, "read_uncommitted")
    with Admin(bootstrap) as admin:
        first, following = (admin.offsets(dict.fromkeys(PARTITIONS, at)) for at in (EARLIEST, LATEST))
        times = {
            (where, at): admin.offsets({where: at})[where]
            for where in PARTITIONS
            for at in times_in(uncommitted[where])
        }
    return {
        "committed": dict(committed),
        "uncommitted": dict(uncommitted),
        "first": {where: found.offset for where, found in first.items()},
        "next": {where: found.offset for where, found in following.items()},
        "times": {(*where, at): (found.offset, found.timestamp) for (where, at), found in times.items()},
    }


def times_in(read: Read) -> list[int]:
    """Return some of the records' timestamps, the values next to them, and the extreme values."""
    some = {one.timestamp for one in read.records[:: max(1, len(read.records) // 4)]}
    return sorted({0, 1 << 62} | {time + step for time in some for step in (0, 1)})


def same(one: View, other: View) -> None:
    """Assert that two views are equal, piece by piece, so that a failure names the partition."""
    for part, found in one.items():
        for where, value in found.items():
            assert value == other[part][where], (part, where)
        assert found.keys() == other[part].keys()


def fill(broker: KafkaBroker) -> None:
    client = Confluent(broker.bootstrap)
    for topic, count in PARTS.items():
        own = {
            "append-time": {"message.timestamp.type": "LogAppendTime"},
            "compacted": {
                "cleanup.policy": "compact",
                "segment.bytes": "4096",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "0",
            },
        }.get(topic, {})
        client.create_topic(topic, count, {**SMALL, **own})
    for codec in CODECS:
        send(broker.bootstrap, f"sent-{codec}", 2, codec, 300)
    for topic in ("append-time", "deleted", "in-zookeeper-only"):
        send(broker.bootstrap, topic, 1, "lz4", 300)
    assert client.delete_records("deleted", {0: 150}) == {0: 150}
    send_transactions(broker.bootstrap)
    for _ in range(6):
        send(broker.bootstrap, "compacted", 1, "none", 60, keys=15)
    client.close()
    wait_for_the_cleaner(broker.data)


def send(bootstrap: str, topic: str, count: int, codec: str, number: int, *, keys: int = 0) -> None:
    """Send records with old timestamps in small batches with an idempotent producer."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 0,
            "batch.num.messages": 7,
        }
    )
    for index, record in enumerate(islice(cycle(records(topic)), number)):
        key = b"key %d" % (index % keys) if keys else record.key
        producer.produce(
            topic, record.value, key, index % count, timestamp=OLD + 1000 * index, headers=list(record.headers)
        )
    assert producer.flush(60) == 0


def send_transactions(bootstrap: str) -> None:
    """Send committed and aborted transactions over two partitions, and one that stays open."""

    def begun(name: str) -> Producer:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 900000}
        )
        producer.init_transactions(30)
        return producer

    producer = begun("round-trip")
    for number in range(6):
        producer.begin_transaction()
        for index in range(20):
            producer.produce("transactions", b"transaction %d, %d" % (number, index), b"k", index % 2)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
    left_open = begun("left-open")
    left_open.begin_transaction()
    left_open.produce("open", b"in an open transaction")
    assert left_open.flush(30) == 0
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce("open", b"behind it")
    assert plain.flush(30) == 0


def wait_for_the_cleaner(data: Path) -> None:
    deadline = time.monotonic() + 60
    checkpoint = data / "cleaner-offset-checkpoint"
    while not (checkpoint.exists() and re.search(r"^compacted 0 [1-9]", checkpoint.read_text(), re.MULTILINE)):
        assert time.monotonic() < deadline, "Kafka's cleaner did not come to the topic in 60 s"
        time.sleep(0.1)


def continue_with(bootstrap: str) -> None:
    """Send more records to every topic."""
    for codec in CODECS:
        send(bootstrap, f"sent-{codec}", 2, codec, 100)
    for topic in ("append-time", "deleted", "transactions", "open", "compacted", "in-zookeeper-only"):
        send(bootstrap, topic, PARTS[topic], "zstd", 50, keys=15)


def adopt(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*kafkapy_command(), "log", "adopt", str(data), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# Usual warnings of a start: the controller connects before the broker listens, the broker before ZooKeeper listens.
USUAL = re.compile(
    r"Connection to node 0 .* could not be established|Controller 0's connection to broker"
    r"|Attempting reconnect .*ClientCnxn"
)


def complaints(process: Process) -> list[str]:
    lines = [line for line in process.output.splitlines() if re.search(r" (WARN|WARNING|ERROR|FATAL|CRITICAL) ", line)]
    return [line for line in lines if not USUAL.search(line)]


def test_kafka_then_kafkapy_then_kafka(tmp_path: Path) -> None:
    settings = {
        "log.cleaner.backoff.ms": "100",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    kafka = KafkaBroker(tmp_path, settings)
    fill(kafka)
    filled = view_of(kafka.bootstrap)
    refused = adopt(kafka.data)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "in use by a running broker: stop it first" in refused.stderr
    kafka.stop_broker()
    adopted = adopt(kafka.data, "--zookeeper", kafka.zookeeper)
    kafka.stop()
    assert (adopted.returncode, adopted.stderr) == (0, "")
    assert re.search(r"^compacted .* ZooKeeper .*cleanup.policy=compact", adopted.stdout, re.MULTILINE)
    assert "stopped cleanly" in adopted.stdout
    # No topic or partition has a warning. The only one is about settings of the broker, which adoption cannot know.
    assert re.findall(r"^ *Take care: (.*)", adopted.stdout, re.MULTILINE) == [
        "where a topic has no setting of its own, the broker's setting holds, such as log.retention.hours."
    ]

    kafkapy = KafkapyBroker(tmp_path)
    same(filled, view_of(kafkapy.bootstrap))
    continue_with(kafkapy.bootstrap)
    grown = view_of(kafkapy.bootstrap)
    kafkapy.stop()
    assert complaints(kafkapy.process) == []

    kafka = KafkaBroker(tmp_path, settings)
    same(grown, view_of(kafka.bootstrap))
    # A new producer of Kafka must not get the id of a producer of kafkapy: its records would be taken for duplicates.
    send(kafka.bootstrap, "sent-none", 2, "none", 20)
    with Admin(kafka.bootstrap) as admin:
        for where in (("sent-none", 0), ("sent-none", 1)):
            assert admin.offsets({where: LATEST})[where].offset == grown["next"][where] + 10
    kafka.stop()
    assert complaints(kafka.process) == []
