"""Down-conversion: the entries that old consumers get of each format, compared with the stored records."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.entries import check_entry
from kafkapy.errors import Errors, KafkaError
from kafkapy.record import compression
from kafkapy.record.batch import build, records_of
from kafkapy.record.conversion import down_convert
from kafkapy.record.legacy import build_set, iter_entries, read_entry
from tests.record.test_golden_legacy import ENTRIES, log_file

NOW = 1_500_000_000_000
SOME = [(NOW, b"k", b"v", ()), (NOW + 9, None, b"words " * 20, (("h", b"x"),)), (NOW + 3, b"", None, ())]
OLD_CODECS = pytest.mark.parametrize("codec", range(4), ids=compression.NAMES[:4])
DOWN = pytest.mark.parametrize(("source", "magic"), [(2, 1), (2, 0), (1, 0)])


def stored(source, records, codec=0, *, base_offset=100, timestamp_type=0):
    if source == 2:
        return build(records, codec=codec, base_offset=base_offset, timestamp_type=timestamp_type)
    plain = [record[:3] for record in records]
    return build_set(plain, source, codec, base_offset=base_offset, timestamp_type=timestamp_type, append_time=NOW + 77)


def seen(data):
    """Return (offset, timestamp, key, value) of all records; check that every entry is valid."""
    found = []
    for header in iter_entries(data):
        check_entry(data, header.position)
        found += [tuple(record[:4]) for record in records_of(data, header)]
    return found


def without_times(records):
    return [(offset, -1, key, value) for offset, _, key, value in records]


@OLD_CODECS
@DOWN
def test_records_keep_offsets_keys_and_values_and_format_1_their_times(source, magic, codec):
    data = stored(source, SOME, codec)
    converted = down_convert(data, magic)
    assert {header.magic for header in iter_entries(converted)} == {magic}
    assert seen(converted) == (seen(data) if magic else without_times(seen(data)))


@OLD_CODECS
@DOWN
def test_compressed_batches_become_one_wrapper_and_others_single_messages(source, magic, codec):
    headers = list(iter_entries(down_convert(stored(source, SOME, codec), magic)))
    assert [header.codec for header in headers] == ([codec] if codec else [0, 0, 0])
    assert headers[-1].last_offset == 102
    assert headers[-1].max_timestamp == (-1 if magic == 0 else NOW + 9 if codec else NOW + 3)


@OLD_CODECS
@DOWN
def test_converted_entries_equal_those_that_kafka_writes_in_that_format(source, magic, codec):
    plain = [record[:3] for record in SOME]
    assert down_convert(stored(source, SOME, codec), magic) == build_set(plain, magic, codec, base_offset=100)


@OLD_CODECS
def test_every_message_of_format_1_has_the_append_time_attribute(codec):
    converted = down_convert(stored(2, SOME, codec, timestamp_type=1), 1)
    assert {header.timestamp_type for header in iter_entries(converted)} == {1}
    assert [record[1] for record in seen(converted)] == [NOW + 9] * 3
    expected = build_set(
        [record[:3] for record in SOME], 1, codec, base_offset=100, timestamp_type=1, append_time=NOW + 9
    )
    assert converted == expected
    assert [header.attributes & 8 for header in iter_entries(down_convert(converted, 0))] == [0] * (1 if codec else 3)


@OLD_CODECS
@pytest.mark.parametrize(("source", "magic"), [(0, 0), (0, 1), (1, 1)])
def test_formats_that_the_client_supports_are_not_converted(source, magic, codec):
    data = stored(source, SOME, codec)
    assert down_convert(data, magic, 102) == data


@DOWN
def test_uncompressed_records_before_the_first_offset_are_left_out(source, magic):
    data = stored(source, SOME) + stored(source, SOME, base_offset=103)
    for first in range(99, 108):
        assert [record[0] for record in seen(down_convert(data, magic, first))] == list(range(max(first, 100), 106))


@DOWN
def test_compressed_batches_stay_whole(source, magic):
    data = stored(source, SOME, compression.GZIP)
    assert len(seen(down_convert(data, magic, 102))) == 3


@pytest.mark.parametrize("magic", [0, 1])
def test_control_and_empty_batches_are_left_out(magic):
    control = build([(NOW, b"\0\0\0\1", b"\0\0\0\0\0\0", ())], base_offset=103, control=True, transactional=True)
    empty = build([], codec=compression.LZ4, base_offset=104)
    assert down_convert(control + empty, magic) == b""
    assert len(seen(down_convert(stored(2, SOME) + control + empty + stored(2, SOME, base_offset=105), magic))) == 6


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_even_after_other_batches(magic):
    data = stored(2, SOME, compression.ZSTD)
    for before in (b"", stored(2, SOME), stored(1, SOME, compression.GZIP)):
        with pytest.raises(KafkaError, match="offset 102 is compressed with zstd") as refused:
            down_convert(before + data, magic)
        assert refused.value.code == Errors.UNSUPPORTED_COMPRESSION_TYPE


def test_lz4_frames_get_the_header_checksum_of_their_format():
    converted = {magic: down_convert(stored(2, SOME, compression.LZ4), magic) for magic in (0, 1)}
    assert converted[0][26:33].hex() == "04224d1860401a"
    assert converted[1][34:41].hex() == "04224d18604082"
    assert down_convert(converted[1], 0) == converted[0]


@DOWN
def test_an_incomplete_entry_ends_the_conversion(source, magic):
    one, two = stored(source, SOME[:1]), stored(source, SOME, compression.SNAPPY, base_offset=101)
    for cut in range(len(two)):
        assert seen(down_convert(one + two[:cut], magic)) == seen(down_convert(one, magic))


@DOWN
def test_entries_that_decompress_to_more_than_the_limit_are_refused(source, magic):
    data = stored(source, [(NOW, None, bytes(100_000), ())], compression.GZIP)
    with pytest.raises(KafkaError, match="more than 50000 bytes") as refused:
        down_convert(data, magic, max_decompressed=50_000)
    assert refused.value.code == Errors.CORRUPT_MESSAGE
    small = build([(NOW, None, None, ())] * 2000, codec=compression.GZIP)
    with pytest.raises(KafkaError, match="more than 20000"):
        down_convert(small, magic, max_decompressed=20_000)


@pytest.mark.parametrize("place", [8, 16, 57, 61, 65, 70])
def test_the_error_names_the_damage(place):
    data = bytearray(stored(2, SOME))
    data[place] ^= 0x80
    with pytest.raises(KafkaError, match="records that cannot be converted") as refused:
        down_convert(stored(2, SOME) + data + stored(2, SOME), 1)
    assert refused.value.code == Errors.CORRUPT_MESSAGE


def test_stored_timestamps_before_1970_become_no_timestamp():
    data = build([(-5, b"k", b"v", ()), (-1, b"k", b"v", ())])
    assert [record[1] for record in seen(down_convert(data, 1))] == [-1, -1]


MAYBE = st.none() | st.binary(max_size=60)
RECORDS = st.lists(st.tuples(st.integers(0, 2**42), MAYBE, MAYBE, st.just(())), min_size=1, max_size=20)
SETS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), RECORDS), min_size=1, max_size=4)


@given(SETS, st.integers(0, 1))
def test_any_mixture_of_formats_has_the_same_records_in_an_older_format(sets, magic):
    data, offset = b"", 7
    for source, codec, records in sets:
        data += stored(source, records, codec, base_offset=offset)
        offset += len(records)
    converted = down_convert(data, magic)
    assert all(header.magic <= magic for header in iter_entries(converted))
    before, after = seen(data), seen(converted)
    assert [(record[0], *record[2:]) for record in after] == [(record[0], *record[2:]) for record in before]
    if magic:
        assert after == before


def test_golden_segments_have_the_same_records_in_older_formats():
    for folder, partition, file in sorted({(one.folder, one.partition, one.file) for one in ENTRIES}):
        data = log_file(folder, partition, file)
        if any(header.is_control for header in iter_entries(data)):
            continue
        for magic in (1, 0):
            converted = down_convert(data, magic)
            expected = seen(data) if magic else without_times(seen(data))
            assert seen(converted) == expected, (folder, partition, file, magic)


@given(st.data())
def test_mutated_entries_are_refused_or_converted(data):
    source, codec = data.draw(st.integers(1, 2)), data.draw(st.integers(0, 3))
    broken = bytearray(stored(source, SOME, codec))
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, len(broken) - 1), st.integers(0, 255)), max_size=3)):
        broken[place] = byte
    for magic in (0, 1):
        try:
            converted = down_convert(broken, magic, max_decompressed=1 << 20)
        except KafkaError:
            continue
        if converted and converted != broken:
            assert read_entry(converted).magic <= magic


def test_pieces_join_to_the_whole():
    parts = [stored(2, SOME, codec, base_offset=100 + 3 * codec) for codec in range(4)]
    whole = down_convert(b"".join(parts), 1)
    assert whole == b"".join(itertools.chain.from_iterable([down_convert(part, 1)] for part in parts))
