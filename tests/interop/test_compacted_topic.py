"""Real clients write and read compacted topics, and Kafka's tool accepts the cleaned files."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness import brokers
from tests.harness.clients.base import Received, Record
from tests.harness.clients.registry import Clients
from tests.harness.kafka_tools import complaints, kafka_dump
from tests.harness.scenario import T0

pytestmark = pytest.mark.other_runtime

CLEANING = {"log.cleaner.backoff.ms": "50", "log.segment.delete.delay.ms": "100"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "6000",
    "index.interval.bytes": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "200",
}
WRITERS = {"confluent-kafka": "lz4", "java-3.9.1": "zstd", "kafka-python": "none", "franz-go": "snappy"}
READERS = ("java-3.9.1", "confluent-kafka")


@dataclass
class Written:
    data: Path
    bootstrap: str
    sent: dict[str, list[Record]] = field(default_factory=dict)  # by topic


def updates() -> list[Record]:
    """Return repeated updates of twenty keys. Two of the keys are deleted, one of them for good."""
    batches = []
    for number in range(1000):
        key = b"key %d" % (number % 20)
        gone = number in (703, 904) or (number % 20 == 7 and number > 300)
        value = None if gone else b"value %d " % number + b"x" * (number % 90)
        batches.append(Record(value, key=key, timestamp=T0 + number, partition=0))
    return batches


def wait_until_cleaned(data: Path, topics: list[str]) -> None:
    """Wait until each topic is clean up to the active segment, according to the checkpoint."""
    deadline = time.monotonic() + 60
    while True:
        try:
            lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
        except FileNotFoundError:
            lines = []
        clean = {line.split()[0]: int(line.split()[2]) for line in lines}
        active = {topic: max(int(path.stem) for path in (data / f"{topic}-0").glob("*.log")) for topic in topics}
        if clean == active:
            return
        assert time.monotonic() < deadline, f"clean up to {clean}, the active segments begin at {active}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Write a topic with each writer, and wait until it is cleaned. Check that the broker stops cleanly at the end."""
    broker = brokers.start(tmp_path_factory.mktemp("compacted"), CLEANING)
    clients = Clients(broker.bootstrap)
    written = Written(broker.data, broker.bootstrap)
    try:
        for writer, codec in WRITERS.items():
            topic = f"compacted-{writer}"
            clients["confluent-kafka"].create_topic(topic, 1, COMPACTED)
            written.sent[topic] = [clients[writer].express(record) for record in updates()]
            for begin in range(0, 1000, 25):
                clients[writer].produce(topic, written.sent[topic][begin : begin + 25], codec=codec)
        wait_until_cleaned(broker.data, list(written.sent))
        yield written
    finally:
        clients.close()
        broker.stop()


def check_against(sent: list[Record], received: list[Received]) -> None:
    """Check that the received records are among the sent ones, at their offsets, with the last record of every key."""
    offsets = [record.offset for record in received]
    assert offsets == sorted(set(offsets))
    for record in received:
        original = sent[record.offset]
        assert (record.key, record.value) == (original.key, original.value)
    table = {record.key: record.value for record in received}
    last = {record.key: record.value for record in sent}
    assert {key: value for key, value in last.items() if value is not None} == {
        key: value for key, value in table.items() if value is not None
    }


def test_every_reader_gets_the_last_value_of_every_key(written: Written) -> None:
    clients = Clients(written.bootstrap)
    try:
        for topic, sent in written.sent.items():
            for reader in READERS:
                received = clients[reader].fetch(topic, {0: 0}, {0: len(sent)})[0]
                assert len(received) < len(sent) / 2
                check_against(sent, received)
    finally:
        clients.close()


def test_a_record_without_a_key_is_refused(written: Written) -> None:
    clients = Clients(written.bootstrap)
    try:
        with pytest.raises(Exception, match=r"INVALID_RECORD|error 87|Broker failed to validate record"):
            clients["confluent-kafka"].produce(next(iter(written.sent)), [Record(b"no key", partition=0)])
    finally:
        clients.close()


def test_kafkas_tool_accepts_the_cleaned_files(written: Written) -> None:
    paths = [path.relative_to(written.data) for path in written.data.glob("compacted-*/*")]
    logs = sorted(path for path in paths if path.suffix == ".log")
    assert complaints(kafka_dump(written.data, logs, "--deep-iteration", "--print-data-log")) == ""
    # Indexes of active segments have their full size, with zeros after the entries, so they are left out.
    active = {max(path.stem for path in logs if path.parent == parent) for parent in {path.parent for path in logs}}
    indexes = sorted(path for path in paths if path.suffix in (".index", ".timeindex") and path.stem not in active)
    assert complaints(kafka_dump(written.data, indexes, "--verify-index-only")) == ""
