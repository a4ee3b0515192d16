"""Reading and writing messages of formats 0 and 1, and entries of any format."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.batch import BatchHeader, CorruptBatch, UnsupportedMagic
from kafkapy._ext.entries import check_entry, next_entry
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.message_writer import MessagesEncoder, wrap
from kafkapy._ext.records import CorruptRecords
from kafkapy.record import compression
from kafkapy.record.batch import build, find_timestamp, payload_of, records_of
from kafkapy.record.legacy import build_set, check, iter_entries, messages_of, read_entry

NOW = 1_524_709_879_130
SOME = [(NOW, b"k", b"v"), (NOW + 5, None, b"words " * 20), (NOW + 3, b"", None)]
OLD = pytest.mark.parametrize("magic", [0, 1])
OLD_CODECS = pytest.mark.parametrize("codec", range(4), ids=compression.NAMES[:4])


def plain(records):
    return [tuple(record[:4]) for record in records]


# Kafka's constants


def test_sizes_and_checksum_equal_kafkas():
    one = {magic: build_set([(NOW, b"key", b"value")], magic) for magic in (0, 1)}
    assert (len(one[0]), len(one[1])) == (34, 42)
    assert read_entry(one[0]).crc == 592888119
    assert len(build_set([(NOW, None, b"value")], 0)) == 31
    ten = [(NOW, None, b"6bytes")] * 10
    assert (len(build_set(ten, 0)), len(build_set(ten, 1))) == (320, 400)


# Headers


@OLD
@OLD_CODECS
def test_headers_have_the_same_attributes_as_batch_headers(magic, codec):
    data = build_set(SOME, magic, codec, base_offset=10)
    headers = list(iter_entries(data))
    assert [header.last_offset for header in headers] == ([12] if codec else [10, 11, 12])
    for header in headers:
        assert isinstance(header, MessageHeader)
        assert (header.magic, header.codec) == (magic, codec)
        assert (header.leader_epoch, header.producer_id, header.is_control, header.is_transactional) == (
            -1,
            -1,
            False,
            False,
        )
        assert header.timestamp_type == (0 if magic else None)
        assert check(data, header).crc == header.crc
        assert f"codec={codec}" in repr(header)
    assert headers[-1].next_position == len(data)
    assert headers[-1].max_timestamp == (-1 if magic == 0 else NOW + 5 if codec else NOW + 3)


def test_entries_of_all_formats_follow_each_other():
    parts = [
        build_set(SOME, 0, base_offset=0),
        build_set(SOME, 1, compression.LZ4, base_offset=3),
        build([(*record, ()) for record in SOME], base_offset=6),
        build_set(SOME[:1], 1, base_offset=9),
    ]
    data = b"".join(parts)
    headers = list(iter_entries(data))
    assert [header.magic for header in headers] == [0, 0, 0, 1, 2, 1]
    assert isinstance(headers[4], BatchHeader)
    assert [record.offset for header in headers for record in records_of(data, header)] == list(range(10))
    assert [header.position for header in iter_entries(data[:-1], headers[3].position)] == [
        header.position for header in headers[3:5]
    ]


@OLD
def test_an_incomplete_entry_is_not_returned(magic):
    data = build_set(SOME[:1], magic)
    for cut in range(len(data)):
        assert next_entry(data[:cut]) is None
        with pytest.raises(CorruptBatch):
            check_entry(data[:cut])
    header_size = 26 if magic else 18
    assert read_entry(data[:header_size]).size == len(data)
    with pytest.raises(CorruptBatch, match="too few for the header of an entry"):
        read_entry(data[: header_size - 1])


@pytest.mark.parametrize(("magic", "least"), [(0, 14), (1, 22), (2, 49)])
def test_entries_smaller_than_their_format_allows_are_corrupt(magic, least):
    data = bytearray(100)
    data[16] = magic
    for length in (least - 1, 13, 0, -1, -(2**31)):
        data[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptBatch, match=f"has a length of {length}, too small"):
            next_entry(data)
    data[8:12] = least.to_bytes(4, "big")
    assert next_entry(data).size == least + 12


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_the_error_names_an_unknown_magic(magic):
    data = bytearray(build_set(SOME, 1))
    data[16] = magic
    with pytest.raises(UnsupportedMagic) as caught:
        next_entry(data)
    assert caught.value.magic == (magic if magic < 128 else magic - 256)


def test_positions_outside_of_the_buffer_are_refused():
    data = build_set(SOME, 0)
    for position in (-1, len(data) + 1):
        for call in (read_entry, next_entry, check_entry):
            with pytest.raises(CorruptBatch, match="outside"):
                call(data, position)
    (header, *_) = iter_entries(data)
    with pytest.raises(CorruptRecords):
        messages_of(b"", header)


# Messages inside of wrappers


def wrapper(magic, offset, inner_offsets, *, inner_magic=None, timestamp=NOW, timestamp_type=0, tail=b""):
    inner = MessagesEncoder(magic if inner_magic is None else inner_magic)
    for number, one in enumerate(inner_offsets):
        inner.append(one, NOW - number, b"k", b"%d" % number)
    packed = compression.compress(1, inner.payload() + tail)
    return wrap(packed, magic, 1, offset, timestamp, timestamp_type)


def offsets_in(data):
    return [record.offset for record in records_of(data, read_entry(data))]


@pytest.mark.parametrize(
    ("offset", "inner", "seen"),
    [
        (102, [0, 1, 2], [100, 101, 102]),
        (102, [0, 5, 7], [95, 100, 102]),  # with gaps, after compaction
        (0, [0, 1, 2], [0, 1, 2]),
        (102, [100, 101, 102], [100, 101, 102]),
        (102, [0, 0, 0], [102, 102, 102]),
    ],
)
def test_offsets_in_wrappers_of_format_1_are_counted_from_the_last_message(offset, inner, seen):
    data = wrapper(1, offset, inner)
    assert offsets_in(data) == seen
    for number, offset in enumerate(seen):
        assert find_timestamp(data, read_entry(data), NOW - number, offset)[0] == offset


@pytest.mark.parametrize("inner", [[7, 8, 9], [0, 0, 0], [9, 5, 7]])
def test_offsets_in_wrappers_of_format_0_are_absolute(inner):
    assert offsets_in(wrapper(0, 9, inner)) == inner


def test_a_wrapper_with_a_wrong_offset_is_corrupt():
    data = wrapper(1, 1, [0, 1, 2])
    for call in (records_of, lambda *arguments: find_timestamp(*arguments, 0)):
        with pytest.raises(
            CorruptRecords, match="the wrapper has the offset 1, but the relative offset of its last message is 2"
        ):
            call(data, read_entry(data))


def test_the_append_time_of_a_wrapper_applies_to_all_its_messages():
    data = wrapper(1, 2, [0, 1, 2], timestamp=5, timestamp_type=1)
    assert [record.timestamp for record in records_of(data, read_entry(data))] == [5, 5, 5]
    assert find_timestamp(data, read_entry(data), 5, 1) == (1, 5)
    assert find_timestamp(data, read_entry(data), 6) is None
    data = wrapper(1, 2, [0, 1, 2], timestamp=5, timestamp_type=0)
    assert [record.timestamp for record in records_of(data, read_entry(data))] == [NOW, NOW - 1, NOW - 2]


def test_messages_of_format_0_inside_of_format_1_have_no_timestamp():
    data = wrapper(1, 2, [0, 1, 2], inner_magic=0, timestamp=5, timestamp_type=1)
    assert [record.timestamp for record in records_of(data, read_entry(data))] == [-1, -1, -1]


@OLD
def test_wrappers_in_wrappers_are_corrupt(magic):
    nested = wrap(compression.compress(1, wrapper(magic, 0, [0])), magic, 1, 0, NOW)
    with pytest.raises(CorruptRecords, match="must not contain wrappers"):
        records_of(nested, read_entry(nested))


@OLD
def test_a_cut_message_at_the_end_of_a_wrapper_is_left_out_as_by_kafka(magic):
    data = wrapper(magic, 2, [0, 1, 2], tail=build_set(SOME, magic)[:20])
    assert len(offsets_in(data)) == 3


@OLD
def test_wrappers_without_messages_are_corrupt(magic):
    for inner, match in ((b"", "has no messages"), (bytes(40), "message 0 of the wrapper has a size of 0, too small")):
        data = wrap(compression.compress(1, inner), magic, 1, 0, NOW)
        with pytest.raises(CorruptRecords, match=match):
            records_of(data, read_entry(data))
    data = bytearray(build_set([(NOW, b"k", None)], magic))
    data[17] = 1
    with pytest.raises(CorruptRecords, match="has no value"):
        records_of(data, read_entry(data))


@OLD
@pytest.mark.parametrize(("codec", "name"), [(4, "zstd"), (5, "codec 5"), (7, "codec 7")])
def test_the_error_names_codecs_that_these_formats_do_not_have(magic, codec, name):
    data = wrap(b"data", magic, codec, 0, NOW)
    with pytest.raises(CorruptRecords, match=f"cannot be compressed with {name}"):
        records_of(data, read_entry(data))
    with pytest.raises(ValueError, match="cannot be compressed with"):
        build_set(SOME, magic, 4)


@OLD
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_nothing_is_decompressed_to_more_than_the_limit(magic, codec):
    data = build_set([(NOW, None, bytes(1_000_000))], magic, codec)
    with pytest.raises(compression.RecordTooLarge):
        records_of(data, read_entry(data), 900_000)
    assert len(records_of(data, read_entry(data), 1_000_100)) == 1


# Writing


@OLD
def test_append_time_is_written_into_every_message(magic):
    data = build_set(SOME, magic, timestamp_type=1, append_time=99)
    assert {header.max_timestamp for header in iter_entries(data)} == {99 if magic else -1}
    assert {header.attributes for header in iter_entries(data)} == {8 if magic else 0}


def test_only_formats_0_and_1_can_be_written():
    for magic in (-1, 2):
        with pytest.raises(ValueError, match="format 0 or 1"):
            build_set(SOME, magic)
        with pytest.raises(ValueError, match="format 0 or 1"):
            wrap(b"", magic, 1, 0)


@OLD
@OLD_CODECS
def test_no_records_give_no_bytes(magic, codec):
    assert build_set([], magic, codec) == b""


MAYBE = (
    st.none() | st.binary(max_size=60) | st.binary(max_size=60).map(bytearray) | st.binary(max_size=9).map(memoryview)
)


@given(
    st.lists(st.tuples(st.integers(0, 2**62), MAYBE, MAYBE), min_size=1, max_size=20),
    st.integers(0, 1),
    st.integers(0, 3),
    st.lists(st.integers(1, 1000), min_size=20, max_size=20),
)
def test_written_records_are_read_back(records, magic, codec, steps):
    offsets = list(itertools.accumulate(steps))[: len(records)]
    data = build_set(records, magic, codec, offsets=offsets)
    seen = [record for header in iter_entries(data) for record in records_of(data, check_entry(data, header.position))]
    assert plain(seen) == [
        (offset, time if magic else -1, key, value) for offset, (time, key, value) in zip(offsets, records, strict=True)
    ]
    assert all(record.headers == () and record.sequence == -1 for record in seen)


@OLD
@OLD_CODECS
def test_a_payload_is_the_data_that_the_header_describes(magic, codec):
    data = build_set(SOME, magic, codec)
    expected = build_set(SOME, magic) if codec else data[: read_entry(data).size]
    assert bytes(payload_of(data, read_entry(data))) == expected
