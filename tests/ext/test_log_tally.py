"""Counts of a log: compared with the record decoder for batches of every kind, and those that need a whole log."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext.log_tally import LogTally
from kafkapy._ext.stored_records import DamagedBatch
from kafkapy.record import compression, control
from kafkapy.record.batch import BatchBuilder, build, payload_of, records_of
from kafkapy.record.columns import decompress_records
from kafkapy.record.legacy import build_set, iter_entries
from tests.harness.examples import examples
from tests.harness.markers import encode_marker

MAYBE = st.none() | st.binary(max_size=8)
HEADERS = st.lists(st.tuples(st.text(max_size=4), MAYBE), max_size=2).map(tuple)
RECORDS = st.lists(st.tuples(st.integers(-1, 2**62), MAYBE, MAYBE, HEADERS), min_size=1, max_size=12)


def tallied(*buffers, **more):
    tally = LogTally(decompress_records, 1 << 20, **more)
    for buffer in buffers:
        assert tally.feed(buffer) == len(buffer)
    return tally


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(RECORDS, st.integers(0, 4)), min_size=1, max_size=5))
def test_counts_are_those_of_the_records(groups):
    data, offset = b"", 0
    for records, codec in groups:
        data += build(records, codec=codec, base_offset=offset, producer_id=len(records), base_sequence=0)
        offset += len(records)
    headers = list(iter_entries(data))
    records = [record for header in headers for record in records_of(data, header)]
    stamps = [record.timestamp for record in records if record.timestamp != -1]
    tally = tallied(data)
    found = tally.counts()
    assert found["batches"] == len(headers)
    assert found["bytes"] == len(data)
    assert found["records"] == len(records)
    assert found["key_bytes"] == sum(len(record.key or b"") for record in records)
    assert found["value_bytes"] == sum(len(record.value or b"") for record in records)
    assert found["record_bytes"] == sum(len(payload_of(data, header)) for header in headers)
    assert found["null_keys"] == sum(record.key is None for record in records)
    assert found["null_values"] == sum(record.key is None and record.value is None for record in records)
    assert found["tombstones"] == sum(record.key is not None and record.value is None for record in records)
    assert found["headers"] == sum(len(record.headers) for record in records)
    assert found["with_headers"] == sum(bool(record.headers) for record in records)
    assert found["without_timestamp"] == len(records) - len(stamps)
    assert (found["min_timestamp"], found["max_timestamp"]) == (min(stamps, default=None), max(stamps, default=None))
    assert found["out_of_order"] == sum(a > b for a, b in itertools.pairwise(stamps))
    assert (found["first_offset"], found["last_offset"], found["gaps"]) == (0, offset - 1, 0)
    assert found["largest_batch"] == max(header.size for header in headers)
    for codec, one in tally.codecs().items():
        mine = [header for header in headers if header.codec == codec]
        assert one == {
            "batches": len(mine),
            "records": sum(header.count for header in mine),
            "bytes": sum(header.size for header in mine),
            "packed": sum(header.size - 61 for header in mine),
            "unpacked": sum(len(payload_of(data, header)) for header in mine),
        }
    sizes, counts = tally.histograms()
    for header in headers:
        sizes[header.size.bit_length()] -= 1
        counts[header.count.bit_length()] -= 1
    assert not any(sizes + counts)
    width, moments = tally.moments()
    assert sum(count for _, count, _ in moments) == len(stamps)
    for begin, count, _ in moments:
        assert count == sum(begin <= stamp < begin + width for stamp in stamps)
    assert {one["id"]: one["batches"] for one in tally.producers()} == {
        number: sum(header.producer_id == number for header in headers) for number in {h.producer_id for h in headers}
    }
    keyed = {record.key: record for record in records if record.key is not None}
    kept, _, gone, _ = tally.keys.kept()
    assert (kept, gone) == (len(keyed), sum(record.value is None for record in keyed.values()))


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3000, 3000), min_size=1, max_size=50))
def test_any_timestamps_fit_on_the_time_line(stamps):
    tally = tallied(*(build([(stamp, None, b"", ())], base_offset=n) for n, stamp in enumerate(stamps)))
    stamps = [stamp for stamp in stamps if stamp != -1]
    width, moments = tally.moments()
    assert len(moments) <= 1024
    assert sum(count for _, count, _ in moments) == len(stamps)
    for begin, count, _ in moments:
        assert count == sum(begin <= stamp < begin + width for stamp in stamps)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_message_sets_are_counted_alike(magic, codec):
    data = build_set([(1000 + n, b"k%d" % n, bytes(100)) for n in range(10)], magic, codec)
    tally = tallied(data)
    found = tally.counts()
    assert (found["records"], found["batches"]) == (10, 10 if codec == 0 else 1)
    assert (found["first_offset"], found["last_offset"], found["gaps"]) == (0, 9, 0)
    assert tally.formats() == {magic: {"batches": found["batches"], "records": 10, "bytes": len(data)}}
    size = 26 + 8 * magic + 102
    assert found["record_bytes"] == 10 * size
    assert tally.codecs()[codec]["unpacked"] == 10 * size
    assert tally.codecs()[codec]["packed"] == (len(data) if codec == 0 else len(data) - 26 - 8 * magic)
    assert found["without_timestamp"] == (0 if magic else 10)


def test_offsets_that_are_missing_are_gaps():
    builder = BatchBuilder()
    for delta in (0, 3, 4, 10):
        builder.append(5, b"k", b"v", offset_delta=delta)
    cleaned = builder.build(base_offset=100, last_offset_delta=12)
    empty = BatchBuilder().build(base_offset=113, last_offset_delta=6)
    tally = tallied(build([(5, b"k", b"v", ())]), cleaned, empty, build([(5, b"k", b"v", ())], base_offset=120))
    found = tally.counts()
    assert tally.gaps() == [(0, 99), (100, 2), (104, 5), (110, 9)]
    assert (found["gaps"], found["missing"], found["empty_batches"]) == (4, 115, 1)
    assert (found["first_offset"], found["last_offset"]) == (0, 120)


def test_of_many_gaps_the_largest_are_named():
    offsets = [0]
    for size in (5, 50, 3, 90, 7, 8, 9, 10, 11, 12, 13, 2, 1):
        offsets.append(offsets[-1] + size + 1)
    tally = tallied(*(build([(5, None, b"", ())], base_offset=offset) for offset in offsets))
    assert sorted(missing for _, missing in tally.gaps()) == [5, 7, 8, 9, 10, 11, 12, 13, 50, 90]
    assert tally.counts()["gaps"] == 13


def test_batches_that_go_back_are_counted():
    batch = build([(5, None, b"", ())] * 3)
    found = tallied(batch, batch).counts()
    assert (found["backward"], found["gaps"], found["last_offset"]) == (1, 0, 2)


def sent(offset, producer, count=2, **more):
    fields = {"producer_id": producer, "producer_epoch": 3, "base_sequence": 7, "transactional": True, **more}
    return build([(5, b"key", b"value", ())] * count, base_offset=offset, **fields)


def marker(kind, offset, producer):
    record = (5, control.encode_key(kind), encode_marker(0), ())
    return build([record], base_offset=offset, producer_id=producer, producer_epoch=3, transactional=True, control=True)


TRANSACTIONS = (
    sent(0, 1),
    sent(2, 2, 3),
    marker(control.ABORT, 5, 1),
    marker(control.COMMIT, 6, 2),
    sent(7, 1, 1),
    build([(5, b"key", b"value", ())], base_offset=8),
)


def test_transactions_are_told_by_their_markers():
    tally = tallied(*TRANSACTIONS)
    found = tally.counts()
    assert (found["committed"], found["aborted"]) == (1, 1)
    assert (found["aborted_records"], found["open_records"], found["transactional_records"]) == (2, 1, 6)
    assert (found["control_batches"], found["control_records"], found["records"]) == (2, 2, 7)
    assert [(one["id"], one["open_first"], one["epoch"]) for one in tally.producers()] == [(1, 7, 3), (2, -1, 3)]
    assert tally.producers()[1]["last_sequence"] == 9


def test_records_of_aborted_transactions_are_nothing_to_keep():
    tally = tallied(*TRANSACTIONS, aborted=[(1, 0)])
    found = tally.counts()
    assert (found["dropped_records"], found["keyed_records"]) == (2, 5)
    assert tally.keys.kept()[0] == 1
    assert tally.keys.largest()[0][4] == 5


def test_a_batch_that_is_cut_waits_for_the_rest():
    data = b"".join(TRANSACTIONS)
    tally = LogTally(decompress_records, 1 << 20)
    taken = tally.feed(data[:-4])
    assert taken == len(data) - len(TRANSACTIONS[-1])
    tally.feed(data, taken)
    assert tally.counts()["records"] == 7


def test_damage_is_named_and_what_was_before_it_is_counted():
    data = bytearray(b"".join(TRANSACTIONS))
    data[-1] ^= 1
    tally = LogTally(decompress_records, 1 << 20)
    with pytest.raises(DamagedBatch, match=r"has a wrong CRC") as caught:
        tally.feed(data)
    assert caught.value.position == len(data) - len(TRANSACTIONS[-1])
    assert tally.counts()["records"] == 6


def test_more_producers_than_are_kept_are_reported():
    many = b"".join(build([(5, None, b"", ())], base_offset=n, producer_id=n, producer_epoch=0) for n in range(65_540))
    tally = tallied(many)
    assert len(tally.producers()) == 65_536
    assert tally.producers_left_out == 4


def test_large_compressed_batches_are_counted_in_bounded_memory():
    data = build([(5, b"k", bytes(1 << 20), ())] * 30, codec=compression.ZSTD)
    assert len(data) < 1 << 18
    found = tallied(data).counts()
    assert found["value_bytes"] == 30 << 20
