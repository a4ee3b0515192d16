"""A leader and a follower, one of Kafka and one of kafkapy, have the same bytes, whatever is in the log."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.cluster.replicas import differences
from tests.cluster.segments import BadLog, read_batches, records_of
from tests.harness import toolchain
from tests.harness.brokers import KAFKA_POM, KAFKA_VERSION, Process
from tests.harness.cluster import Cluster
from tests.harness.kafka_tools import complaints, kafka_dump
from tests.harness.raw_sets import gzipped, message
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(300)]
LEADER, FOLLOWER = 1, 2
PAIRS = {
    "kafkapy follows kafka": ("kafka", "kafkapy"),
    "kafka follows kafkapy": ("kafkapy", "kafka"),
}
TWO_BROKERS = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "message.max.bytes": str(4 << 20),
    # So that a leader that restarts before the other broker keeps its partitions.
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture(scope="module", params=list(PAIRS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), PAIRS[request.param], TWO_BROKERS) as running:
        yield running


def create(cluster: Cluster, topic: str, **configs: str) -> None:
    """Create a topic of one partition, led by the first broker and followed by the second."""
    cluster.create_topic(topic, 1, on=[(LEADER, FOLLOWER)], **configs)


def replicas(cluster: Cluster, topic: str) -> dict[int, Path]:
    return {number: cluster[number].data / f"{topic}-0" for number in (LEADER, FOLLOWER)}


def wait_until_equal(cluster: Cluster, topic: str, least: int) -> None:
    """Wait until both logs have `least` or more batches and the same bytes and epochs. Kafka's tool must agree."""
    directories = replicas(cluster, topic)

    deadline = time.monotonic() + 60
    while (different := differences(directories)) or len(read_batches(directories[FOLLOWER])) < least:
        assert time.monotonic() < deadline, f"{different}\n{cluster.ends_of_logs()}"
        time.sleep(0.1)
    dumps = [_dump(directory) for directory in directories.values()]
    assert dumps[0] == dumps[1]
    assert complaints("\n".join(dumps[0])) == ""


def _dump(directory: Path) -> list[str]:
    """Return DumpLogSegments' lines about a log's batches and records, without the positions in files."""
    said = kafka_dump(directory, sorted(directory.glob("*.log")), "--deep-iteration", "--print-data-log")
    kept = (re.sub(r" position: \d+", "", line) for line in said.splitlines())
    return [line for line in kept if not line.startswith(("Dumping ", "Log starting offset: "))]


class Writer:
    """A producer whose `flush` fails unless all records are acknowledged."""

    def __init__(self, cluster: Cluster, **settings: object) -> None:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 20, **named})
        self._errors: list[str] = []

    def produce(self, topic: str, value: bytes | None, key: bytes | None = None, **more: Any) -> None:
        self.producer.produce(topic, value, key, on_delivery=self._delivered, **more)

    def flush(self) -> None:
        assert self.producer.flush(60) == 0
        assert self._errors == []

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(str(error))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_with_keys_headers_and_empty_values(cluster: Cluster, codec: str) -> None:
    topic = f"codec-{codec}"
    create(cluster, topic)
    writer = Writer(cluster, compression_type=codec, enable_idempotence=True)
    for number in range(300):
        value = None if number % 7 == 0 else b"v" * (number * 3)
        key = None if number % 5 == 0 else b"key-%d" % number
        headers = [("a", b"1"), ("a", None), ("\u00e4", b"")] if number % 3 == 0 else None
        writer.produce(topic, value, key, headers=headers, timestamp=1_700_000_000_000 + number)
        if number % 50 == 0:
            writer.flush()
    writer.flush()
    wait_until_equal(cluster, topic, least=7)


def test_batches_larger_than_a_fetch(cluster: Cluster) -> None:
    create(cluster, "large", segment_bytes=str(16 << 20))
    writer = Writer(cluster, message_max_bytes=4 << 20)
    for size in (10, 3 << 20, 10, 2 << 20):
        writer.produce("large", bytes(size))
        writer.flush()
    wait_until_equal(cluster, "large", least=4)


def test_many_segments(cluster: Cluster) -> None:
    create(cluster, "segments", segment_bytes=str(1 << 14))
    writer = Writer(cluster)
    for number in range(200):
        writer.produce("segments", b"%d" % number * 300)
        if number % 5 == 0:
            writer.flush()
    writer.flush()
    wait_until_equal(cluster, "segments", least=20)
    assert all(len(list(directory.glob("*.log"))) > 3 for directory in replicas(cluster, "segments").values())


def test_transactions_that_commit_and_abort(cluster: Cluster) -> None:
    create(cluster, "transactions", segment_bytes=str(1 << 14))
    writers = [Writer(cluster, transactional_id=f"writer-{n}") for n in range(2)]
    for writer in writers:
        writer.producer.init_transactions(60)
    for number in range(20):
        for writer in writers:
            writer.producer.begin_transaction()
            writer.produce("transactions", b"%d" % number * 400)
            writer.flush()
        for index, writer in enumerate(writers):
            if (number + index) % 3:
                writer.producer.commit_transaction(60)
            else:
                writer.producer.abort_transaction(60)
    wait_until_equal(cluster, "transactions", least=80)
    indexes = {
        number: [
            re.sub(r" position: \d+", "", line)
            for file in sorted(directory.glob("*.txnindex"))
            if file.stat().st_size
            for line in kafka_dump(directory, [file]).splitlines()
            if not line.startswith("Dumping ")
        ]
        for number, directory in replicas(cluster, "transactions").items()
    }
    assert indexes[LEADER] == indexes[FOLLOWER]
    assert len(indexes[LEADER]) == 13


def _latest(directory: Path) -> dict[bytes, tuple[int, bytes]]:
    """Return offset and value of each key's latest record, without keys whose latest record is a tombstone."""
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    for batch in read_batches(directory):
        for record in records_of(batch):
            assert record.key is not None
            latest[record.key] = (record.offset, record.value)
    return {key: (offset, value) for key, (offset, value) in latest.items() if value is not None}


def test_a_compacted_topic_by_its_content(cluster: Cluster) -> None:
    create(
        cluster,
        "compacted",
        cleanup_policy="compact",
        segment_bytes=str(1 << 14),
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="1000",
    )
    writer = Writer(cluster, compression_type="lz4")
    for number in range(2000):
        writer.produce("compacted", None if number % 11 == 0 else b"v%d" % number, b"%d" % (number * 7 % 100))
        if number % 20 == 0:
            writer.flush()
    writer.flush()
    directories = replicas(cluster, "compacted")

    def compacted() -> bool:
        counts = [sum(1 for batch in read_batches(each) for _ in records_of(batch)) for each in directories.values()]
        return all(count < 1900 for count in counts)

    def equal() -> bool:
        return _latest(directories[LEADER]) == _latest(directories[FOLLOWER])

    eventually(lambda: _unless_replaced(compacted), seconds=60, what=f"not compacted\n{cluster.ends_of_logs()}")
    eventually(lambda: _unless_replaced(equal), what="the contents of the compacted log differ")


def _unless_replaced(condition: Callable[[], bool]) -> bool:
    """Return the value of a condition on a log's files, or False if the log cleaner replaced a file meanwhile."""
    try:
        return condition()
    except (FileNotFoundError, BadLog):
        return False


def test_a_log_of_formats_0_and_1_that_was_there_before(cluster: Cluster) -> None:
    """A follower gets old messages unchanged, and then batches of format 2."""
    create(cluster, "old")
    for number in (FOLLOWER, LEADER):
        cluster[number].stop()
    messages = [message(b"value-%d" % n, key=b"%d" % n, offset=n) for n in range(20)]
    inner = [message(b"inner-%d" % n, offset=n) for n in range(20, 25)]
    messages.append(gzipped(inner, offset=24))
    messages += [message(b"one-%d" % n, offset=n, magic=1, timestamp=1_700_000_000_000 + n) for n in range(25, 40)]
    relative = [message(b"inner-%d" % n, offset=n, magic=1, timestamp=1_700_000_000_000) for n in range(5)]
    messages.append(gzipped(relative, offset=44, magic=1, timestamp=1_700_000_000_000))
    directory = replicas(cluster, "old")[LEADER]
    for file in directory.glob("0*"):
        file.unlink()
    (directory / f"{0:020}.log").write_bytes(b"".join(messages))
    (cluster[LEADER].data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for number in (LEADER, FOLLOWER):
        cluster[number].start()
        cluster[number].wait_until_started()
    cluster.wait_until_quiet()
    expected = b"".join(messages)
    follower = replicas(cluster, "old")[FOLLOWER]
    eventually(lambda: b"".join(file.read_bytes() for file in sorted(follower.glob("*.log"))) == expected, seconds=60)
    writer = Writer(cluster)
    writer.produce("old", b"new")
    writer.flush()

    def equal() -> bool:
        logs = [(each / f"{0:020}.log").read_bytes() for each in replicas(cluster, "old").values()]
        return logs[0] == logs[1] and len(logs[0]) > len(expected) and logs[0].startswith(expected)

    eventually(equal, seconds=60)


def test_the_replica_verification_tool_finds_no_difference(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, "verified")
    writer = Writer(cluster, compression_type="zstd")
    for number in range(500):
        writer.produce("verified", b"%d" % number * 50)
    writer.flush()
    classpath = toolchain.maven_classpath(KAFKA_POM, KAFKA_VERSION)
    command = [*cluster.inside_clients(), toolchain.find("java"), "-Xmx256m", "-cp", classpath]
    command += ["org.apache.kafka.tools.ReplicaVerificationTool", "--broker-list", cluster.bootstrap]
    command += ["--topics-include", "verified|codec-.*", "--report-interval-ms", "500"]
    tool = Process(command, tmp_path / "tool.log")
    try:
        tool.wait_for_line(re.compile(r"max lag is 0 for partition"), 60)
        assert not [line for line in tool.lines if "Partition" in line and "differ" in line], tool.output
    finally:
        tool.kill()
