"""The records that a stream delivers, its position, and rebalances in the middle."""

import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.client.original.consuming.streams import Chunk, OwnedPartition, Stream
from kafkapy.client.original.errors import ConsumerTimeout
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.batch import BatchBuilder
from tests.harness.examples import examples


def batch(first: int, count: int) -> bytes:
    builder = BatchBuilder()
    for number in range(first, first + count):
        builder.append(0, b"%d" % number, None if number % 5 == 0 else b"%d" % number)
    return builder.build(base_offset=first)


def put(stream: Stream, owned: OwnedPartition, data: bytes, start: int) -> bool:
    return stream.put(Chunk(owned, memoryview(data), start))


@settings(max_examples=examples(60), deadline=None)
@given(
    chunks=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=8),
    taken=st.integers(0, 40),
)
def test_no_record_is_delivered_after_the_revocation_of_its_partition_and_none_is_lost(
    chunks: list[tuple[bool, int]], taken: int
) -> None:
    stream = Stream(0)
    two = [OwnedPartition(("t", "0"), stream, 0), OwnedPartition(("t", "1"), stream, 0)]
    ends = [0, 0]
    for second, count in chunks:
        assert put(stream, two[second], batch(ends[second], count), ends[second])
        ends[second] += count
    got = [next(stream) for _ in range(min(taken, sum(ends)))]
    stream.revoke([two[1]])
    assert not put(stream, two[1], batch(ends[1], 1), ends[1])
    with pytest.raises(ConsumerTimeout):
        got.extend(stream)
    for owned in two:
        offsets = [record.offset for record in got if record.partition == owned.where[1]]
        assert offsets == list(range(owned.consumed or 0))
    assert two[0].consumed == ends[0]


def test_records_delivered_during_a_revocation_are_before_the_consumed_offset() -> None:
    data = batch(0, 300)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # the threads take turns wherever they can
    try:
        for number in range(60):
            stream = Stream()
            owned = OwnedPartition(("t", "0"), stream, 0)
            put(stream, owned, data, 0)
            got: list[int] = []
            reader = threading.Thread(target=lambda stream=stream, got=got: got.extend(one.offset for one in stream))
            reader.start()
            while not got and number % 2:  # `extend` gives them one by one
                pass
            stream.revoke([owned])
            stands = owned.consumed
            stream.close()
            reader.join(10)
            assert got == list(range(stands or 0))
    finally:
        sys.setswitchinterval(switch)


def test_a_batch_that_begins_before_the_position_gives_the_records_from_the_position_on() -> None:
    stream = Stream(0)
    owned = OwnedPartition(("t", "3"), stream, 7)
    put(stream, owned, batch(5, 5), 7)
    first = next(stream)
    assert (first.topic, first.partition, first.offset, first.value) == ("t", 3, 7, b"7")
    assert owned.consumed == 8


def test_decoders_are_called_only_for_values_that_are_not_null() -> None:
    stream = Stream(0, key_decoder=int, value_decoder=bytes.decode)
    put(stream, OwnedPartition(("t", "0"), stream, 4), batch(4, 2), 4)
    decoded: list[Any] = [next(stream), next(stream)]
    assert [(record.key, record.value) for record in decoded] == [(4, "4"), (5, None)]


def test_a_corrupt_batch_raises_with_its_offset_and_other_partitions_continue() -> None:
    stream = Stream(0)
    bad, good = OwnedPartition(("t", "0"), stream, 0), OwnedPartition(("t", "1"), stream, 0)
    data = bytearray(batch(0, 3))
    data[-1] ^= 1
    put(stream, bad, bytes(data), 0)
    put(stream, bad, batch(3, 3), 3)
    put(stream, good, batch(0, 1), 0)
    with pytest.raises(KafkaError, match="t-0 at offset 0: ") as raised:
        next(stream)
    assert raised.value.code == Errors.CORRUPT_MESSAGE
    assert next(stream).partition == 1
    assert bad.consumed == 0


def test_the_fetcher_is_notified_when_the_stream_has_room() -> None:
    stream = Stream(0)
    owned = OwnedPartition(("t", "0"), stream, 0)
    notified = threading.Event()
    owned.room = notified.set
    put(stream, owned, batch(0, 2), 0)
    assert owned.waiting == 1
    next(stream)
    assert owned.waiting == 0
    assert notified.is_set()


def test_an_error_waits_for_the_records_before_it() -> None:
    stream = Stream(0)
    owned = OwnedPartition(("t", "0"), stream, 0)
    other = OwnedPartition(("t", "1"), stream, 0)
    put(stream, other, batch(0, 1), 0)
    stream.fail(owned, KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED))
    assert next(stream).partition == 1
    with pytest.raises(KafkaError):
        next(stream)
    with pytest.raises(ConsumerTimeout):
        next(stream)


def test_an_error_is_raised_after_earlier_records_of_its_partition_only() -> None:
    stream = Stream(0)
    owned, other = OwnedPartition(("t", "0"), stream, 0), OwnedPartition(("t", "1"), stream, 0)
    put(stream, owned, batch(0, 2), 0)
    stream.fail(owned, KafkaError(Errors.RECORD_LIST_TOO_LARGE))
    put(stream, other, batch(0, 1), 0)
    assert [next(stream).offset, next(stream).offset] == [0, 1]
    with pytest.raises(KafkaError):
        next(stream)
    assert next(stream).partition == 1
    assert owned.consumed == 2


def test_errors_of_a_revoked_partition_are_dropped() -> None:
    stream = Stream(0)
    owned = OwnedPartition(("t", "0"), stream, 0)
    stream.fail(owned, KafkaError(Errors.RECORD_LIST_TOO_LARGE))
    stream.revoke([owned])
    with pytest.raises(ConsumerTimeout):
        next(stream)


def test_closing_a_stream_also_ends_a_waiting_iteration() -> None:
    stream = Stream()
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(list(stream)))
    reader.start()
    stream.close()
    reader.join(10)
    assert found == [[]]
    late = OwnedPartition(("t", "0"), stream, 0)
    assert not put(stream, late, batch(0, 1), 0)
    stream.fail(late, KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED))
    assert list(stream) == []


def test_chunks_are_delivered_as_received_and_mark_nothing_consumed() -> None:
    stream = Stream()
    owned = OwnedPartition(("t", "3"), stream, 7)
    notified = threading.Event()
    owned.room = notified.set
    data = batch(5, 5)
    put(stream, owned, data, 7)
    chunk = stream.next_chunk(0)
    assert chunk is not None
    assert (chunk.where, bytes(chunk.data), chunk.start, owned.revoked) == (("t", 3), data, 7, False)
    assert (owned.consumed, owned.waiting, notified.is_set()) == (7, 0, True)
    assert stream.next_chunk(0) is None
    assert not stream.closed
    stream.mark(owned, 10)
    assert owned.consumed == 10


def test_chunks_of_a_revoked_partition_are_dropped_and_one_in_use_says_that_it_is_revoked() -> None:
    stream = Stream()
    gone, kept = OwnedPartition(("t", "0"), stream, 0), OwnedPartition(("t", "1"), stream, 0)
    put(stream, gone, batch(0, 1), 0)
    in_hand = stream.next_chunk(0)
    assert in_hand is not None
    put(stream, gone, batch(1, 1), 1)
    put(stream, kept, batch(0, 1), 0)
    stream.revoke([gone])
    assert in_hand.owned.revoked
    chunk = stream.next_chunk(0)
    assert chunk is not None
    assert chunk.where == ("t", 1)
    stream.close()
    assert stream.next_chunk() is None
    assert stream.closed


def test_next_chunk_raises_the_error_of_a_partition_that_cannot_be_read() -> None:
    stream = Stream()
    stream.fail(OwnedPartition(("t", "0"), stream, 0), KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaError):
        stream.next_chunk(0)
    assert stream.next_chunk(0) is None
