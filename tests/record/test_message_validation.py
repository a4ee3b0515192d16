"""Produced message sets of formats 0 and 1, and batches for topics of those formats: accepted, converted, refused."""

import itertools
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext import message_validation
from kafkapy._ext.entries import check_entry
from kafkapy._ext.message_writer import MessagesEncoder, wrap
from kafkapy._ext.validation import InvalidBatch
from kafkapy.errors import Errors, KafkaError
from kafkapy.record import compression
from kafkapy.record.batch import build, records_of
from kafkapy.record.legacy import build_set, iter_entries, read_entry, set_of
from kafkapy.record.validation import RecordError, assign, validate

NOW = 1_500_000_000_000
SOME = [(NOW, b"k", b"v"), (NOW + 5, b"", b"words " * 20), (NOW + 3, b"z", None)]
OLD = pytest.mark.parametrize("magic", [0, 1])
OLD_CODECS = pytest.mark.parametrize("codec", range(4), ids=compression.NAMES[:4])
WRAPPED = pytest.mark.parametrize("codec", range(1, 4), ids=compression.NAMES[1:4])
TARGETS = pytest.mark.parametrize("target", [0, 1, 2])


def produced(source, records=SOME, codec=0, **options):
    if source == 2:
        return bytearray(build([(*record, ()) for record in records], codec=codec, **options))
    return bytearray(build_set(records, source, codec, **options))


def accept(data, target, **options):
    return validate(data, now_ms=NOW + 10, target_magic=target, any_magic=True, **options)


def refused(data, code, match=None, target=1, **options):
    with pytest.raises(RecordError, match=match) as caught:
        accept(data, target, **options)
    assert caught.value.code == code
    return caught.value


def stored(batch, base_offset=100):
    """Return (offset, timestamp, key, value) of the records as appended at that offset; check every entry."""
    assign(batch, base_offset, 7)
    assert batch.size == len(batch.data)
    found = []
    for header in iter_entries(batch.data):
        check_entry(batch.data, header.position)
        assert (header.magic, header.codec) == (batch.magic, batch.codec)
        found += [tuple(record[:4]) for record in records_of(batch.data, header)]
    assert header.next_position == batch.size
    assert header.last_offset == base_offset + batch.last_offset_delta
    return found


# Every pair of formats


@pytest.mark.parametrize("source", [0, 1, 2])
@TARGETS
@OLD_CODECS
@pytest.mark.parametrize("target_codec", [-1, 0, 1, 3])
@pytest.mark.parametrize("append_time", [0, 1])
def test_every_format_and_codec_is_stored_as_the_topic_requires(source, target, codec, target_codec, append_time):
    batch = accept(produced(source, codec=codec), target, target_codec=target_codec, timestamp_type=append_time)
    assert (batch.magic, batch.count, batch.last_offset_delta) == (target, 3, 2)
    assert batch.codec == (codec if target_codec < 0 else target_codec)
    none = target == 0 or (source == 0 and not append_time)
    times = [-1 if none else NOW + 10 if append_time else record[0] for record in SOME]
    assert stored(batch) == [(100 + at, time, *SOME[at][1:]) for at, time in enumerate(times)]
    assert batch.max_timestamp == max(times)
    assert batch.timestamp_type == (append_time if target else 0)
    assert (batch.producer_id, batch.base_sequence, batch.is_transactional) == (-1, -1, False)
    # For the time index: the last offset of the first entry with the largest timestamp.
    if none:
        assert batch.offset_delta_of_max_timestamp == -1
    elif target == 2 or batch.codec:
        assert batch.offset_delta_of_max_timestamp == 2
    else:
        assert batch.offset_delta_of_max_timestamp == (0 if append_time else 1)


@TARGETS
@OLD_CODECS
def test_built_sets_equal_kafkas(target, codec):
    for source in (0, 1, 2):
        batch = accept(produced(source, codec=codec), target)
        assign(batch, 100, 7)
        records = SOME if source else [(-1, *record[1:]) for record in SOME]
        if target == 2:
            plain = [(*record, ()) for record in records]
            assert batch.data == build(plain, codec=codec, base_offset=100, leader_epoch=7)
        else:
            assert batch.data == build_set(records, target, codec, base_offset=100)


MAYBE = st.none() | st.binary(max_size=60)
RECORDS = st.lists(st.tuples(st.integers(0, 2**42), MAYBE, MAYBE), min_size=1, max_size=20)


@given(RECORDS, st.integers(0, 2), st.integers(0, 2), st.integers(0, 3), st.integers(-1, 3), st.integers(0, 2**40))
def test_any_records_are_stored_unchanged(records, source, target, codec, target_codec, base_offset):
    batch = accept(produced(source, records, codec), target, target_codec=target_codec)
    none = source == 0 or target == 0
    expected = [(base_offset + at, -1 if none else time, *rest) for at, (time, *rest) in enumerate(records)]
    assert stored(batch, base_offset) == expected


# In place


@OLD
def test_single_messages_are_validated_in_place(magic):
    data = produced(magic)
    before = bytes(data)
    batch = accept(data, magic)
    assert not batch.rebuilt
    assert [offset for offset, *_ in stored(batch, 1000)] == [1000, 1001, 1002]
    assert data != before
    assert batch.data.obj is data


@OLD
def test_a_message_that_is_cut_at_the_end_is_left_out(magic):
    data = produced(magic)
    for cut in range(1, 20):
        batch = accept(data + produced(magic)[:cut], magic)
        assert (batch.count, batch.size) == (3, len(data))


@WRAPPED
def test_only_the_offset_of_a_wrapper_of_format_1_changes(codec):
    data = produced(1, codec=codec)
    before = bytes(data)
    batch = accept(data, 1)
    assign(batch, 1000, 7)
    assert not batch.rebuilt
    assert data[8:] == before[8:]
    assert read_entry(data).offset == 1002


@WRAPPED
def test_append_time_is_written_only_to_the_wrapper(codec):
    data = produced(1, codec=codec)
    inner = set_of(data, read_entry(data))
    batch = accept(data, 1, timestamp_type=1)
    header = check_entry(data)
    assert not batch.rebuilt
    assert (header.timestamp, header.timestamp_type) == (NOW + 10, 1)
    assert set_of(data, header) == inner


def test_append_time_is_written_to_every_single_message():
    data = produced(1)
    assert not accept(data, 1, timestamp_type=1).rebuilt
    headers = list(iter_entries(data))
    assert [(header.timestamp, header.timestamp_type) for header in headers] == [(NOW + 10, 1)] * 3


@WRAPPED
def test_the_wrapper_gets_the_largest_timestamp(codec):
    data = produced(1, codec=codec)
    packed = set_of(data, read_entry(data))
    lying = bytearray(wrap(compression.compress(codec, packed), 1, codec, 2, NOW - 500))
    accept(lying, 1)
    assert check_entry(lying).timestamp == NOW + 5


def test_timestamps_before_1970_become_no_timestamp():
    data = produced(1, [(-7, b"k", b"v"), (NOW, b"k", b"v")])
    batch = accept(data, 1)
    assert [time for _, time, *_ in stored(batch)] == [-1, NOW]
    assert [time for _, time, *_ in stored(accept(produced(1, [(-7, b"k", b"v")]), 2))] == [-1]


def test_a_buffer_that_cannot_be_written_is_copied():
    for source, target, codec in itertools.product((0, 1), (0, 1, 2), (0, 1)):
        data = bytes(produced(source, codec=codec))
        assert len(stored(accept(data, target))) == 3
        assert data == produced(source, codec=codec)


# Offsets inside wrappers


def wrapper(magic, offset, inner_offsets, codec=compression.GZIP, inner_magic=None, timestamp=NOW, timestamp_type=0):
    inner = MessagesEncoder(magic if inner_magic is None else inner_magic)
    for number, one in enumerate(inner_offsets):
        inner.append(one, NOW, b"k", b"%d" % number)
    packed = compression.compress(codec, inner.payload(), broken_checksum=magic == 0)
    return bytearray(wrap(packed, magic, codec, offset, timestamp, timestamp_type))


@pytest.mark.parametrize(
    ("offset", "inner", "in_place"),
    [
        (2, [0, 1, 2], True),
        (0, [0, 1, 2], True),  # as librdkafka once sent it
        (0, [0, 0, 0], False),  # as sent by producers of 0.8 and 0.9 that only changed the magic
        (102, [100, 101, 102], False),  # absolute offsets
        (102, [0, 1, 2], False),
        (2, [0, 2, 1], False),
        (7, [0, 3, 7], False),
        (0, [5, 6, 7], False),
        (3, [-1, -1, -1], False),
        (2, [-(2**63), -(2**63) + 1, -(2**63) + 2], False),
    ],
)
def test_wrappers_of_format_1_are_rebuilt_unless_their_messages_have_relative_offsets(offset, inner, in_place):
    batch = accept(wrapper(1, offset, inner), 1)
    assert batch.rebuilt is not in_place
    assert stored(batch) == [(100 + at, NOW, b"k", b"%d" % at) for at in range(3)]


def test_a_wrapper_with_a_smaller_offset_than_its_last_message_is_refused():
    refused(wrapper(1, 1, [0, 1, 2]), Errors.INVALID_RECORD, "the relative offset of its last message is 2")


@pytest.mark.parametrize("inner", [[0, 1, 2], [0, 0, 0], [9, 8, 7], [-1, -1, -1]])
@TARGETS
def test_wrappers_of_format_0_may_have_any_offsets(inner, target):
    batch = accept(wrapper(0, 5, inner), target)
    assert [(offset, value) for offset, _, _, value in stored(batch)] == [(100, b"0"), (101, b"1"), (102, b"2")]


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_messages_in_a_wrapper_of_format_0_get_the_offsets_of_the_append(codec):
    batch = accept(produced(0, codec=codec), 0)
    assert (batch.size, len(batch.data)) == (0, 0)
    for base_offset in (0, 7, 1 << 40):
        assert [offset for offset, *_ in stored(batch, base_offset)] == list(range(base_offset, base_offset + 3))
        assert bytes(batch.data) == build_set(SOME, 0, codec, base_offset=base_offset)


# Refused sets


def test_wrappers_in_wrappers_are_refused():
    for magic in (0, 1):
        inner = bytes(wrapper(magic, 0, [0]))
        nested = bytearray(wrap(compression.compress(1, inner), magic, 1, 0, NOW))
        refused(nested, Errors.INVALID_RECORD, "message of the wrapper 0 is compressed too", magic)


@TARGETS
def test_messages_of_another_format_inside_of_a_wrapper_are_refused(target):
    for outer, inner in ((1, 0), (0, 1)):
        data = wrapper(outer, 2, [0, 1, 2], inner_magic=inner)
        refused(data, Errors.INVALID_RECORD, "has another format", target)


@TARGETS
def test_sets_of_several_formats_are_refused(target):
    for one, two in ((0, 1), (1, 0), (0, 2), (1, 2)):
        refused(produced(one) + produced(two), Errors.INVALID_RECORD, "message 3 has another format", target)
    refused(produced(2) + produced(1), Errors.INVALID_RECORD, "more than one batch", target)


@OLD
@WRAPPED
def test_more_than_one_compressed_set_is_refused(magic, codec):
    single, packed = produced(magic), produced(magic, codec=codec)
    for data in (single + packed, packed + single, packed + packed):
        refused(data, Errors.INVALID_RECORD, "must be the only one", magic)


@OLD
def test_a_set_without_a_complete_message_is_refused(magic):
    data = produced(magic, SOME[:1])
    for cut in range(17, len(data)):
        refused(data[:cut], Errors.INVALID_RECORD, "do not hold a complete message", magic)


@OLD
@pytest.mark.parametrize("codec", [0, 1])
def test_a_wrong_checksum_is_refused(magic, codec):
    data = produced(magic, codec=codec)
    for place in (12, 17, 20, read_entry(data).size - 1):
        broken = bytearray(data)
        broken[place] ^= 0x40
        refused(broken, Errors.CORRUPT_MESSAGE, "message 0 has a wrong CRC", magic)


@OLD
def test_a_wrong_checksum_inside_of_a_wrapper_is_refused(magic):
    inner = bytearray(produced(magic))
    for place in (12, 20, len(inner) - 3):
        broken = bytearray(inner)
        broken[place] ^= 0x40
        data = bytearray(wrap(compression.compress(1, bytes(broken)), magic, 1, 2, NOW))
        refused(data, Errors.CORRUPT_MESSAGE, r"message of the wrapper \d has a wrong CRC", magic)


def resized(data, size):
    """Return the message with another size and the right checksum."""
    data = bytearray(data[: 12 + size].ljust(12 + size, b"\0"))
    data[8:12] = struct.pack(">i", size)
    data[12:16] = struct.pack(">I", zlib.crc32(data[16:]))
    return data


@pytest.mark.parametrize(("magic", "least"), [(0, 14), (1, 22)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_messages_that_are_too_small_are_corrupt(magic, least, wrapped):
    whole = produced(magic, [(NOW, None, None)])
    assert len(whole) == 12 + least
    for size in (least, least - 1):
        data = resized(whole, size)
        if wrapped:
            data = bytearray(wrap(compression.compress(1, bytes(data)), magic, 1, 0, NOW))
        if size == least:
            assert accept(data, magic).count == 1
        else:
            refused(data, Errors.CORRUPT_MESSAGE, f"has a size of {size}, too small", magic)


@OLD
def test_fields_that_do_not_fill_their_message_are_refused(magic):
    data = produced(magic, [(NOW, b"key", b"value")])
    refused(resized(data, len(data) - 12 + 1), Errors.INVALID_RECORD, "has bytes after its value", magic)
    refused(resized(data, len(data) - 12 - 1), Errors.INVALID_RECORD, "extends beyond the message's end", magic)


@OLD
@pytest.mark.parametrize("bad", [3, 127, 128, 255])
def test_a_magic_that_is_no_format_is_corrupt(magic, bad):
    data = produced(magic)
    data[read_entry(data).size + 16] = bad
    refused(data, Errors.CORRUPT_MESSAGE, "neither 0 nor 1", magic)


@OLD
def test_wrappers_without_contents_are_refused(magic):
    data = produced(magic, [(NOW, b"k", None)])
    data[17] = compression.GZIP
    data = resized(data, len(data) - 12)
    refused(data, Errors.INVALID_RECORD, "the wrapper has no value", magic)
    empty = bytearray(wrap(compression.compress(1, b""), magic, 1, 0, NOW))
    refused(empty, Errors.INVALID_RECORD, "the wrapper has no messages", magic)


@OLD
@WRAPPED
def test_sets_cut_inside_of_a_wrapper_are_refused(magic, codec):
    plain = bytes(produced(magic))
    ends = {header.position for header in iter_entries(plain)}
    for cut in set(range(1, len(plain))) - ends:
        packed = compression.compress(codec, plain[:cut], broken_checksum=magic == 0)
        refused(bytearray(wrap(packed, magic, codec, 2, NOW)), Errors.INVALID_RECORD, "the data ends at least", magic)


@OLD
@WRAPPED
def test_compressed_data_cut_at_any_byte_is_refused(magic, codec):
    data = produced(magic, codec=codec)
    packed = bytes(data[(34 if magic else 26) :])
    for cut in range(len(packed)):
        refused(bytearray(wrap(packed[:cut], magic, codec, 2, NOW)), Errors.INVALID_RECORD, None, magic)


@OLD
@WRAPPED
def test_a_decompression_bomb_is_refused(magic, codec):
    data = produced(magic, [(NOW, None, bytes(3_000_000))], codec)
    for target in (0, 1, 2):
        refused(data, Errors.INVALID_RECORD, "unpacks to more than 1000000", target, max_decompressed=1_000_000)
    assert accept(data, magic).count == 1


def test_lz4_with_the_header_checksum_of_format_0_is_refused_in_format_1():
    packed = compression.compress(compression.LZ4, bytes(produced(1)), broken_checksum=True)
    refused(bytearray(wrap(packed, 1, compression.LZ4, 2, NOW)), Errors.INVALID_RECORD, "broken lz4 data")
    right = compression.compress(compression.LZ4, bytes(produced(0)))
    assert accept(bytearray(wrap(right, 0, compression.LZ4, 2)), 0).count == 3


@OLD
@pytest.mark.parametrize(("codec", "code"), [(4, Errors.INVALID_RECORD), (5, Errors.UNSUPPORTED_COMPRESSION_TYPE)])
def test_codecs_that_old_formats_do_not_have_are_refused(magic, codec, code):
    data = bytearray(wrap(compression.compress(4, bytes(produced(magic))), magic, codec, 2, NOW))
    refused(data, code, f"cannot be compressed with codec {codec}", magic)


@OLD
def test_zstd_is_refused_on_topics_of_old_formats(magic):
    for source in (0, 1, 2):
        data = produced(source)
        refused(data, Errors.UNSUPPORTED_COMPRESSION_TYPE, "does not support zstd", magic, target_codec=4)
    refused(produced(2, codec=4), Errors.UNSUPPORTED_COMPRESSION_TYPE, "does not support zstd", magic)
    assert accept(produced(2, codec=4), magic, target_codec=1).codec == 1


# Rules of the topic


@OLD
@pytest.mark.parametrize("codec", [0, 1])
@TARGETS
def test_compacted_topics_need_keys(magic, codec, target):
    data = produced(magic, [(NOW, b"", b""), (NOW, None, b"")], codec)
    refused(data, Errors.INVALID_RECORD, "1 has no key", target, compact=True)
    assert accept(data, target).count == 2


@pytest.mark.parametrize("codec", [0, 1])
@TARGETS
def test_timestamps_outside_of_the_window_are_refused(codec, target):
    window = {"before_max_ms": 100, "after_max_ms": 50}
    for time in (NOW - 91, NOW + 61):
        data = produced(1, [(NOW, b"k", b"v"), (time, b"k", b"v")], codec)
        error = refused(data, Errors.INVALID_TIMESTAMP, f"{time} of message.* 1 is not within", target, **window)
        assert error.record_errors == []
        assert accept(data, target, timestamp_type=1, **window).count == 2
    assert (
        accept(produced(1, [(NOW - 90, b"k", b""), (NOW + 60, b"", b""), (-1, b"", b"")]), target, **window).count == 3
    )
    assert accept(produced(0, codec=codec), target, before_max_ms=0, after_max_ms=0).count == 3


@pytest.mark.parametrize("codec", [0, 1])
def test_a_producer_may_not_set_append_time_on_an_append_time_topic(codec):
    data = produced(1, codec=codec, timestamp_type=1, append_time=NOW)
    refused(data, Errors.INVALID_TIMESTAMP, "LogAppendTime", timestamp_type=1)
    batch = accept(data, 1)
    assert {header.timestamp_type for header in iter_entries(batch.data)} == {0}


@OLD
def test_idempotent_and_transactional_producers_need_format_2(magic):
    options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    for kind, more in (("idempotent", {}), ("transactional", {"transactional": True})):
        data = produced(2, **options, **more)
        refused(data, Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"too old for {kind} producers", magic)
        assert accept(data, 2).producer_id == 5


@OLD
def test_headers_are_refused_as_by_kafka(magic):
    data = bytearray(build([(NOW, b"k", b"v", [("name", b"")])]))
    refused(data, Errors.UNKNOWN_SERVER_ERROR, "does not support record headers", magic)


@OLD
def test_the_rules_of_format_2_apply_to_topics_of_old_formats(magic):
    refused(produced(2) + produced(2), Errors.INVALID_RECORD, "more than one batch", magic)
    refused(produced(2, control=True), Errors.INVALID_RECORD, "control records", magic)
    broken = produced(2)
    broken[70] ^= 1
    refused(broken, Errors.CORRUPT_MESSAGE, "CRC", magic)
    refused(produced(2, [(5, b"k", b"v")]), Errors.INVALID_TIMESTAMP, "is not within", magic, before_max_ms=10)
    refused(produced(2, [(NOW, None, b"v")]), Errors.INVALID_RECORD, "requires a key", magic, compact=True)


def test_requests_of_version_3_and_later_may_have_only_format_2():
    for source, target in itertools.product((0, 1), (0, 1, 2)):
        with pytest.raises(RecordError, match="only format 2 can be produced") as caught:
            validate(produced(source), now_ms=NOW, target_magic=target)
        assert caught.value.code == Errors.INVALID_RECORD
    assert validate(produced(2), now_ms=NOW, target_magic=1).magic == 1


@OLD
def test_each_message_may_be_as_large_as_the_topic_allows(magic):
    data = produced(magic, [(NOW, b"k", bytes(100))] * 5)
    each = len(data) // 5
    assert accept(data, magic, max_message_bytes=each).count == 5
    refused(data, Errors.MESSAGE_TOO_LARGE, f"message 0 has {each} bytes", magic, max_message_bytes=each - 1)


def test_sizes_are_checked_again_after_a_conversion():
    data = produced(0, [(NOW, b"k", bytes(100))] * 5)
    each = len(data) // 5
    refused(data, Errors.MESSAGE_TOO_LARGE, f"{each + 8} bytes, after conversion", 1, max_message_bytes=each + 7)
    assert accept(data, 1, max_message_bytes=each + 8).count == 5
    refused(data, Errors.MESSAGE_TOO_LARGE, "bytes, after conversion", 2, max_message_bytes=each + 8)
    noise = produced(0, [(NOW, b"k", bytes(range(256)))])
    refused(noise, Errors.MESSAGE_TOO_LARGE, "bytes, after conversion", 1, max_message_bytes=len(noise), target_codec=1)
    batch = accept(noise, 0, max_message_bytes=len(noise), target_codec=1)
    with pytest.raises(KafkaError, match="bytes, after conversion") as caught:
        assign(batch, 0, 0)
    assert caught.value.code == Errors.MESSAGE_TOO_LARGE


def test_refused_sets_are_not_changed():
    for codec in (0, 1):
        data = produced(1, [(NOW, b"k", b"v"), (5, b"k", b"v")], codec)
        before = bytes(data)
        refused(memoryview(data), Errors.INVALID_TIMESTAMP, before_max_ms=10)
        assert data == before


# Pieces: the places at which a compressed payload is cut must not matter


def judged_in_pieces(magic, payload, cuts):
    edges = [0, *sorted(cut % (len(payload) + 1) for cut in cuts), len(payload)]
    parts = [payload[a:b] for a, b in itertools.pairwise(edges)]
    try:
        seen = message_validation.check_messages(
            wrap(b"", magic, 1, 2, NOW),
            lambda codec, view: parts,
            now_ms=NOW,
            timestamp_type=0,
            before_max_ms=NOW,
            after_max_ms=NOW,
            compact=True,
            max_message_bytes=-1,
        )
    except InvalidBatch as error:
        return error.code, error.message
    return seen.count, seen.in_order, seen.max_timestamp, seen.index_of_max


@given(
    st.integers(0, 1),
    RECORDS,
    st.lists(st.integers(0, 10**6), max_size=12),
    st.binary(max_size=3),
    st.integers(0, 10**6),
)
def test_sets_in_pieces_are_validated_as_whole_ones(magic, records, cuts, noise, place):
    payload = bytes(produced(magic, records))
    place %= len(payload)
    for one in (payload, payload[:place], payload + noise, payload[:place] + noise + payload[place + len(noise) :]):
        assert judged_in_pieces(magic, one, cuts)[:1] == judged_in_pieces(magic, one, [])[:1]


def test_a_set_in_single_bytes_is_read():
    payload = bytes(produced(1))
    assert judged_in_pieces(1, payload, range(len(payload))) == (3, True, NOW + 5, 1)


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_that_is_larger_than_a_piece_is_checked(magic, codec):
    """The parts of the message are joined; the checksum of so many bytes is computed without the GIL."""
    large = bytes(range(256)) * 2000
    records = [(NOW, b"k", b"small"), (NOW, b"k", large), (NOW, b"k", b"after")]
    assert accept(bytearray(build_set(records, magic, codec)), magic).count == 3
    inner = bytearray(build_set(records, magic))
    inner[inner.index(large) + 300_000] ^= 1
    packed = compression.compress(codec, inner, broken_checksum=magic == 0)
    with pytest.raises(RecordError, match="message of the wrapper 1 has a wrong CRC"):
        accept(bytearray(wrap(packed, magic, codec, 2)), magic)


@given(st.data())
def test_mutated_sets_are_refused_or_read_back(data):
    source, target, codec = (data.draw(st.integers(0, last)) for last in (1, 2, 3))
    broken = produced(source, codec=codec)
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, len(broken) - 1), st.integers(0, 255)), max_size=3)):
        broken[place] = byte
    if data.draw(st.booleans()):
        broken = resized(broken, len(broken) - 12)
    try:
        batch = accept(broken, target, max_decompressed=1 << 20)
    except RecordError:
        return
    assert [offset for offset, *_ in stored(batch)] == list(range(100, 100 + batch.count))
