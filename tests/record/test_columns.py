"""Columns hold the records that a consumer gets: compared with golden files and the record decoder, also for damaged
bytes."""

import base64
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.record import compression, control
from kafkapy.record.batch import build, records_of
from kafkapy.record.columns import COLUMNS, DamagedBatch, column_builder
from kafkapy.record.legacy import build_set, check, iter_entries
from tests.harness.examples import examples
from tests.harness.markers import encode_marker

from .column_rows import read_all, rows_of

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
FOLDERS = {"kafka-3.9.1-v2": "data", "kafka-3.9.1-v0-v1": "data", "kafka-0.10.2.2": "data", "kafka-0.8.2.2": "data",
           "kafka-3.9.1-recovery": "after"}  # fmt: skip
MAYBE = st.none() | st.binary(max_size=30)
TIMES = st.integers(-(2**62), 2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=8), MAYBE), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(TIMES, MAYBE, MAYBE, HEADERS), min_size=1, max_size=12)
MESSAGES = st.lists(st.tuples(st.integers(0, 2**62), MAYBE, MAYBE), min_size=1, max_size=12)


def as_rows(records):
    return [
        {"offset": one.offset, "timestamp": one.timestamp, "key": one.key, "value": one.value,
         "headers": tuple(one.headers), "sequence": one.sequence}
        for one in records
    ]  # fmt: skip


NAMES = ("offset", "timestamp", "key", "value", "headers", "sequence")


def unread(value):
    """Return the bytes of a key or value of an `expected` file."""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else value.encode()


def expected_rows(line):
    batch = json.loads(line)
    kinds = {None: -1, "CreateTime": 0, "LogAppendTime": 1}
    for record in batch["records"]:
        yield {
            "partition": 3,
            "offset": record["offset"],
            "timestamp": -1 if record["timestamp"] is None else record["timestamp"],
            "timestamp_type": kinds[batch["timestampType"]],
            "key": unread(record["key"]),
            "value": unread(record["value"]),
            "headers": tuple((name, unread(value)) for name, value in record.get("headers", ())),
            "producer_id": batch.get("producerId", -1),
            "producer_epoch": batch.get("producerEpoch", -1),
            "sequence": record.get("sequence", -1),
            "leader_epoch": batch.get("leaderEpoch", -1),
            "attributes": attributes_of(batch),
        }


def attributes_of(batch):
    found = compression.NAMES.index(batch["codec"]) | (8 if batch["timestampType"] == "LogAppendTime" else 0)
    for field, bit in (("transactional", 0x10), ("control", 0x20)):
        found |= bit if batch.get(field) else 0
    return found | (0x40 if batch.get("deleteHorizonMs") is not None else 0)


@pytest.mark.parametrize("folder", FOLDERS)
def test_golden_partitions_have_the_records_that_kafka_lists(folder):
    count = 0
    for expected in sorted((GOLDEN / folder / "expected").glob("*.jsonl")):
        builder = column_builder(skip_control=False, max_rows=10, partition=3)
        logs = sorted((GOLDEN / folder / FOLDERS[folder] / expected.stem).glob("*.log"))
        lines = expected.read_text().splitlines()
        wanted = [row for line in lines for row in expected_rows(line)]
        assert read_all(builder, *(log.read_bytes() for log in logs)) == wanted, expected.stem
        assert builder.batches == len(lines)
        count += len(wanted)
    assert count > 100


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.integers(0, 4), st.integers(1, 20), st.integers(0, 1))
def test_columns_of_batches_of_every_codec_equal_the_decoders_records(groups, codec, max_rows, timestamp_type):
    data = b"".join(
        build(records, codec=codec, base_offset=100 * number, base_sequence=number - 1, timestamp_type=timestamp_type)
        for number, records in enumerate(groups)
    )
    wanted = [record for header in iter_entries(data) for record in records_of(data, header)]
    assert read_all(column_builder(NAMES, max_rows=max_rows), data) == as_rows(wanted)


@settings(max_examples=examples(40), deadline=None)
@given(MESSAGES, st.integers(0, 1), st.integers(0, 3), st.integers(0, 1), st.integers(0, 10**12))
def test_columns_of_message_sets_equal_the_decoders_records(messages, magic, codec, timestamp_type, base):
    timestamp_type *= magic
    data = build_set(messages, magic, codec, base_offset=base, timestamp_type=timestamp_type, append_time=77)
    wanted = [record for header in iter_entries(data) for record in records_of(data, header)]
    assert read_all(column_builder(NAMES), data) == as_rows(wanted)


def simple(count, base_offset=0, **more):
    """Return records with timestamps 1000, 1001, ... and their offset as the value."""
    records = [(1000 + n, None, str(base_offset + n).encode(), ()) for n in range(count)]
    return build(records, base_offset=base_offset, **more)


def values(builder, *buffers):
    return [int(row["value"]) for row in read_all(builder, *buffers)]


@pytest.mark.parametrize("codec", [0, 4])
def test_columns_end_at_the_number_of_rows_also_within_a_batch(codec):
    builder = column_builder(("offset",), max_rows=4)
    sizes = [columns.rows for columns in builder.feed(simple(10, codec=codec) + simple(3, 10))]
    assert sizes == [4, 4, 4]
    assert rows_of(builder.finish()) == [{"offset": 12}]


@pytest.mark.parametrize("codec", [0, 4])
def test_columns_end_at_the_number_of_bytes_but_have_at_least_one_record(codec):
    data = build([(0, b"k", bytes(size), ()) for size in (300, 10, 300, 5000, 1)], codec=codec)
    builder = column_builder(max_bytes=500)
    found = [columns.rows for columns in builder.feed(data)]
    assert (found, builder.rows) == ([2, 1, 1], 1)


def test_a_large_record_can_span_pieces_of_its_batch():
    big = random.Random(5).randbytes(700_000)
    data = build([(0, b"a", b"x", ()), (0, b"b", big, (("h", big[:5000]),)), (0, b"c", None, ())], codec=4)
    assert [row["value"] for row in read_all(column_builder(), data)] == [b"x", big, None]


def test_only_the_requested_columns_are_collected():
    builder = column_builder(["value", "partition"], partition=7, max_rows=1)
    (columns,) = builder.feed(simple(2))
    assert list(columns.columns) == ["partition", "value"]
    assert rows_of(columns) == [{"partition": 7, "value": b"0"}]
    assert builder.rows == 1
    with pytest.raises(ValueError, match="there is no column 'topic'; there are partition, offset"):
        column_builder(["topic"])


def test_records_are_counted_without_any_columns():
    builder = column_builder(())
    assert read_all(builder, b"") == []
    assert list(builder.feed(simple(5))) == []
    assert builder.finish().rows == 5


def test_offsets_may_have_eight_bytes():
    builder = column_builder(["key", "value"], large_offsets=True)
    list(builder.feed(simple(2)))
    assert rows_of(builder.finish(), large=True) == [{"key": None, "value": b"0"}, {"key": None, "value": b"1"}]


def test_records_outside_of_the_bounds_are_left_out():
    data = simple(10) + simple(10, 10)
    assert values(column_builder(min_offset=8, end_offset=12), data) == [8, 9, 10, 11]
    assert values(column_builder(min_timestamp=1003, end_timestamp=1005), data) == [3, 4, 13, 14]
    builder = column_builder(end_offset=10)
    assert values(builder, data) == list(range(10))
    assert builder.past_end
    assert builder.consumed == len(simple(10))
    damaged = bytearray(data)
    damaged[-1] ^= 1
    assert values(column_builder(end_offset=10), damaged) == list(range(10))
    messages = build_set([(1000 + n, None, b"%d" % n) for n in range(10)], 1, compression.GZIP)
    assert values(column_builder(min_offset=3, end_timestamp=1006), messages) == [3, 4, 5]


def test_the_default_bounds_leave_out_no_record():
    data = build([(2**63 - 1, None, b"1", ()), (-(2**63), None, b"2", ())], base_offset=2**63 - 2)
    assert values(column_builder(), data) == [1, 2]


def marker(kind, offset, producer_id):
    key, value = control.encode_key(kind), encode_marker(0)
    fields = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True, "control": True}
    return build([(5, key, value, ())], base_offset=offset, **fields)


def sent(count, offset, producer_id):
    return simple(count, offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


TRANSACTIONS = b"".join(
    (
        sent(2, 0, 1),  # aborted
        sent(1, 2, 2),  # committed
        simple(1, 3),
        sent(1, 4, 1),
        marker(control.ABORT, 5, 1),
        sent(1, 6, 1),  # the same producer, committed
        marker(control.COMMIT, 7, 2),
        marker(control.COMMIT, 8, 1),
        sent(1, 9, 2),  # aborted
        marker(control.ABORT, 10, 2),
    )
)
ABORTED = [(2, 9), (1, 0)]


def test_records_of_aborted_transactions_are_left_out():
    assert values(column_builder(aborted=ABORTED), TRANSACTIONS) == [2, 3, 6]
    assert values(column_builder(), TRANSACTIONS) == [0, 1, 2, 3, 4, 6, 9]


def test_markers_end_transactions_even_if_the_bounds_leave_them_out():
    assert values(column_builder(aborted=ABORTED, min_offset=6), TRANSACTIONS) == [6]


def test_the_next_fetch_has_its_own_list_of_aborted_transactions():
    builder = column_builder(aborted=[(1, 0)])
    assert values(builder, sent(2, 0, 1)) == []
    builder.set_aborted([])
    assert values(builder, sent(2, 2, 1)) == [2, 3]


def test_control_batches_are_returned_if_requested():
    rows = read_all(column_builder(("offset", "attributes"), skip_control=False, aborted=ABORTED), TRANSACTIONS)
    assert [row["offset"] for row in rows if row["attributes"] & 0x20] == [5, 7, 8, 10]
    assert [row["offset"] for row in rows] == [2, 3, 5, 6, 7, 8, 10]


def test_invalid_utf8_in_header_names_is_replaced():
    data = build([(0, None, None, (("a\udcff\udcc3", b"\xff"), ("é", None)))])
    ((row,),) = ([row] for row in read_all(column_builder(["headers"]), data))
    assert row["headers"] == (("a��", b"\xff"), ("é", None))


def test_an_incomplete_batch_waits_for_the_rest():
    data = simple(3) + simple(3, 3)
    builder = column_builder()
    cut = len(data) - 5
    assert list(builder.feed(data[:cut])) == []
    assert (builder.consumed, builder.rows) == (len(simple(3)), 3)
    assert list(builder.feed(data, builder.consumed)) == []
    assert builder.rows == 6
    with pytest.raises(ValueError, match="byte 9 is outside of the buffer"):
        list(builder.feed(b"", 9))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ((8, 4, 0), "is invalid: a length of 0 is too small for a batch"),
        ((16, 1, 3), "is invalid: magic 3 is an unknown message format"),
        ((17, 4, 5), r"\(base offset 3, 101 bytes\) has a wrong CRC"),
    ],
)
def test_a_damaged_batch_is_reported_and_the_records_before_it_stay(damage, reason):
    at, size, value = damage
    data = bytearray(simple(3) + simple(5, 3))
    start = len(simple(3))
    data[start + at : start + at + size] = value.to_bytes(size, "big")
    builder = column_builder(("offset",))
    with pytest.raises(DamagedBatch, match=reason) as caught:
        list(builder.feed(data))
    assert caught.value.position == builder.consumed == start
    assert rows_of(builder.finish()) == [{"offset": n} for n in range(3)]


def test_a_negative_number_of_records_is_reported_where_its_batch_begins():
    data = bytearray(simple(3) + simple(5, 3))
    start = len(simple(3))
    data[start + 57 : start + 61] = (-1).to_bytes(4, "big", signed=True)
    builder = column_builder(("offset",), check_crc=False)
    with pytest.raises(DamagedBatch, match="declares -1 records") as caught:
        list(builder.feed(data))
    assert caught.value.position == builder.consumed == start


def test_checksums_are_not_checked_if_turned_off():
    data = bytearray(simple(3))
    data[17] ^= 1
    assert values(column_builder(check_crc=False), data) == [0, 1, 2]


def test_the_error_names_invalid_compressed_data():
    data = bytearray(simple(3, 4, codec=compression.LZ4))
    data[61] ^= 0x55
    with pytest.raises(DamagedBatch, match=r"byte 0 \(base offset 4\) cannot be read: broken lz4 data"):
        list(column_builder(check_crc=False).feed(data))
    messages = bytearray(build_set([(0, None, b"a")], 1, compression.GZIP))
    messages[17] |= 4
    with pytest.raises(DamagedBatch, match="a message of format 1 cannot be compressed with codec 5"):
        list(column_builder(check_crc=False).feed(messages))


def test_the_memory_of_columns_stays_valid_without_the_builder():
    builder = column_builder(["value"], max_rows=2)
    columns = next(builder.feed(simple(4)))
    del builder
    assert [row["value"] for row in rows_of(columns)] == [b"0", b"1"]
    with pytest.raises(TypeError):
        memoryview(columns.columns["value"].data)[0] = 1


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_damaged_bytes_give_the_decoders_records_up_to_the_damage(data):
    sound = data.draw(st.sampled_from([simple(5, codec=codec) + simple(4, 5) for codec in range(5)]
                                      + [build_set([(5, b"k", b"v%d" % n) for n in range(9)], magic, codec)
                                         for magic in (0, 1) for codec in range(4)]))  # fmt: skip
    damaged = bytearray(sound)
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(sound) - 1), st.integers(0, 255)), max_size=3)):
        damaged[at] = byte
    wanted = []
    try:
        for header in iter_entries(damaged):
            check(damaged, header)
            wanted += as_rows(records_of(damaged, header))
    except ValueError:
        pass
    builder = column_builder(NAMES, skip_control=False)
    try:
        list(builder.feed(damaged))
    except DamagedBatch:
        pass
    rest = builder.finish()
    assert (rows_of(rest) if rest else []) == wanted


def test_every_column_has_an_index():
    assert set(rows_of(next(column_builder(max_rows=1).feed(simple(2))))[0]) == set(COLUMNS)
