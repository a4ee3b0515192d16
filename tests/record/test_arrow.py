"""Columns as Arrow objects are valid, equal to the records, and share the memory."""

import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.record.arrow import record_batch, schema_of
from kafkapy.record.batch import build
from kafkapy.record.columns import COLUMNS, column_builder
from kafkapy.record.legacy import build_set
from tests.harness.examples import examples

MAYBE = st.none() | st.binary(max_size=30)
HEADERS = st.lists(st.tuples(st.text(max_size=8), MAYBE), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(st.integers(0, 10**12), MAYBE, MAYBE, HEADERS), min_size=1, max_size=20)


def one_batch(data, names=tuple(COLUMNS), large=False):
    builder = column_builder(names, large_offsets=large, partition=5)
    list(builder.feed(data))
    built = record_batch(builder.finish(), schema_of(names, large_offsets=large))
    built.validate(full=True)
    return built


@settings(max_examples=examples(50), deadline=None)
@given(RECORDS, st.booleans())
def test_arrow_reads_the_written_records(records, large):
    found = one_batch(build(records, producer_id=9, producer_epoch=2, base_sequence=4, leader_epoch=8), large=large)
    rows = found.to_pylist()
    assert [
        (
            row["timestamp"].replace(tzinfo=None) - datetime.datetime(1970, 1, 1),
            row["key"],
            row["value"],
            [(one["key"], one["value"]) for one in row["headers"]],
        )
        for row in rows
    ] == [(datetime.timedelta(milliseconds=stamp), key, value, list(headers)) for stamp, key, value, headers in records]
    assert [row["offset"] for row in rows] == list(range(len(records)))
    assert {row["producer_id"] for row in rows} == {9}
    assert [row["sequence"] for row in rows] == [4 + n for n in range(len(records))]
    assert {(row["partition"], row["leader_epoch"], row["timestamp_type"]) for row in rows} == {(5, 8, 0)}


def test_a_record_without_a_timestamp_has_none():
    found = one_batch(build_set([(0, b"k", b"v")], 0) + build_set([(7, None, b"v")], 1))
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [None, 7]
    assert found.column("timestamp_type").to_pylist() == [-1, 0]


def test_a_value_is_not_copied():
    builder = column_builder(["value"])
    list(builder.feed(build([(0, None, b"x" * 5000, ())])))
    columns = builder.finish()
    array = record_batch(columns, schema_of(["value"])).column("value")
    memory = pa.py_buffer(columns.columns["value"].data)
    assert array.buffers()[2].address == memory.address


@pytest.mark.parametrize("names", [["value"], ["headers", "offset"], []])
def test_the_schema_has_the_requested_columns(names):
    schema = schema_of(names)
    assert set(schema.names) == set(names)
    assert one_batch(build([(0, None, b"x", ())]), tuple(names)).num_rows == (1 if names else 0)
