"""A broker that is killed by SIGKILL at random moments under load has all acknowledged records after the next start.

`KAFKAPY_FAULT_ROUNDS=200 python -m pytest tests/faults/test_kill_nine.py -s` runs the full length. A moment is a number
of acknowledgements since the last start. The seed is printed, and KAFKAPY_FAULT_SEED repeats the choices of a run.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.rounds import rounds
from tests.faults.traffic import Traffic
from tests.harness.brokers import KafkapyBroker
from tests.harness.clients.confluent import Confluent
from tests.harness.clients.kafka_python import KafkaPython
from tests.harness.clients.remote import Java3
from tests.harness.kafka_tools import complaints, kafka_dump

pytestmark = pytest.mark.not_quick

PARTITIONS = 2
ROUNDS = rounds(8)
MOST_ACKS = 3_000  # most acknowledgements of a writer between two kills
FILES_FOR_KAFKA = 150  # most files of each kind that Kafka's tool reads

# Small segments and frequent background work, so that kills also hit rolls and background jobs.
SETTINGS = {
    "log.segment.bytes": "131072",
    "log.index.interval.bytes": "1024",
    "log.initial.task.delay.ms": "50",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
}
IDEMPOTENT = {"enable.idempotence": True}
WRITERS = {
    "idempotent": IDEMPOTENT,
    "idempotent-lz4": {**IDEMPOTENT, "compression.type": "lz4"},
    "plain": {"enable.idempotence": False, "max.in.flight": 5},
    "one-ack-zstd": {"enable.idempotence": False, "acks": "1", "compression.type": "zstd"},
    "one-ack": {"enable.idempotence": False, "acks": "1"},
    "flushed": IDEMPOTENT,
    "retained": IDEMPOTENT,
    "trimmed": IDEMPOTENT,
}
TOPIC_SETTINGS = {"flushed": {"flush.messages": "1"}, "retained": {"retention.bytes": "400000"}}
IN_ORDER = [topic for topic, settings in WRITERS.items() if settings["enable.idempotence"]]


@dataclass
class Survived:
    broker: KafkapyBroker
    traffic: Traffic
    kills: int
    stored: dict[str, dict[int, tuple[int, list[int]]]]
    """By topic and partition: the log's start, and the numbers of the records from there on."""


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survived]:
    seed = int(os.environ.get("KAFKAPY_FAULT_SEED", random.randrange(1 << 32)))
    print(f"\nkill -9: seed {seed}")
    rng = random.Random(seed)
    directory = tmp_path_factory.mktemp("kill-nine")
    broker = KafkapyBroker(directory, SETTINGS)
    try:
        admin = Confluent(broker.bootstrap)
        for topic in WRITERS:
            admin.create_topic(topic, PARTITIONS, TOPIC_SETTINGS.get(topic))
        traffic = Traffic(broker.bootstrap, PARTITIONS, WRITERS, "trimmed", seed)
        traffic.begin()
        for _ in range(ROUNDS):
            # Sometimes kill at once, while logs are being recovered and producers reconnect.
            more = rng.choice((0, rng.randint(1, 100), rng.randint(1, MOST_ACKS), rng.randint(1, MOST_ACKS)))
            traffic.wait_for(rng.choice(list(WRITERS)), more)
            broker.kill()
            broker = KafkapyBroker(directory, SETTINGS, port=broker.port)  # clients reconnect to the same address
        traffic.end()
        stored = {topic: _stored(broker, topic) for topic in WRITERS}
        counts = {topic: len(writer.acknowledged) for topic, writer in traffic.writers.items()}
        print(
            f"kill -9: {ROUNDS} kills; acknowledged records: {counts}; deletions of records: {traffic.trimmer.done}; "
            f"topics made and there {len(traffic.churner.created)}, deleted {len(traffic.churner.deleted)}"
        )
        yield Survived(broker, traffic, ROUNDS, stored)
        if broker.process.child.poll() is None:
            broker.stop()
    finally:
        if broker.process.child.poll() is None:
            broker.kill()


def _stored(broker: KafkapyBroker, topic: str) -> dict[int, tuple[int, list[int]]]:
    """Return (log start offset, numbers) by partition. Check that the offsets have no gaps."""
    client = Confluent(broker.bootstrap)
    marks = client.watermarks(topic, range(PARTITIONS))
    got = client.fetch(topic, {p: low for p, (low, _) in marks.items()}, {p: high for p, (_, high) in marks.items()})
    for p, records in got.items():
        assert [one.offset for one in records] == list(range(*marks[p]))
    return {p: (marks[p][0], [int((one.value or b"").split()[0]) for one in records]) for p, records in got.items()}


@pytest.mark.parametrize("topic", WRITERS)
def test_every_acknowledged_record_is_where_it_was_acknowledged(survived: Survived, topic: str) -> None:
    acknowledged = survived.traffic.writers[topic].acknowledged
    assert len(acknowledged) > 100 * ROUNDS / len(WRITERS)
    wrong = []
    for partition, offset, number in acknowledged:
        start, numbers = survived.stored[topic][partition]
        if offset >= start and (offset - start >= len(numbers) or numbers[offset - start] != number):
            wrong.append((partition, offset, number))
    assert not wrong, f"{len(wrong)} acknowledged records are not there, the first is {wrong[0]}"


@pytest.mark.parametrize("topic", WRITERS)
def test_only_deleted_records_are_missing_from_the_start(survived: Survived, topic: str) -> None:
    for partition, (start, numbers) in survived.stored[topic].items():
        if topic == "retained":
            assert start == 0 or len(numbers) > 1000  # retention keeps some segments
        else:
            asked = survived.traffic.trimmer.asked.get(partition, 0) if topic == "trimmed" else 0
            assert start <= asked


@pytest.mark.parametrize("topic", IN_ORDER)
def test_records_of_idempotent_producers_are_there_once_and_in_order(survived: Survived, topic: str) -> None:
    assert survived.traffic.writers[topic].failed == []
    for partition, (_, numbers) in survived.stored[topic].items():
        twice = [number for number, times in Counter(numbers).items() if times > 1]
        assert not twice, f"partition {partition}: {len(twice)} records are there more than once, such as {twice[:3]}"
        assert numbers == sorted(numbers), f"partition {partition} is out of order"
        whole = range(numbers[0], numbers[-1] + 1, PARTITIONS)
        assert len(numbers) == len(whole), f"partition {partition} lacks {sorted(set(whole) - set(numbers))[:3]}"


def test_created_topics_are_there_and_deleted_topics_are_not(survived: Survived) -> None:
    churner = survived.traffic.churner
    client = Confluent(survived.broker.bootstrap)
    there = client.topic_names()
    assert churner.created <= there
    assert not churner.deleted & there
    assert len(churner.deleted) >= ROUNDS // 2
    for name in churner.created:
        assert [one.value for one in client.fetch(name, {0: 0}, {0: 1})[0]] == [name.encode()]


@pytest.mark.other_runtime
def test_other_clients_read_the_surviving_records(survived: Survived) -> None:
    topic = "idempotent-lz4"
    end = {p: start + len(numbers) for p, (start, numbers) in survived.stored[topic].items()}
    begin = {p: max(survived.stored[topic][p][0], offset - 4_000) for p, offset in end.items()}
    expected = {p: survived.stored[topic][p][1][begin[p] - survived.stored[topic][p][0] :] for p in end}
    for kind in (KafkaPython, Java3):
        client = kind(survived.broker.bootstrap)
        try:
            got = client.fetch(topic, begin, end)
        finally:
            client.close()
        assert {p: [int((r.value or b"").split()[0]) for r in records] for p, records in got.items()} == expected


@pytest.mark.other_runtime
def test_kafkas_tool_accepts_the_files_that_survived(survived: Survived) -> None:
    broker = survived.broker
    broker.stop()  # in the last test, since only a stop completes the indexes of active segments
    files = sorted(path.relative_to(broker.data) for path in broker.data.glob("*-[0-9]*/*"))
    logs = [path for path in files if path.suffix == ".log"]
    assert len(logs) > len(WRITERS) * PARTITIONS  # some have been rolled
    output = kafka_dump(broker.data, _some(logs), "--deep-iteration")
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    output += kafka_dump(broker.data, _some(indexes), "--verify-index-only")
    output += kafka_dump(broker.data, _some([path for path in files if path.suffix == ".snapshot"]))
    assert complaints(output) == ""


def _some(paths: list[Path]) -> list[Path]:
    return paths if len(paths) <= FILES_FOR_KAFKA else sorted(random.Random(7).sample(paths, FILES_FOR_KAFKA))
