"""Rows in Arrow memory whose sizes or offsets are wrong are refused, and nothing outside the buffers is read."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext.batch import check, seal
from kafkapy._ext.row_batches import BadRow, Rows, TopicBatches
from kafkapy.record.batch import records_of
from tests.harness.batches import iter_batches
from tests.harness.examples import examples


def offsets(*numbers, form="i"):
    return struct.pack(f"<{len(numbers)}{form}", *numbers)


def column(*values):
    """Return a column of bytes without nulls."""
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    return None, offsets(*ends), b"".join(values), 0, len(values), 4


def encode(rows, partitions=1):
    batches = TopicBatches(partitions, 1000)
    assert batches.append(rows, 0, rows.count, 5) == rows.count
    data, count, largest = batches.take(0)
    return data, count, largest


def test_wide_offsets_and_a_column_that_begins_later():
    value = (None, offsets(0, 1, 3, 6, form="q"), b"abbccc", 1, 2, 8)
    data, count, largest = encode(Rows(2, None, value))
    (header,) = iter_batches(data)
    assert [record.value for record in records_of(data, header)] == [b"bb", b"ccc"]
    assert (count, header.base_timestamp) == (2, 5)
    assert largest == 3 + 7


@pytest.mark.parametrize(
    "arguments",
    [
        (3, None, (None, offsets(0, 1, 2), b"ab", 0, 3, 4)),  # 3 rows, with offsets for 2
        (3, None, (None, offsets(0, 1, 2, 3), b"abc", 0, 2, 4)),  # 3 rows, but 2 entries
        (2, None, (None, offsets(0, 1, 2), b"ab", 1, 2, 4)),
        (2, None, (None, offsets(0, 1, 2), b"ab", -1, 2, 4)),
        (2, None, (None, offsets(0, 1, 2), b"ab", 0, 2, 2)),
        (9, None, (b"\xff", offsets(*range(10)), b"123456789", 0, 9, 4)),  # 9 rows, with validity bits for 8
        (2, None, None, None, None, None, (None, offsets(1), 0)),
        (2, None, None, None, None, None, (b"", offsets(1, 2), 0)),
        (2, None, None, None, None, None, (None, offsets(1, 2), 1)),
        (2, None, None, None, None, None, (None, offsets(1, 2), -1)),
        (2, None, None, None, None, None, None, (None, offsets(1, 2), 0)),
        (2, None, None, None, None, None, None, None, offsets(1, form="Q")),
    ],
)
def test_memory_that_is_too_short_is_refused(arguments):
    with pytest.raises(ValueError, match=r"\d"):
        Rows(*arguments)


@pytest.mark.parametrize("numbers", [(0, 5), (3, 2), (-1, 1), (0, -1), (0x7FFFFFFF, 0x7FFFFFFF)])
def test_offsets_outside_the_data_are_refused(numbers):
    rows = Rows(1, None, (None, offsets(*numbers), b"abcd", 0, 1, 4))
    with pytest.raises(BadRow, match="row 0 is outside the memory of its column") as error:
        TopicBatches(1, 1000).append(rows, 0, 1, 5)
    assert error.value.row == 0


@pytest.mark.parametrize("numbers", [(0, 3), (2, 1), (-1, 1)])
def test_headers_outside_their_column_are_refused(numbers):
    headers = (None, offsets(*numbers), None, 0, 1, 4)
    rows = Rows(1, None, column(b"v"), headers, column(b"a", b"b"), column(b"1", b"2", b"3"))
    with pytest.raises(BadRow, match="is outside"):
        TopicBatches(1, 1000).append(rows, 0, 1, 5)


def test_an_order_with_a_missing_row_is_refused():
    rows = Rows(2, None, column(b"a", b"b"), order=offsets(1, 2, form="Q"))
    batches = TopicBatches(1, 1000)
    with pytest.raises(BadRow, match="row 2 is outside"):
        batches.append(rows, 0, 2, 5)
    data, count, _ = batches.take(0)
    (header,) = iter_batches(data)
    assert count == 1
    assert [record.value for record in records_of(data, header)] == [b"b"]


def test_after_a_bad_row_the_encoder_continues():
    batches = TopicBatches(2, 1000)
    partition = (None, offsets(0, 7, 1), 0)
    rows = Rows(3, None, column(b"a", b"b", b"c"), partition=partition)
    with pytest.raises(BadRow, match="row 1 is for partition 7, but the topic has 2, counted from 0"):
        batches.append(rows, 0, 3, 5)
    assert batches.append(rows, 2, 3, 5) == 3
    assert batches.open_partitions() == [0, 1]


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (2, 1), (0, 3)])
def test_rows_that_there_are_not_are_refused(start, end):
    with pytest.raises(ValueError, match="not among the 2 rows"):
        TopicBatches(1, 1000).append(Rows(2, None, column(b"a", b"b")), start, end, 5)


@pytest.mark.parametrize("partitions", [0, -1, 1 << 30])
def test_a_topic_without_partitions_is_refused(partitions):
    with pytest.raises(ValueError, match="partitions"):
        TopicBatches(partitions, 1000)


def test_a_batch_without_records_cannot_be_taken():
    batches = TopicBatches(2, 1000)
    for partition in (-1, 0, 2):
        with pytest.raises(ValueError, match="has no open batch"):
            batches.take(partition)
    batches.sticky = 2
    with pytest.raises(ValueError, match="partition 2 is not among the topic's 2"):
        batches.append(Rows(0), 0, 0, 5)


ANYTHING = st.binary(max_size=80)
NUMBERS = st.integers(-2, 9)
BYTES = st.none() | st.tuples(
    st.none() | ANYTHING, ANYTHING, st.none() | ANYTHING, NUMBERS, NUMBERS, st.sampled_from([4, 8])
)
COLUMN = st.none() | st.tuples(st.none() | ANYTHING, ANYTHING, NUMBERS)


@settings(max_examples=examples(500), deadline=None)
@given(NUMBERS, BYTES, BYTES, BYTES, BYTES, BYTES, COLUMN, COLUMN, st.none() | ANYTHING)
def test_any_memory_is_encoded_or_refused(count, key, value, headers, names, contents, partition, timestamp, order):
    if headers is not None and (names is None or contents is None):
        headers = None
    try:
        rows = Rows(count, key, value, headers, names, contents, partition, timestamp, order)
        batches = TopicBatches(2, 1000)
        batches.append(rows, 0, rows.count, 5)
    except ValueError:
        return
    assert sum(batches.take(index)[1] for index in batches.open_partitions()) == count


def test_a_batch_gets_its_checksum_when_it_is_sealed():
    data, _, _ = encode(Rows(1, None, column(b"v")))
    seal(data, producer_id=7, producer_epoch=1, base_sequence=9)
    header = check(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 9)
    assert not header.is_transactional
    with pytest.raises(ValueError, match="are not exactly one complete batch"):
        seal(data[:-1])
    with pytest.raises(ValueError, match="are not exactly one complete batch"):
        seal(data + b"x")
