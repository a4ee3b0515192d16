"""With the same history of transactions, kafkapy and Apache Kafka 3.9.1 answer every Fetch alike."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.record.batch import build
from tests.harness.brokers import KafkaBroker, KafkapyBroker
from tests.harness.wire import Producer, Wire

pytestmark = pytest.mark.other_runtime

TOPIC = "aborted"
STEPS = 250
# The history is written by hand, without AddPartitionsToTxn.
SETTINGS = {"transaction.partition.verification.enable": "false"}


@pytest.fixture(scope="module")
def wires(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Wire]]:
    directory: Path = tmp_path_factory.mktemp("aborted")
    theirs = KafkaBroker(directory / "theirs", SETTINGS)
    ours = KafkapyBroker(directory / "ours", SETTINGS)
    try:
        with Wire(ours.bootstrap) as one, Wire(theirs.bootstrap) as other:
            for wire in (one, other):
                wire.create_topic(TOPIC, 1, segment_bytes="2000", index_interval_bytes="150")
                replay(wire)
            yield [one, other]
    finally:
        ours.stop()
        theirs.stop()


def replay(wire: Wire) -> None:
    """Write transactions of all lengths with six producers. Most are aborted, and one is never ended."""
    rng = random.Random(5)
    sequences = dict.fromkeys(range(1, 7), 0)
    for step in range(STEPS):
        producer = Producer(rng.choice(list(sequences)), 0)
        if step == STEPS * 3 // 4:
            append(wire, Producer(99, 0), 0, 1)
        if rng.random() < 0.3:
            mark(wire, producer, commit=rng.random() < 0.3)
        else:
            count = rng.randint(1, 4)
            append(wire, producer, sequences[producer.id], count)
            sequences[producer.id] += count


def append(wire: Wire, producer: Producer, sequence: int, count: int) -> None:
    make = apis.PRODUCE.Request.TopicData
    data = build(
        [(-1, None, b"x" * 40, [])] * count,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    sets = [make(name=TOPIC, partition_data=[make.PartitionData(index=0, records=data)])]
    answer = wire.call(apis.PRODUCE, 11, transactional_id="any", acks=-1, timeout_ms=10_000, topic_data=sets)
    assert answer.responses[0].partition_responses[0].error_code == Errors.NONE


def mark(wire: Wire, producer: Producer, *, commit: bool) -> None:
    make = apis.WRITE_TXN_MARKERS.Request.Markers
    marker = make(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=commit,
        topics=[make.Topics(name=TOPIC, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    (answer,) = wire.call(apis.WRITE_TXN_MARKERS, 1, markers=[marker]).markers
    assert answer.topics[0].partitions[0].error_code == Errors.NONE


def fetched(wire: Wire, offset: int, max_bytes: int, isolation: int) -> tuple[Any, ...]:
    make = apis.FETCH.Request
    part = make.Topics.Partitions(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )
    answer = wire.call(
        apis.FETCH,
        12,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_epoch=-1,
        topics=[make.Topics(topic=TOPIC, partitions=[part])],
    )
    (one,) = answer.responses[0].partitions
    aborted = one.aborted_transactions
    if aborted is not None:
        aborted = [(entry.producer_id, entry.first_offset) for entry in aborted]
    return one.error_code, one.high_watermark, one.last_stable_offset, aborted, len(one.records or b"")


@pytest.mark.parametrize("max_bytes", [1, 300, 1000, 1 << 20])
@pytest.mark.parametrize("isolation", [0, 1])
def test_every_fetch_is_answered_as_by_kafka(wires: list[Wire], max_bytes: int, isolation: int) -> None:
    ours, theirs = wires
    end = theirs.end_offset(TOPIC, 0)
    stable = theirs.end_offset(TOPIC, 0, 1)
    assert ours.end_offset(TOPIC, 0) == end
    assert ours.end_offset(TOPIC, 0, 1) == stable < end
    lists = 0
    for offset in range(end + 1):
        answer = fetched(theirs, offset, max_bytes, isolation)
        assert fetched(ours, offset, max_bytes, isolation) == answer, offset
        lists += len(answer[3] or [])
    assert (lists > end // 2) == bool(isolation)
