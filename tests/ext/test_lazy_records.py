"""Records that are decoded one by one, compared with records that are decoded at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.batch import HEADER, read_header
from kafkapy._ext.lazy_records import LazyRecords
from kafkapy._ext.records import CorruptRecords
from kafkapy.record.batch import build, payload_of, records_of

some_bytes = st.none() | st.binary(max_size=20)
records = st.lists(
    st.tuples(st.integers(0, 1 << 41), some_bytes, some_bytes, st.lists(st.tuples(st.text(max_size=3), some_bytes))),
    min_size=1,
    max_size=8,
)


@given(records, st.integers(0, 4), st.integers(0, 1 << 40))
def test_it_gives_what_decoding_at_once_gives(given, codec, base_offset):
    data = build(given, codec=codec, base_offset=base_offset)
    header = read_header(data)
    lazy = list(LazyRecords(payload_of(data, header), header))
    assert lazy == [(r.offset, r.timestamp, r.key, r.value) for r in records_of(data, header)]


@given(records, st.data())
def test_damaged_records_raise_and_never_end_silently_short(given, choice):
    data = bytearray(build(given))
    at = choice.draw(st.integers(HEADER, len(data) - 1))
    data[at] ^= choice.draw(st.integers(1, 255))
    header = read_header(data)
    try:
        found = list(LazyRecords(payload_of(data, header), header))
    except CorruptRecords:
        return
    assert len(found) == len(given)


def test_records_that_are_cut_or_too_many_are_refused_where_it_is_seen():
    data = build([(0, None, b"one", ()), (0, None, b"two", ())])
    header = read_header(data)
    cut = LazyRecords(data[HEADER:-1], header)
    assert next(cut)[3] == b"one"
    with pytest.raises(CorruptRecords, match="before the end of record 1"):
        next(cut)
    with pytest.raises(CorruptRecords, match="2 bytes are left"):
        list(LazyRecords(data[HEADER:] + b"xx", header))


def test_the_memory_cannot_go_away_while_it_is_read():
    data = bytearray(build([(0, None, b"one", ())]))
    header = read_header(data)
    lazy = LazyRecords(memoryview(data)[HEADER:], header)
    with pytest.raises(BufferError):
        data.clear()
    assert [value for _, _, _, value in lazy] == [b"one"]
    del lazy
    data.clear()
