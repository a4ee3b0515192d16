"""Batches for target partitions have the records that a consumer of the source gets, by the record decoder."""

import random
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext.batch import check
from kafkapy.client.fetched import read_records
from kafkapy.client.producing.partitioner import partition_of_key
from kafkapy.record import compression, control
from kafkapy.record.batch import BatchBuilder, build, records_of
from kafkapy.record.columns import DamagedBatch
from kafkapy.record.legacy import build_set
from kafkapy.record.rebatch import Rebatcher
from tests.harness.examples import examples
from tests.harness.markers import encode_marker

MAYBE = st.none() | st.binary(max_size=30)
# A normal timestamp, none at all, or one far from the others.
TIMES = st.integers(1_700_000_000_000, 1_700_000_001_000) | st.just(-1) | st.integers(-(2**62), 2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=8), MAYBE), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(TIMES, MAYBE, MAYBE, HEADERS), min_size=1, max_size=6)
MESSAGES = st.lists(st.tuples(st.integers(0, 2**62), MAYBE, MAYBE), min_size=1, max_size=6)
BATCH = st.tuples(st.just("batch"), RECORDS, st.integers(0, 4), st.integers(0, 1))
OLD = st.tuples(st.just("old"), MESSAGES, st.integers(0, 1), st.integers(0, 3))
SENT = st.tuples(st.just("sent"), RECORDS, st.integers(1, 2), st.integers(0, 4))
MARKER = st.tuples(st.just("marker"), st.integers(1, 2), st.booleans())


class Partition:
    """A source partition like a log: its entries one after the other, with gaps as compaction leaves them."""

    def __init__(self, steps):
        self.end = 0
        self._entries = []  # (offset after the entry, bytes)
        self._aborted = []  # (producer, first offset of its transaction, offset of its marker)
        self._open = {}  # producer -> first offset of its transaction
        for (kind, *rest), gap in steps:
            self.end += gap
            getattr(self, kind)(*rest)

    def batch(self, records, codec, timestamp_type):
        self._put(build(records, codec=codec, base_offset=self.end, timestamp_type=timestamp_type), len(records))

    def old(self, messages, magic, codec):
        self._put(build_set(messages, magic, codec, base_offset=self.end), len(messages))

    def sent(self, records, producer, codec):
        self._open.setdefault(producer, self.end)
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        self._put(build(records, codec=codec, base_offset=self.end, **fields), len(records))

    def marker(self, producer, abort):
        first = self._open.pop(producer, None)
        if abort and first is not None:
            self._aborted.append((producer, first, self.end))
        kind = control.ABORT if abort else control.COMMIT
        fields = {"producer_id": producer, "producer_epoch": 0, "transactional": True, "control": True}
        record = (5, control.encode_key(kind), encode_marker(0), ())
        self._put(build([record], base_offset=self.end, **fields), 1)

    def _put(self, data, count):
        self.end += count
        self._entries.append((self.end, data))

    def fetch(self, position, whole, cut):
        """Return `whole` complete entries from the position's entry on with the beginning of the next entry, and the
        aborted transactions that have not ended before them."""
        data = [entry for end, entry in self._entries if end > position]
        aborted = [(producer, first) for producer, first, marker in self._aborted if marker >= position]
        return memoryview(b"".join(data[:whole]) + b"".join(data[whole:])[:cut]), aborted

    def records(self, start):
        """Return the records that a read_committed consumer gets from `start` on."""
        data, _ = self.fetch(0, len(self._entries), 0)
        aborted = [(producer, first) for producer, first, _ in self._aborted]
        return [contents(record) for record in read_records(("t", 3), data, start, aborted)[0]]


PARTITIONS = st.lists(st.tuples(st.one_of(BATCH, OLD, SENT, MARKER), st.integers(0, 2)), min_size=1, max_size=8)


def contents(record):
    return record.timestamp, record.key, record.value, tuple(record.headers)


def found_in(batches):
    """Return the records of each batch, by target."""
    found = defaultdict(list)
    for batch in batches:
        data = batch.build()
        header = check(data)
        records = records_of(data, header)
        assert [record.offset for record in records] == list(range(len(records)))
        assert header.max_timestamp == max(record.timestamp for record in records)
        assert (header.magic, header.timestamp_type, batch.count) == (2, 0, len(records))
        found[batch.topic, batch.partition].append([contents(record) for record in records])
    return found


def flat(groups):
    return [record for group in groups for record in group]


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=PARTITIONS,
    start=st.integers(0, 30),
    cut=st.integers(0, 60),
    together=st.integers(1, 4),
    codec=st.integers(0, 4),
    batch_bytes=st.sampled_from([1, 200, 100_000]),
    by_number=st.booleans(),
)
def test_targets_have_the_records_that_a_consumer_of_the_source_gets(
    steps, start, cut, together, codec, batch_bytes, by_number
):
    partition = Partition(steps)
    position = start = min(start, partition.end)
    rebatcher = Rebatcher(codec=codec, batch_bytes=batch_bytes, by_number=by_number)
    batches = []
    while position < partition.end:
        data, aborted = partition.fetch(position, together, cut)
        batches += rebatcher.feed(("t", 3), data, position, 5, topic="u", aborted=aborted)
        assert rebatcher.positions["t", 3] > position
        position = rebatcher.positions["t", 3]
    batches += rebatcher.finish()
    assert list(rebatcher.finish()) == []
    wanted = partition.records(start)
    found = found_in(batches)
    assert {topic for topic, _ in found} <= {"u"}
    if by_number:
        assert set(found) <= {("u", 3)}
        assert flat(found["u", 3]) == wanted
        return
    for number in range(5):
        keyed = [one for one in wanted if one[1] is not None and partition_of_key(one[1], 5) == number]
        assert [one for one in flat(found["u", number]) if one[1] is not None] == keyed
    without_key = [one for groups in found.values() for one in flat(groups) if one[1] is None]
    assert sorted(without_key, key=repr) == sorted((one for one in wanted if one[1] is None), key=repr)


def simple(count, base_offset=0, *, size=8, key=None):
    return build(
        [(1000 + n, key, b"%0*d" % (size, base_offset + n), ()) for n in range(count)], base_offset=base_offset
    )


def test_records_without_key_stay_in_one_partition_until_its_batch_is_full():
    rebatcher = Rebatcher(batch_bytes=1000)
    full = list(rebatcher.feed(("t", 0), memoryview(simple(60, size=90)), 0, 4))
    last = list(rebatcher.finish())
    batches = full + last
    assert len(full) >= 4
    assert len(last) == 1
    assert [record[2] for batch in batches for record in flat(found_in([batch])[batch.topic, batch.partition])] == [
        b"%090d" % number for number in range(60)
    ]
    assert all(one.partition != other.partition for one, other in pairwise(batches))


def test_records_without_key_go_to_available_partitions_only():
    available = [1, 2]
    rebatcher = Rebatcher(batch_bytes=1000, available=lambda topic, count: available)
    batches = list(rebatcher.feed(("t", 0), memoryview(simple(60, size=90)), 0, 4))
    assert {batch.partition for batch in batches} == {1, 2}
    list(rebatcher.finish())
    available[:] = [3]
    batches = [*rebatcher.feed(("t", 0), memoryview(simple(60, 60, size=90)), 60, 4), *rebatcher.finish()]
    assert {batch.partition for batch in batches} == {3}


def test_partitions_of_a_topic_and_other_topics_share_a_rebatcher():
    rebatcher = Rebatcher()
    for where in (("t", 0), ("t", 1), ("s", 0)):
        assert list(rebatcher.feed(where, memoryview(simple(3, 10, key=b"k")), 11, 8)) == []
    batches = list(rebatcher.finish())
    assert [(batch.topic, batch.count) for batch in batches] == [("t", 4), ("s", 2)]
    assert rebatcher.positions == {("t", 0): 13, ("t", 1): 13, ("s", 0): 13}


def test_new_partitions_of_a_target_are_used():
    rebatcher = Rebatcher(by_number=True)
    assert list(rebatcher.feed(("t", 2), memoryview(simple(3)), 0, 3)) == []
    (before,) = rebatcher.feed(("t", 5), memoryview(simple(3)), 0, 6)
    (after,) = rebatcher.finish()
    assert (before.partition, after.partition) == (2, 5)


def test_the_size_of_open_batches_is_bounded():
    rebatcher = Rebatcher(open_bytes=10_000, by_number=True)
    assert list(rebatcher.feed(("t", 0), memoryview(simple(3)), 0, 2)) == []
    assert len(list(rebatcher.feed(("t", 1), memoryview(simple(120, size=100)), 0, 2))) == 2


def written(records=20, base_offset=100, codec=compression.ZSTD, **more):
    """Return a batch of more than 200 bytes."""
    builder = BatchBuilder(codec)
    for n in range(records):
        builder.append(1000 + n, b"k%d" % n, random.Random(n).randbytes(20))
    return builder.build(base_offset=base_offset, leader_epoch=7, **more)


def test_a_suitable_batch_is_passed_on_unchanged_after_earlier_records():
    rebatcher = Rebatcher(codec=compression.ZSTD, batch_bytes=3200, by_number=True)
    small, large = simple(3, 97), written(producer_id=9, producer_epoch=1, base_sequence=5)
    assert list(rebatcher.feed(("t", 1), memoryview(small), 97, 2)) == []
    before, same = rebatcher.feed(("t", 1), memoryview(large + large[:40]), 100, 2)
    assert (before.count, same.partition) == (3, 1)
    assert same.build()[61:] == large[61:]
    header = check(same.data)
    assert (header.base_offset, header.leader_epoch, header.producer_id, header.base_sequence) == (0, -1, -1, -1)
    assert list(rebatcher.finish()) == []
    assert rebatcher.positions == {("t", 1): 120}


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (written(codec=compression.LZ4), 100),  # another codec
        (written(), 101),  # its first record is before the start
        (written(last_offset_delta=20), 100),  # its last records are missing: brokers would refuse it
        (written(timestamp_type=1), 100),
        (written(producer_id=9, producer_epoch=1, base_sequence=5, transactional=True), 100),
        (written(records=2), 100),  # too small to be worth a request
        (build_set([(5, b"k", bytes(300))] * 3, 1, base_offset=100), 100),
    ],
)
def test_other_batches_are_encoded_again(data, start):
    rebatcher = Rebatcher(codec=compression.ZSTD, batch_bytes=3200, by_number=True)
    assert list(rebatcher.feed(("t", 1), memoryview(data), start, 2)) == []
    (batch,) = rebatcher.finish()
    header = check(batch.build())
    assert (header.attributes, header.last_offset_delta) == (compression.ZSTD, header.count - 1)
    wanted = [contents(record) for record in read_records(("t", 1), memoryview(data), start)[0]]
    assert flat(found_in([batch])["t", 1]) == wanted


def test_a_damaged_batch_is_not_passed_on():
    damaged = bytearray(written())
    damaged[-1] ^= 1
    rebatcher = Rebatcher(codec=compression.ZSTD, batch_bytes=3200, by_number=True)
    with pytest.raises(DamagedBatch, match="wrong CRC"):
        list(rebatcher.feed(("t", 1), memoryview(damaged), 100, 2))


def test_the_error_names_a_partition_that_the_target_does_not_have():
    rebatcher = Rebatcher(by_number=True)
    with pytest.raises(ValueError, match="a record of t-3 is for partition 3, but the topic has 3, counted from 0"):
        list(rebatcher.feed(("t", 3), memoryview(simple(3)), 0, 3))


def test_invalid_bytes_raise_an_error_and_the_position_stays():
    rebatcher = Rebatcher()
    list(rebatcher.feed(("t", 0), memoryview(simple(3)), 0, 1))
    damaged = bytearray(simple(3, 3) + simple(3, 6))
    damaged[-1] ^= 1
    with pytest.raises(DamagedBatch, match="wrong CRC"):
        list(rebatcher.feed(("t", 0), memoryview(damaged), 3, 1))
    assert rebatcher.positions == {("t", 0): 3}


def test_messages_without_a_timestamp_stay_without_one():
    rebatcher = Rebatcher()
    data = build_set([(0, b"k", b"v"), (0, None, b"w")], 0, compression.SNAPPY)
    list(rebatcher.feed(("t", 0), memoryview(data), 0, 1))
    (batch,) = rebatcher.finish()
    assert flat(found_in([batch])["t", 0]) == [(-1, b"k", b"v", ()), (-1, None, b"w", ())]
