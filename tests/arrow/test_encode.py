"""Rows are encoded as batches that the per-record decoder reads back, in the partitions that Kafka's clients choose."""

import time
from collections import defaultdict
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext.batch import check
from kafkapy.arrow.encode import RowEncoder
from kafkapy.client.producing.partitioner import partition_of_key
from kafkapy.record.batch import records_of
from tests.harness.batches import iter_batches
from tests.harness.examples import examples

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COUNTS = {"a": 1, "b": 3, "c": 50}

MAYBE = st.none() | st.binary(max_size=40)
TEXT = st.none() | st.text(max_size=12)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": TEXT,
            "value": MAYBE,
            "topic": st.sampled_from(sorted(COUNTS)),
            "partition": st.none() | st.just(0),
            "headers": st.none()
            | st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": MAYBE}), max_size=3),
        }
    ),
    max_size=60,
)
KEYS = st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
VALUES = st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()])
TOPICS = st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
LISTS = st.sampled_from([HEADERS, pa.large_list(HEADERS.value_type)])
TIMES = st.sampled_from([pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Paris"), pa.int64()])


def rows_as_batch(rows, **types):
    return pa.RecordBatch.from_pylist(rows, pa.schema([(name, types[name]) for name in types]))


def encoded(encoder, *batches):
    made = [batch for rows in batches for batch in encoder.feed(rows)]
    return made + list(encoder.finish())


def records(batches):
    """Return (topic, partition) -> the records of all batches in order; check each batch's checksum."""
    found = defaultdict(list)
    for batch in batches:
        data = batch.build(producer_id=5, producer_epoch=2, base_sequence=7, transactional=True)
        (header,) = iter_batches(data)
        check(data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 7)
        assert header.is_transactional
        assert header.count == batch.count == header.last_offset_delta + 1
        decoded = records_of(data, header)
        assert [record.offset for record in decoded] == list(range(batch.count))
        assert header.base_timestamp == decoded[0].timestamp
        assert header.max_timestamp == max(record.timestamp for record in decoded)
        found[batch.topic, batch.partition] += decoded
    return found


@settings(max_examples=examples(100), deadline=None)
@given(ROWS, KEYS, VALUES, TOPICS, LISTS, TIMES, st.integers(0, 5), st.integers(1, 400), st.sampled_from([0, 0, 0, 4]))
def test_written_rows_are_read_back(rows, key, value, topic, headers, time, cut, batch_bytes, codec):
    for number, row in enumerate(rows):
        row["timestamp"] = 1_600_000_000_000 + number * 7919 % 1000  # identifies the row
    unit = {"ns": 1_000_000, "us": 1000}.get(getattr(time, "unit", "ms"), 1)
    batch = rows_as_batch(
        [{**row, "timestamp": row["timestamp"] * unit} for row in rows],
        key=key,
        value=value,
        topic=topic,
        partition=pa.int32(),
        headers=headers,
        timestamp=pa.int64(),
    )
    at = batch.schema.get_field_index("timestamp")
    batch = batch.set_column(at, pa.field("timestamp", time), batch.column("timestamp").cast(time))
    encoder = RowEncoder(COUNTS.__getitem__, batch_bytes=batch_bytes, codec=codec, open_bytes=20_000)
    found = records(encoded(encoder, batch.slice(0, cut), batch.slice(cut)))

    rows_of_time = {row["timestamp"]: row for row in rows}
    assert sum(map(len, found.values())) == len(rows)
    for (topic_name, partition), read in found.items():
        written = [rows_of_time[record.timestamp] for record in read]
        order = [rows.index(row) for row in written]
        assert order == sorted(order)
        for row, record in zip(written, read, strict=True):
            key_bytes = None if row["key"] is None else row["key"].encode()
            pairs = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
            assert (record.key, record.value, record.headers) == (key_bytes, row["value"], pairs)
            assert row["topic"] == topic_name
            if row["partition"] is not None:
                assert partition == row["partition"]
            elif key_bytes is not None:
                assert partition == partition_of_key(key_bytes, COUNTS[topic_name])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.binary(max_size=100), min_size=1, max_size=40), st.integers(62, 600))
def test_a_batch_exceeds_the_limit_only_if_a_single_record_does(values, batch_bytes):
    rows = rows_as_batch([{"value": value} for value in values], value=pa.binary())
    batches = encoded(RowEncoder(lambda _: 1, topic="t", batch_bytes=batch_bytes), rows)
    assert [record.value for record in records(batches)["t", 0]] == values
    for batch in batches:
        assert batch.size <= batch_bytes or batch.count == 1
        assert batch.largest <= batch.size - 61
    for batch, following in pairwise(batches):
        first = next(iter(records_of(following.data, next(iter_batches(following.data)))))
        assert batch.size + len(first.value) + 10 > batch_bytes or batch.count == 1


def test_rows_without_key_stay_in_one_partition_until_its_batch_is_full():
    rows = rows_as_batch([{"value": b"x" * 50}] * 100, value=pa.binary())
    batches = encoded(RowEncoder(lambda _: 8, topic="t", batch_bytes=1000), rows)
    full = [batch.partition for batch in batches]
    assert all(one != next for one, next in pairwise(full))
    assert len(set(full)) > 1


def test_rows_without_a_time_get_the_current_time(monkeypatch):
    monkeypatch.setattr("kafkapy.arrow.encode.time.time", lambda: 1_700_000_000.123)
    rows = [{"value": b"a", "timestamp": None}, {"value": b"b", "timestamp": 5}]
    batch = rows_as_batch(rows, value=pa.binary(), timestamp=pa.timestamp("ms"))
    batches = encoded(RowEncoder(lambda _: 1, topic="t"), batch)
    assert [record.timestamp for record in records(batches)["t", 0]] == [1_700_000_000_123, 5]


def test_columns_of_nulls_are_as_none():
    batch = pa.record_batch({"value": pa.array([b"a"]), "key": pa.nulls(1), "headers": pa.nulls(1)})
    (record,) = records(encoded(RowEncoder(lambda _: 1, topic="t"), batch))["t", 0]
    assert (record.key, record.value, record.headers) == (None, b"a", ())


def test_dictionaries_of_views_are_decoded():
    """Polars gives its categories in this form."""
    names = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.uint32()), pa.array(["a", "b"], pa.string_view()))
    batch = pa.record_batch({"topic": names, "key": names, "value": names})
    found = records(encoded(RowEncoder(lambda _: 1), batch))
    values = {where: [(record.key, record.value) for record in read] for where, read in found.items()}
    assert values == {("a", 0): [(b"a", b"a")], ("b", 0): [(b"b", b"b")] * 2}


def test_columns_of_the_rows_origin_are_not_written():
    batch = pa.record_batch({"value": [b"a"], "offset": [17], "timestampType": [1]})
    (record,) = records(encoded(RowEncoder(lambda _: 1, topic="t"), batch))["t", 0]
    assert (record.offset, record.value) == (0, b"a")


def test_new_partitions_of_a_topic_are_used():
    counts = iter([1, 4])
    encoder = RowEncoder(lambda _: next(counts), topic="t")
    rows = rows_as_batch([{"key": str(number)} for number in range(50)], key=pa.string())
    batches = encoded(encoder, rows, rows)
    assert {batch.partition for batch in batches} == {0, 1, 2, 3}
    assert sum(batch.count for batch in batches) == 100


def test_rows_read_from_messages_without_a_time_can_be_written():
    times = pa.array([-1, 1000, -1], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"value": [b"a", b"b", b"c"], "timestamp": times})
    before = int(time.time() * 1000)
    (found,) = records(encoded(RowEncoder(lambda _: 1, topic="t"), rows)).values()
    assert [record.timestamp >= before for record in found] == [True, False, True]
    assert found[1].timestamp == 1000


def test_the_number_of_open_batches_is_bounded():
    encoder = RowEncoder(lambda _: 50, topic="t", open_bytes=100_000)
    rows = rows_as_batch(
        [{"key": str(number), "value": b"x" * 500} for number in range(2000)], key=pa.string(), value=pa.binary()
    )
    batches = [batch for _ in range(20) for batch in encoder.feed(rows)]
    assert 20 * 2000 - sum(batch.count for batch in batches) < 2000
    assert sum(batch.size for batch in batches) / len(batches) > 1000


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"value": [1], "topic": ["t"]}, "column 'value' has the type int64; it has to be binary or string"),
        (
            {"value": [b"a"], "topic": ["t"], "key": [1.5]},
            "column 'key' has the type double; it has to be binary or string",
        ),
        ({"value": [b"a"], "valeu": [b"a"]}, "a record has no column 'valeu': it has key, value, topic"),
        ({"topic": ["t"]}, r"neither a column 'value' nor 'key'; they have \['topic'\]"),
        ({"value": [b"a"]}, "no column 'topic', and no topic is given"),
        ({"value": [b"a"], "topic": [1]}, "column 'topic' has the type int64; it has to be string"),
        ({"value": [b"a"], "topic": pa.array([None], pa.string())}, "row 3 has no topic"),
        ({"value": [b"a"], "topic": ["t"], "partition": ["0"]}, "'partition' has the type string; it has to be int32"),
        (
            {"value": [b"a"], "topic": ["t"], "partition": [2]},
            "row 3, for topic 't', is for partition 2, but the topic",
        ),
        ({"value": [b"a"], "topic": ["t"], "partition": [-1]}, "is for partition -1"),
        ({"value": [b"a"], "topic": ["t"], "partition": [1 << 31]}, "'partition' has a number that is not a partition"),
        ({"value": [b"a"], "topic": ["t"], "timestamp": [-5]}, r"before 1970 \(-5 ms\)"),
        ({"value": [b"a"], "topic": ["t"], "timestamp": ["now"]}, "'timestamp' has the type string; it has to be a"),
        ({"value": [b"a"], "topic": ["t"], "headers": [["a"]]}, "it has to be list<struct<key: string"),
        (
            {"value": [b"a"], "topic": ["t"], "headers": pa.array([[{"key": None, "value": b""}]], HEADERS)},
            "row 3, for topic 't', has a header whose key is null",
        ),
        ({"value": [b"a"], "topic": ["t"], "headers": pa.array([[None]], HEADERS)}, "a row has a header that is null"),
    ],
)
def test_columns_that_cannot_be_written_are_reported_in_a_sentence(columns, sentence):
    encoder = RowEncoder(lambda _: 2)
    before = pa.record_batch({"value": [b"1", b"2", b"3"], "topic": ["s", "t", "s"]})
    list(encoder.feed(before))
    with pytest.raises(ValueError, match=sentence):
        list(encoder.feed(pa.record_batch(columns)))


def test_a_null_in_a_dictionary_of_topics_is_no_topic():
    topics = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    with pytest.raises(ValueError, match="row 1 has no topic"):
        list(RowEncoder(lambda _: 1).feed(pa.record_batch({"value": [b"1", b"2"], "topic": topics})))


def test_the_error_names_the_row_number_also_with_alternating_topics():
    rows = [{"value": b"", "topic": "ab"[number % 2], "partition": 9 if number == 4 else 0} for number in range(7)]
    batch = rows_as_batch(rows, value=pa.binary(), topic=pa.string(), partition=pa.int32())
    with pytest.raises(ValueError, match="row 4, for topic 'a', is for partition 9"):
        list(RowEncoder(lambda _: 3).feed(batch))


def test_a_duplicate_column_is_refused():
    batch = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with pytest.raises(ValueError, match="there are several columns 'value'"):
        list(RowEncoder(lambda _: 1, topic="t").feed(batch))


def test_rows_without_key_leave_a_partition_that_has_lost_its_leader():
    available = [1]
    encoder = RowEncoder(lambda _: 3, topic="t", available=lambda topic, count: available)
    rows = pa.record_batch({"value": [b"1"]})
    batches = encoded(encoder, rows)
    available[:] = [2]
    assert [batch.partition for batch in batches + encoded(encoder, rows)] == [1, 2]
