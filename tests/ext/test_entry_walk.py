"""Where whole entries end, and which formats they are of."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.entry_walk import whole_entries

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
def test_a_length_that_is_none_is_told(size: int) -> None:
    data = entry(1, 30) + struct.pack(">qi", 1, size) + bytes(20)
    assert whole_entries(data) == (42, -1, False)


def test_a_length_near_the_limit_does_not_overflow() -> None:
    assert whole_entries(struct.pack(">qi", 1, 2**31 - 1) + bytes(20)) == (0, 2**31 + 11, False)
    assert whole_entries(b"") == whole_entries(bytes(16)) == (0, 0, False)
