"""The end of the last complete entry, the formats of entries, and the steps for an index."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.entry_walk import any_older, entries_end, entries_total, index_steps, whole_entries
from kafkapy.record.batch import build
from kafkapy.record.legacy import build_set

SIZES = st.integers(14, 200)


def entry(magic: int, size: int) -> bytes:
    return struct.pack(">qiib", 7, size, 0, magic) + bytes(size - 5)


@given(entries=st.lists(st.tuples(st.sampled_from([0, 1, 2]), SIZES), max_size=8), cut=st.integers(0, 300))
def test_the_walk_ends_behind_the_last_whole_entry(entries: list[tuple[int, int]], cut: int) -> None:
    parts = [entry(magic, size) for magic, size in entries]
    data = b"".join(parts)
    data = data[: max(len(data) - cut, 0)]
    whole = at = 0
    while at < len(parts) and whole + len(parts[at]) <= len(data):
        whole += len(parts[at])
        at += 1
    left = len(data) - whole
    assert whole_entries(data) == (whole, len(parts[at]) if left > 16 else 0, False)


@given(
    entries=st.lists(st.tuples(st.sampled_from([0, 1, 2]), SIZES), min_size=1, max_size=8), highest=st.integers(0, 1)
)
def test_the_first_entry_of_a_newer_format_ends_it(entries: list[tuple[int, int]], highest: int) -> None:
    data = b"".join(entry(magic, size) for magic, size in entries)
    position = 0
    for magic, size in entries:
        if magic > highest:
            assert whole_entries(data, highest) == (position, 12 + size, True)
            return
        position += 12 + size
    assert whole_entries(data, highest) == (position, 0, False)


def test_a_newer_entry_that_is_not_whole_is_not_above() -> None:
    data = entry(0, 20) + entry(2, 100)
    assert whole_entries(data[:-1], 1) == (32, 112, False)


@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
def test_an_invalid_length_is_reported(size: int) -> None:
    data = entry(1, 30) + struct.pack(">qi", 1, size) + bytes(20)
    assert whole_entries(data) == (42, -1, False)


@given(
    counts=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=6),
    base=st.integers(0, 2**60),
    cut=st.integers(0, 300),
)
def test_the_end_of_a_buffer_tells_the_offset_behind_its_last_whole_entry(
    counts: list[tuple[int, int]], base: int, cut: int
) -> None:
    data, ends = b"", []
    for magic, count in counts:
        if magic == 2:
            data += build([(0, None, b"v", ())] * count, base_offset=base)
        else:
            data += build_set([(0, None, b"v")] * count, magic, codec=1, base_offset=base)
        base += count
        ends.append((len(data), base))
    data = data[: max(len(data) - cut, 0)]
    whole, after = max(((end, offset) for end, offset in ends if end <= len(data)), default=(0, -1))
    assert entries_end(data)[::2] == (whole, after)
    assert entries_end(data)[:2] == whole_entries(data)[:2]


def test_the_last_offset_of_entries_that_are_too_short_for_one_is_not_looked_for() -> None:
    assert entries_end(entry(2, 14)) == (26, 0, 8)
    assert entries_end(b"") == (0, 0, -1)


def test_a_length_near_the_limit_does_not_overflow() -> None:
    assert whole_entries(struct.pack(">qi", 1, 2**31 - 1) + bytes(20)) == (0, 2**31 + 11, False)
    assert whole_entries(b"") == whole_entries(bytes(16)) == (0, 0, False)


@given(
    sizes=st.lists(st.integers(22, 150), max_size=20),
    stamps=st.lists(st.integers(-1, 5), min_size=20, max_size=20),
    interval=st.integers(0, 300),
    since=st.integers(0, 400),
)
def test_steps_are_the_messages_one_by_one(sizes: list[int], stamps: list[int], interval: int, since: int) -> None:
    """A segment that gets the steps as appends has the same index entries as one that gets the single messages."""
    data = b"".join(
        struct.pack(">qiibbq", 0, size, 0, 1, 0, stamp) + bytes(size - 14)
        for size, stamp in zip(sizes, stamps, strict=False)
    )

    def entries_of(appends: list[tuple[int, int, int, int]]) -> tuple[list[tuple[int, int, int, int]], int, int, int]:
        found, bytes_since, offset, position, largest = [], since, 0, 0, (-1, -1)
        for size, count, stamp, before in appends:
            if stamp > largest[0]:
                largest = (stamp, offset + before)
            if bytes_since > interval:
                found.append((offset + count - 1, position, *largest))
                bytes_since = 0
            bytes_since += size
            position += size
            offset += count
        return found, bytes_since, position, largest[1]

    steps = index_steps(data, interval, since)
    singles = [(12 + size, 1, stamp, 0) for size, stamp in zip(sizes, stamps, strict=False)]
    assert entries_of(steps) == entries_of(singles)
    assert len(steps) <= 2 * len(entries_of(singles)[0]) + 1


def test_messages_of_format_0_have_no_time_in_any_step() -> None:
    assert index_steps(entry(0, 14) + entry(0, 90), 4096, 0) == [(128, 2, -1, 0)]
    with pytest.raises(ValueError, match="no message begins 25 bytes before the end"):
        index_steps(entry(0, 14)[:-1], 4096, 0)


def test_the_steps_of_very_many_messages_are_those_of_few() -> None:
    """The call releases the GIL in between."""
    assert index_steps(entry(0, 14) * 20_000, 1 << 20, 0) == [(26 * 20_000, 20_000, -1, 0)]
    steps = index_steps(entry(0, 14) * 20_000, 2599, 0)
    assert steps[:3] == [(2600, 100, -1, 0), (26, 1, -1, 0), (26 * 99, 99, -1, 0)]
    assert sum(count for _, count, _, _ in steps) == 20_000


def test_older_formats_are_seen_in_any_of_several_sets() -> None:
    new = entry(2, 100)
    assert not any_older([])
    assert not any_older([new, b"", new[:16], memoryview(new)])
    for old in (entry(0, 14), entry(1, 22)[:17]):
        assert any_older([new, memoryview(old), new])


def test_entries_and_records_are_counted_up_to_an_incomplete_entry() -> None:
    batches = [build([(1, None, b"v", [])] * count, base_offset=at) for at, count in ((5, 1), (6, 3), (20, 2))]
    old = build_set([(1, None, b"v")] * 2, magic=1)
    whole = b"".join(batches)
    assert entries_total(whole) == (3, 6, 22)
    assert entries_total(whole[:-1]) == (2, 4, 9)
    assert entries_total(old + batches[2])[:2] == (3, 4)
    for none in (b"", whole[:20], bytes(100)):
        assert entries_total(none) == (0, 0, -1)
