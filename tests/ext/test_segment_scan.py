"""The searches and the scan in C, compared with batches that Python reads, and on files that are no segments."""

import bisect
import os
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.entries import iter_entries
from kafkapy._ext.segment_scan import CorruptSegment, ceiling_position, floor_entry, locate, locate_timestamp, scan
from kafkapy.record.batch import build
from kafkapy.record.legacy import build_set
from tests.harness.batches import iter_batches

PRODUCER = struct.Struct("=qqqqqiiihh")
FOREVER = 1 << 62


@pytest.fixture
def open_file(tmp_path):
    opened = []

    def make(data):
        path = tmp_path / str(len(opened))
        path.write_bytes(data)
        opened.append(os.open(path, os.O_RDWR))
        return opened[-1]

    yield make
    for fd in opened:
        os.close(fd)


def segment(counts, *, first=100, stamps=None, size=10, **options):
    """Return a segment of batches with these numbers of records."""
    data, offset = b"", first
    for number, count in enumerate(counts):
        stamp = 1000 + number if stamps is None else stamps[number]
        records = [(stamp, b"key", bytes(size), [])] * count
        data += build(records, base_offset=offset, leader_epoch=number // 3, **options)
        offset += count
    return data


@given(st.lists(st.integers(1, 5), max_size=12), st.integers(0, 9000))
def test_every_offset_is_located_as_by_hand(tmp_path_factory, counts, size):
    data = segment(counts, size=size)
    path = tmp_path_factory.mktemp("scan") / "segment"
    path.write_bytes(data)
    batches = list(iter_batches(data))
    fd = os.open(path, os.O_RDONLY)
    try:
        for offset in range(98, 100 + sum(counts) + 2):
            found = next((one for one in batches if one.last_offset >= offset), None)
            expected = (found.position, found.size, found.base_offset) if found is not None else None
            assert locate(fd, 0, len(data), offset) == expected
            assert locate(fd, 0, len(data), offset, True) == expected
    finally:
        os.close(fd)


def test_a_search_does_not_look_behind_its_end(open_file):
    data = segment([1, 1, 1])
    each = len(data) // 3
    fd = open_file(data)
    assert locate(fd, 0, 2 * each, 101) == (each, each, 101)
    assert locate(fd, 0, 2 * each, 102) is None
    assert locate(fd, 2 * each, 2 * each, 0) is None
    with pytest.raises(CorruptSegment, match=f"byte {each}"):
        locate(fd, 0, 2 * each - 1, 102)


def test_a_file_that_is_shorter_than_its_end_is_corrupt(open_file):
    data = segment([1, 1])
    with pytest.raises(CorruptSegment):
        locate(open_file(data[:100]), 0, len(data), 101)
    assert scan(open_file(data[:100]), 0, len(data), 100, FOREVER).valid_end == len(data) // 2


def test_timestamps_are_located(open_file):
    data = segment([1, 1, 1, 1], stamps=[10, 30, 20, 40])
    each = len(data) // 4
    fd = open_file(data)
    assert locate_timestamp(fd, 0, len(data), 15, 0) == (each, each)
    assert locate_timestamp(fd, 0, len(data), 15, 102) == (2 * each, each)
    assert locate_timestamp(fd, 2 * each, len(data), 31, 0) == (3 * each, each)
    assert locate_timestamp(fd, 0, len(data), 41, 0) is None


def test_a_scan_tells_what_appends_would_have_noted(open_file):
    data = segment([2] * 10, stamps=[5, 4, 9, 9, 8, 12, 1, 1, 1, 13])
    each = len(data) // 10
    found = scan(open_file(data), 0, len(data), 100, 2 * each)
    assert (found.valid_end, found.next_offset, found.batches, found.stopped_by) == (len(data), 120, 10, None)
    assert (found.max_timestamp, found.max_timestamp_offset) == (13, 119)
    entries = [divmod(one, 1 << 32) for (one,) in struct.iter_unpack("=Q", found.offset_entries)]
    assert entries == [(7, 3 * each), (13, 6 * each), (19, 9 * each)]
    assert [one for (one,) in struct.iter_unpack("=q", found.time_stamps)] == [9, 12, 13]
    assert [one for (one,) in struct.iter_unpack("=i", found.time_offsets)] == [5, 11, 19]
    assert list(struct.iter_unpack("=qq", found.epochs)) == [(0, 100), (1, 106), (2, 112), (3, 118)]
    assert found.producers == b""


def test_of_a_producer_the_last_five_plain_batches_are_collected(open_file):
    data = b""
    for number in range(12):
        for producer in (7, 8):
            data += build(
                [(number, None, b"v", [])],
                base_offset=2 * number + producer - 7,
                producer_id=producer,
                producer_epoch=number // 9 if producer == 8 else 0,
                base_sequence=number,
            )
    found = list(PRODUCER.iter_unpack(scan(open_file(data), 0, len(data), 0, FOREVER).producers))
    of = {producer: [one[0] for one in found if one[2] == producer] for producer in (7, 8)}
    assert of[7] == [14, 16, 18, 20, 22]
    assert of[8][-3:] == [19, 21, 23]  # the batches with the new epoch
    base, last, _, stamp, position, first_sequence, last_sequence, size, epoch, attributes = found[-1]
    assert (base, last, stamp, first_sequence, last_sequence, epoch, attributes) == (23, 23, 11, 11, 11, 1, 0)
    assert data[position : position + size] == data[-size:]


def test_transactional_batches_are_all_collected(open_file):
    data = b"".join(
        build(
            [(0, None, b"v", [])],
            base_offset=number,
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
            transactional=True,
        )
        for number in range(9)
    )
    assert len(scan(open_file(data), 0, len(data), 0, FOREVER).producers) == 9 * PRODUCER.size


@pytest.mark.parametrize("where", [0, 8, 11, 16, 17, 21, 23, 35, 43, 57, 61, 80])
def test_a_scan_stops_at_a_damaged_batch(open_file, where):
    data = segment([1, 1, 1])
    each = len(data) // 3
    broken = bytearray(data)
    broken[each + where] ^= 0x40
    found = scan(open_file(broken), 0, len(data), 100, FOREVER)
    assert (found.valid_end, found.next_offset) == (each, 101)
    assert f"byte {each}" in found.stopped_by


def test_a_batch_longer_than_the_window_is_checked(open_file):
    data = segment([1, 1], size=700_000)
    assert scan(open_file(data), 0, len(data), 100, FOREVER).batches == 2
    broken = bytearray(data)
    broken[600_000] ^= 1
    assert scan(open_file(broken), 0, len(data), 100, FOREVER).valid_end == 0


def old_segment(magic, counts, codec, *, first=100, stamps=None, size=10):
    """Return message sets with these numbers of messages: a wrapper each, or single messages without a codec."""
    data, offset = b"", first
    for number, count in enumerate(counts):
        stamp = 1000 + number if stamps is None else stamps[number]
        data += build_set([(stamp, b"key", bytes(size))] * count, magic, codec, base_offset=offset)
        offset += count
    return data


OLD = pytest.mark.parametrize(("magic", "codec"), [(0, 0), (1, 0), (0, 1), (1, 1)])


@OLD
def test_messages_and_wrappers_of_old_formats_are_scanned_like_batches(open_file, magic, codec):
    data = old_segment(magic, [2] * 10, codec, stamps=[5, 4, 9, 9, 8, 12, 1, 1, 1, 13])
    entries = list(iter_entries(data))
    found = scan(open_file(data), 0, len(data), 100, 2 * entries[0].size)
    assert (found.valid_end, found.next_offset, found.batches, found.stopped_by) == (len(data), 120, len(entries), None)
    assert (found.epochs, found.producers) == (b"", b"")
    positions = {one.position: one.last_offset for one in entries}
    seen = [divmod(one, 1 << 32) for (one,) in struct.iter_unpack("=Q", found.offset_entries)]
    assert len(seen) > 2
    assert all(positions[position] == 100 + relative for relative, position in seen)
    if magic == 0:
        assert (found.max_timestamp, found.time_stamps, found.time_offsets) == (-1, b"", b"")
    else:
        assert (found.max_timestamp, found.max_timestamp_offset) == (13, 119 if codec else 118)
        assert [one for (one,) in struct.iter_unpack("=q", found.time_stamps)][-1] >= 12


@OLD
def test_entries_of_old_formats_are_located_by_offset_and_time(open_file, magic, codec):
    data = old_segment(magic, [3] * 5, codec)
    entries = list(iter_entries(data))
    fd = open_file(data)
    for offset in range(98, 117):
        found = next((one for one in entries if one.last_offset >= offset), None)
        expected = (found.position, found.size, found.last_offset) if found is not None else None
        assert locate(fd, 0, len(data), offset) == expected
    for time in range(998, 1007):
        found = next((one for one in entries if one.max_timestamp >= time), None)
        assert locate_timestamp(fd, 0, len(data), time, 0) == (None if found is None else (found.position, found.size))


@OLD
@pytest.mark.parametrize("where", [0, 8, 11, 12, 16, 17, 18, 25, 30, 40])
def test_a_scan_stops_at_a_damaged_message_of_an_old_format(open_file, magic, codec, where):
    data = old_segment(magic, [1, 1, 1], codec, size=30)
    each = len(data) // 3
    broken = bytearray(data)
    broken[each + where] ^= 0x40
    found = scan(open_file(broken), 0, len(data), 100, FOREVER)
    assert (found.valid_end, found.next_offset) == (each, 101)
    assert f"byte {each}" in found.stopped_by


@pytest.mark.parametrize(("magic", "least"), [(0, 14), (1, 22)])
def test_messages_smaller_than_their_format_allows_are_corrupt(open_file, magic, least):
    data = build_set([(5, None, None)], magic)
    assert scan(open_file(data), 0, len(data), 0, FOREVER).batches == 1
    assert len(data) == 12 + least
    short = bytearray(data[:-1])
    short[8:12] = (least - 1).to_bytes(4, "big")
    short[12:16] = zlib.crc32(short[16:]).to_bytes(4, "big")
    found = scan(open_file(short), 0, len(short), 0, FOREVER)
    assert (found.batches, found.stopped_by) == (0, "the length at byte 0 is not valid for a batch")


def test_segments_of_all_formats_are_scanned_as_one(open_file):
    parts = [
        old_segment(0, [2], 0, first=0),
        old_segment(1, [2, 3], 2, first=2),
        segment([4, 1], first=7),
        old_segment(1, [2], 0, first=12),
        old_segment(0, [2], 3, first=14),
        segment([1], first=16),
    ]
    data = b"".join(parts)
    found = scan(open_file(data), 0, len(data), 0, 0)
    assert (found.next_offset, found.batches, found.stopped_by) == (17, 10, None)
    assert list(struct.iter_unpack("=qq", found.epochs)) == [(0, 7)]
    fd = open_file(data)
    entries = list(iter_entries(data))
    for offset in range(17):
        found = next(one for one in entries if one.last_offset >= offset)
        assert locate(fd, 0, len(data), offset)[:2] == (found.position, found.size)


def test_a_message_longer_than_the_window_is_checked(open_file):
    data = old_segment(1, [1, 1], 0, size=700_000)
    assert scan(open_file(data), 0, len(data), 100, FOREVER).batches == 2
    broken = bytearray(data)
    broken[600_000] ^= 1
    assert scan(open_file(broken), 0, len(data), 100, FOREVER).valid_end == 0


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_a_magic_that_is_no_format_is_damage(open_file, magic):
    data = bytearray(segment([1]))
    data[16] = magic
    found = scan(open_file(data), 0, len(data), 100, FOREVER)
    assert (found.valid_end, found.batches) == (0, 0)
    assert "an unknown message format" in found.stopped_by


@given(st.binary(max_size=300), st.integers(-5, 400), st.integers(-5, 400))
def test_any_bytes_are_survived(tmp_path_factory, junk, position, end):
    path = tmp_path_factory.mktemp("junk") / "segment"
    path.write_bytes(junk)
    fd = os.open(path, os.O_RDONLY)
    try:
        for call in (
            lambda: locate(fd, max(position, 0), end, 5),
            lambda: locate_timestamp(fd, max(position, 0), end, 5, 5),
        ):
            try:
                call()
            except (CorruptSegment, OSError):
                pass
        found = scan(fd, max(position, 0), end, 0, 0)
        assert found.valid_end <= max(end, position, 0)
    finally:
        os.close(fd)


@pytest.mark.parametrize("count", [0, 1, 2, 511, 512, 513, 514, 1024, 1025, 3000])
@pytest.mark.parametrize("layout", [">ii", ">qi"])
def test_index_entries_are_found_as_in_a_list(open_file, count, layout):
    width = struct.calcsize(layout)
    keys = [3 * number + 10 for number in range(count)]
    fd = open_file(b"".join(struct.pack(layout, key, key + 1) for key in keys))
    for target in range(0, 3 * count + 20, 7 if count > 600 else 1):
        below = [key for key in keys if key <= target]
        expected = (len(below) - 1, below[-1], below[-1] + 1) if below else None
        assert floor_entry(fd, count, width, target) == expected
        assert floor_entry(fd, count, width, target, True) == expected


@pytest.mark.parametrize("shape", ["even", "dense at the start", "dense at the end", "one gap", "damaged"])
def test_entries_of_a_large_offset_index_are_found_whatever_their_distances(open_file, shape):
    keys = {
        "even": range(0, 60_000, 3),
        "dense at the start": [number**3 // 10**4 for number in range(2_500)],
        "dense at the end": sorted(2_000_000 - number**3 // 10**4 for number in range(2_500)),
        "one gap": [*range(3_000), *range(1_000_000, 1_003_000)],
        "damaged": [*range(3_000, 0, -1), *range(3_000)],
    }[shape]
    fd = open_file(b"".join(struct.pack(">ii", key, key + 1) for key in keys))
    for target in [*keys[::97], *(key + 1 for key in keys[::101]), -1, keys[0] - 1, keys[-1] - 1, keys[-1], 2**31 - 1]:
        found = floor_entry(fd, len(keys), 8, target)
        assert floor_entry(fd, len(keys), 8, target, True) == found
        if shape != "damaged":
            slot = bisect.bisect_right(keys, target) - 1
            assert found == ((slot, keys[slot], keys[slot] + 1) if slot >= 0 else None)


@pytest.mark.parametrize("count", [0, 1, 2, 510, 511, 512, 513, 1024, 1025, 3000])
def test_index_entries_are_found_by_position_as_in_a_list(open_file, count):
    entries = [(number, 3 * number + 10) for number in range(count)]
    fd = open_file(b"".join(struct.pack(">ii", *entry) for entry in entries))
    for position in range(0, 3 * count + 20, 7 if count > 600 else 1):
        expected = next((entry for entry in entries if entry[1] >= position), None)
        assert ceiling_position(fd, count, position) == expected
        assert ceiling_position(fd, count, position, True) == expected


def test_an_index_shorter_than_its_entries_is_an_error(open_file):
    with pytest.raises(OSError, match="shorter"):
        floor_entry(open_file(bytes(8)), 2, 8, 5)
    with pytest.raises(OSError, match="shorter"):
        ceiling_position(open_file(bytes(8)), 2, 5)
