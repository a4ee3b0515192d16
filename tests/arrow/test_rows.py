"""Rows equal the per-record decoder's records, in the schema that Spark uses, from every format and codec."""

import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.arrow.rows import SCHEMA, DamagedRows, RowBuilder, schema_of
from kafkapy.record.batch import build, records_of
from kafkapy.record.control import ABORT, COMMIT, encode_key
from kafkapy.record.legacy import build_set, iter_entries
from tests.harness.examples import examples
from tests.harness.markers import encode_marker

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MOST_MS = ((1 << 63) - 1) // 1000
MAYBE = st.none() | st.binary(max_size=30)
# Mostly realistic ones, and some that do not fit into microseconds.
TIMES = st.integers(0, 2**41) | st.integers(-(2**62), 2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=8), MAYBE), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(TIMES, MAYBE, MAYBE, HEADERS), min_size=1, max_size=12)
MESSAGES = st.lists(st.tuples(st.integers(0, 2**41), MAYBE, MAYBE), min_size=1, max_size=12)


def read(rows, *buffers):
    """Return all rows as dicts, with timestamps as plain numbers."""
    batches = []
    for buffer in buffers:
        batches += rows.feed(buffer)
        assert rows.consumed == len(buffer) or rows.past_end
    if (rest := rows.finish()) is not None:
        batches.append(rest)
    assert rows.finish() is None
    for batch in batches:
        assert batch.schema.equals(rows.schema)
        batch.validate(full=True)
    table = pa.Table.from_batches(batches, rows.schema)
    if "timestamp" in table.column_names:
        at = table.column_names.index("timestamp")
        table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    return table.to_pylist()


def decoded(data, topic="t", partition=3):
    """Return the same rows, decoded record by record."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": 1000 * max(-MOST_MS, min(MOST_MS, record.timestamp)),
            "timestampType": header.timestamp_type if header.magic else -1,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for header in iter_entries(data)
        for record in records_of(data, header)
    ]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.integers(0, 4), st.integers(1, 20), st.integers(0, 1))
def test_rows_of_batches_of_every_codec_equal_the_decoders(groups, codec, max_rows, timestamp_type):
    data = b"".join(
        build(records, codec=codec, base_offset=100 * number, timestamp_type=timestamp_type)
        for number, records in enumerate(groups)
    )
    assert read(RowBuilder("t", 3, max_rows=max_rows), data) == decoded(data)


@settings(max_examples=examples(60), deadline=None)
@given(MESSAGES, st.integers(0, 1), st.integers(0, 3), st.integers(0, 1), st.integers(0, 10**12), st.integers(1, 20))
def test_rows_of_message_sets_equal_the_decoders(messages, magic, codec, timestamp_type, base, max_rows):
    timestamp_type *= magic
    data = build_set(messages, magic, codec, base_offset=base, timestamp_type=timestamp_type, append_time=77)
    assert read(RowBuilder("t", 3, max_rows=max_rows), data) == decoded(data)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(RECORDS, min_size=1, max_size=4),
    st.integers(0, 4),
    st.integers(1, 60),
    st.integers(0, 420),
    st.integers(0, 420),
    st.sets(st.sampled_from(SCHEMA.names), min_size=1),
)
def test_bounds_and_columns_select_the_same_rows_as_one_by_one(groups, codec, max_bytes, start, end, names):
    data = b"".join(build(records, codec=codec, base_offset=100 * number) for number, records in enumerate(groups))
    wanted = [{name: row[name] for name in names} for row in decoded(data) if start <= row["offset"] < end]
    rows = RowBuilder("t", 3, columns=sorted(names), start=start, end=end, max_bytes=max_bytes)
    assert read(rows, data) == wanted


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=20), min_size=1, max_size=8))
def test_reused_memory_shows_nothing_of_its_former_contents(columns):
    """Nulls in one batch of rows and none in the next, batches of any size: each has its own values."""
    rows = RowBuilder("t", 0, columns=["key", "value"])
    for values in columns:
        data = build([(0, value, value, ()) for value in values])
        assert read(rows, data) == [{"key": value, "value": value} for value in values]


def test_the_schema_is_that_of_sparks_own_source():
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    assert schema_of() == pa.schema(
        [("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
         ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32()),
         ("headers", headers)]
    )  # fmt: skip
    assert schema_of(include_headers=False) == schema_of().remove(7)
    assert schema_of(["value", "key"]) == pa.schema([("value", pa.binary()), ("key", pa.binary())])
    assert schema_of(["headers"], include_headers=False).names == ["headers"]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (["key", "valeu"], "there is no column 'valeu'; there are key, value, topic"),
        ("value", r"columns is the text 'value': give a list of names, as in \['value'\]"),
        (["key", "key"], "a column is named twice: key, key"),
        ([], "no column is named; there are key"),
    ],
)
def test_the_error_names_invalid_columns(columns, sentence):
    with pytest.raises(ValueError, match=sentence):
        RowBuilder("t", 0, columns=columns)


def test_headers_are_null_for_records_without_headers():
    (row,) = read(RowBuilder("t", 0), build([(0, None, None, ())]))
    assert row["headers"] is None


def test_timestamps_are_utc_and_time_bounds_select_rows():
    data = build([(1000 * n, None, b"%d" % n, ()) for n in range(6)])
    rows = RowBuilder("t", 0, columns=["timestamp"], start_timestamp=2000, end_timestamp=4000)
    assert list(rows.feed(data)) == []
    found = rows.finish()["timestamp"].to_pylist()
    assert found == [EPOCH + timedelta(seconds=2), EPOCH + timedelta(seconds=3)]


def test_columns_that_are_the_same_in_all_rows_share_their_memory():
    data = build([(0, None, b"", ())] * 3000)
    rows = RowBuilder("a-topic", 7, columns=["topic", "partition"], max_rows=1500)
    (first,) = rows.feed(data)
    second = rows.finish()
    assert len(first) == len(second) == 1500
    for name in ("topic", "partition"):
        addresses = {batch[name].buffers()[-1].address for batch in (first, second)}
        assert len(addresses) == 1


def test_batches_stay_valid_after_later_batches_and_after_the_builder_is_gone():
    """Memory is reused only when no batch refers to it."""
    kept = []
    for number in range(30):
        rows = RowBuilder("t", 0, columns=["offset", "value"], max_rows=5000)
        data = build([(0, None, b"%04d" % number * 100, ())] * 10_000, base_offset=number)
        kept.append([*rows.feed(data), rows.finish()])
    for number, batches in enumerate(kept):
        assert [len(batch) for batch in batches] == [5000, 5000]
        assert set(itertools.chain(*(set(batch["value"].to_pylist()) for batch in batches))) == {b"%04d" % number * 100}
        assert batches[1]["offset"].to_pylist() == list(range(number + 5000, number + 10_000))


def test_threads_that_read_at_the_same_time_share_no_memory():
    def run(name):
        value = name * 100
        data = b"".join(build([(0, value, value, ())] * 1000, base_offset=1000 * number) for number in range(8))
        for _ in range(5):
            rows = RowBuilder("t", 0, max_rows=3000)
            table = pa.Table.from_batches([*rows.feed(data), rows.finish()])
            for column in ("key", "value"):
                assert b"".join(table[column].to_pylist()) == value * 8000
        return name

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, (b"a", b"b", b"c", b"d"))) == [b"a", b"b", b"c", b"d"]


def marker(kind, producer_id, base_offset):
    return build(
        [(0, encode_key(kind), encode_marker(0), ())],
        base_offset=base_offset, producer_id=producer_id, transactional=True, control=True,
    )  # fmt: skip


def test_records_of_aborted_transactions_are_left_out_and_markers_always():
    def sent(producer_id, base_offset):
        return build([(0, None, b"%d" % producer_id, ())] * 2, base_offset=base_offset, producer_id=producer_id,
                     transactional=True)  # fmt: skip

    data = sent(1, 0) + sent(2, 2) + marker(ABORT, 1, 4) + marker(COMMIT, 2, 5) + sent(1, 6) + marker(COMMIT, 1, 8)
    offsets = [row["offset"] for row in read(RowBuilder("t", 0, aborted=[(1, 0)]), data)]
    assert offsets == [2, 3, 6, 7]
    assert [row["offset"] for row in read(RowBuilder("t", 0), data)] == [0, 1, 2, 3, 6, 7]
    rows = RowBuilder("t", 0)
    rows.set_aborted([(2, 2)])
    assert [row["offset"] for row in read(rows, data)] == [0, 1, 6, 7]


def test_a_damaged_batch_is_reported_and_the_rows_before_it_are_there():
    good, bad = build([(0, None, b"a", ())]), bytearray(build([(0, None, b"b", ())], base_offset=41))
    bad[-1] ^= 1
    rows = RowBuilder("orders", 3, columns=["value"])
    sentence = r"^orders-3 is damaged at offset 41: the batch \(base offset 41, 69 bytes\) has a wrong CRC\.$"
    with pytest.raises(DamagedRows, match=sentence) as raised:
        list(rows.feed(good + bytes(bad)))
    error = raised.value
    assert (error.topic, error.partition, error.offset) == ("orders", 3, 41)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert rows.finish().to_pylist() == [{"value": b"a"}]


def test_the_end_is_noticed_when_a_batch_beyond_it_arrives():
    rows = RowBuilder("t", 0, columns=["offset"], end=2)
    assert list(rows.feed(build([(0, None, b"", ())] * 2))) == []
    assert not rows.past_end
    assert list(rows.feed(build([(0, None, b"", ())], base_offset=2))) == []
    assert rows.past_end
    assert rows.finish()["offset"].to_pylist() == [0, 1]


def test_a_batch_that_decompresses_to_a_hundred_times_its_size_gives_bounded_pieces():
    data = build([(0, None, bytes(100_000), ())] * 400, codec=4)
    assert len(data) < 400_000
    rows = RowBuilder("t", 0, columns=["value"], max_bytes=1 << 20)
    sizes = [batch.nbytes for batch in rows.feed(data)]
    assert len(sizes) == 39
    assert max(sizes) <= 1 << 20
