"""Transactions on the leader of a partition, request by request, with the error codes of Kafka 3.9: transactional
records, markers, and the records that readers get.

Run against Apache Kafka itself with KAFKAPY_INTEROP_BROKER=kafka.
"""

import time
from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.record.batch import build
from tests.harness.batches import iter_batches
from tests.harness.wire import Producer, Wire

READ_COMMITTED = 1
NOBODY = Producer(123_456_789, 0)


def batch(producer: Producer, sequence: int = 0, count: int = 1, *, transactional: bool = True) -> bytes:
    now = time.time_ns() // 1_000_000
    return build(
        [(now, b"k", b"v", [])] * count,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce(wire: Wire, name: str | None, topic: str, *sets: bytes, version: int = 11) -> list[int]:
    """Produce the sets, the first to partition 0, the next to partition 1, and so on. Return the error code of each."""
    make = apis.PRODUCE.Request.TopicData
    data = [make.PartitionData(index=index, records=records) for index, records in enumerate(sets)]
    answer = wire.call(
        apis.PRODUCE,
        version,
        transactional_id=name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[make(name=topic, partition_data=data)],
    )
    codes = {one.index: one.error_code for one in answer.responses[0].partition_responses}
    return [codes[index] for index in range(len(sets))]


def begun(wire: Wire, name: str, topic: str) -> Producer:
    """Begin a transaction with partition 0. Return its producer."""
    producer = wire.producer(name)
    assert wire.add(name, producer, [(topic, 0)]) == [Errors.NONE]
    return producer


def ended(wire: Wire, name: str, producer: Producer, *, commit: bool) -> None:
    assert wire.end(name, producer, commit) == Errors.NONE
    wire.wait_for_state(name, "CompleteCommit" if commit else "CompleteAbort")


def mark(
    wire: Wire, producer: Producer, *partitions: tuple[str, int], commit: bool = False, coordinator_epoch: int = 0
) -> list[int]:
    make = apis.WRITE_TXN_MARKERS.Request.Markers
    marker = make(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=commit,
        topics=[make.Topics(name=topic, partition_indexes=[index]) for topic, index in partitions],
        coordinator_epoch=coordinator_epoch,
    )
    (answer,) = wire.call(apis.WRITE_TXN_MARKERS, 1, markers=[marker]).markers
    codes = {(one.name, part.partition_index): part.error_code for one in answer.topics for part in one.partitions}
    return [codes[one] for one in partitions]


def fetch(wire: Wire, topic: str, offset: int = 0, isolation: int = READ_COMMITTED) -> Any:
    make = apis.FETCH.Request
    part = make.Topics.Partitions(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1, last_fetched_epoch=-1
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
        topics=[make.Topics(topic=topic, partitions=[part])],
    )
    return answer.responses[0].partitions[0]


def producers(wire: Wire, topic: str) -> dict[int, Any]:
    make = apis.DESCRIBE_PRODUCERS.Request.Topics
    answer = wire.call(apis.DESCRIBE_PRODUCERS, 0, topics=[make(name=topic, partition_indexes=[0])])
    return {one.producer_id: one for one in answer.topics[0].partitions[0].active_producers}


@pytest.mark.parametrize("version", range(3, 12))
def test_a_partition_that_was_not_added_is_not_written_to(wire: Wire, topic: str, name: str, version: int) -> None:
    producer = begun(wire, name, topic)
    refused = Errors.TRANSACTION_ABORTABLE if version >= 11 else Errors.INVALID_TXN_STATE
    assert produce(wire, name, topic, batch(producer), batch(producer), version=version) == [Errors.NONE, refused]
    assert wire.add(name, producer, [(topic, 1)]) == [Errors.NONE]
    assert produce(wire, name, topic, batch(producer, 1), batch(producer), version=version) == [Errors.NONE] * 2
    ended(wire, name, producer, commit=True)


def test_records_after_the_marker_begin_no_transaction(wire: Wire, topic: str, name: str) -> None:
    """Such records caused the hanging transactions of KIP-890."""
    producer = begun(wire, name, topic)
    assert produce(wire, name, topic, batch(producer)) == [Errors.NONE]
    ended(wire, name, producer, commit=False)
    assert produce(wire, name, topic, batch(producer, 1)) == [Errors.TRANSACTION_ABORTABLE]
    assert wire.end_offset(topic, 0, READ_COMMITTED) == wire.end_offset(topic, 0) == 2


def test_a_fenced_producer_gets_an_error(wire: Wire, topic: str, name: str) -> None:
    first = begun(wire, name, topic)
    assert produce(wire, name, topic, batch(first)) == [Errors.NONE]
    second = wire.producer(name)
    assert second.epoch > first.epoch
    assert produce(wire, name, topic, batch(first, 1)) == [Errors.INVALID_PRODUCER_EPOCH]
    assert wire.end_offset(topic, 0, READ_COMMITTED) == 2


def test_a_producer_that_the_coordinator_does_not_know_is_refused(wire: Wire, topic: str, name: str) -> None:
    begun(wire, name, topic)
    assert produce(wire, name, topic, batch(NOBODY)) == [Errors.INVALID_PRODUCER_ID_MAPPING]
    assert produce(wire, f"no-such-{name}", topic, batch(NOBODY)) == [Errors.INVALID_PRODUCER_ID_MAPPING]


def test_records_of_a_transaction_need_its_id_and_one_producer(wire: Wire, topic: str, name: str) -> None:
    producer = begun(wire, name, topic)
    plain = batch(Producer(-1, -1), -1, transactional=False)
    refused = Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(wire, None, topic, batch(producer), plain) == [refused] * 2
    assert produce(wire, name, topic, batch(producer), batch(NOBODY)) == [Errors.INVALID_PRODUCER_ID_MAPPING] * 2
    assert produce(wire, name, topic, plain) == [Errors.NONE]


def test_a_producer_cannot_write_outside_of_its_transaction(wire: Wire, topic: str, name: str) -> None:
    producer = begun(wire, name, topic)
    assert produce(wire, name, topic, batch(producer)) == [Errors.NONE]
    assert produce(wire, None, topic, batch(producer, 1, transactional=False)) == [Errors.INVALID_TXN_STATE]
    ended(wire, name, producer, commit=True)


def test_read_committed_ends_before_the_open_transaction(wire: Wire, topic: str, name: str) -> None:
    plain = batch(Producer(-1, -1), -1, 2, transactional=False)
    assert produce(wire, None, topic, plain) == [Errors.NONE]
    producer = begun(wire, name, topic)
    assert produce(wire, name, topic, batch(producer, 0, 3)) == [Errors.NONE]
    assert produce(wire, None, topic, plain) == [Errors.NONE]
    assert (wire.end_offset(topic, 0, READ_COMMITTED), wire.end_offset(topic, 0)) == (2, 7)
    read = fetch(wire, topic)
    assert (read.last_stable_offset, read.high_watermark, read.aborted_transactions) == (2, 7, [])
    assert [one.last_offset for one in iter_batches(bytes(read.records))] == [1]
    everything = fetch(wire, topic, isolation=0)
    assert everything.aborted_transactions is None
    assert [one.last_offset for one in iter_batches(bytes(everything.records))] == [1, 4, 6]
    ended(wire, name, producer, commit=False)
    read = fetch(wire, topic)
    assert read.last_stable_offset == read.high_watermark == 8
    assert [(one.producer_id, one.first_offset) for one in read.aborted_transactions] == [(producer.id, 2)]
    assert [(one.last_offset, one.is_control) for one in iter_batches(bytes(read.records))][-1] == (7, True)
    assert fetch(wire, topic, 5).aborted_transactions == read.aborted_transactions
    assert fetch(wire, topic, 8).aborted_transactions == []


def test_markers_are_fenced_by_epochs(wire: Wire, topic: str) -> None:
    producer = Producer(900_001, 5)
    assert mark(wire, producer, (topic, 0), coordinator_epoch=3) == [Errors.NONE]
    assert mark(wire, Producer(producer.id, 4), (topic, 0), coordinator_epoch=4) == [Errors.INVALID_PRODUCER_EPOCH]
    assert mark(wire, producer, (topic, 0), coordinator_epoch=2) == [Errors.TRANSACTION_COORDINATOR_FENCED]
    unknown = Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert mark(wire, producer, ("no-such-topic", 0), (topic, 1), (topic + "-none", 3)) == [
        unknown,
        Errors.NONE,
        unknown,
    ]
    assert wire.end_offset(topic, 0) == wire.end_offset(topic, 1) == 1


def test_a_transaction_that_hangs_is_found_and_aborted(wire: Wire, topic: str, name: str) -> None:
    """The requests are those of Kafka's TransactionsCommand."""
    producer = begun(wire, name, topic)
    assert produce(wire, name, topic, batch(producer, 0, 2)) == [Errors.NONE]
    found = producers(wire, topic)[producer.id]
    assert (found.producer_epoch, found.last_sequence, found.coordinator_epoch) == (producer.epoch, 1, -1)
    assert found.current_txn_start_offset == 0
    assert wire.end_offset(topic, 0, READ_COMMITTED) == 0
    assert mark(wire, producer, (topic, 0)) == [Errors.NONE]
    assert wire.end_offset(topic, 0, READ_COMMITTED) == 3
    after = producers(wire, topic)[producer.id]
    assert (after.current_txn_start_offset, after.coordinator_epoch, after.last_sequence) == (-1, 0, 1)
