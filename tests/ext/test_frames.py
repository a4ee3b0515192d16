"""Cutting frames: the same frames however the bytes arrive, and errors for invalid sizes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.frames import BadFrameSize, split


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(p)) + p for p in payloads)


def cut(data: bytes, most: int = 100, limit: int = 1000) -> tuple[list[bytes], int, int]:
    frames, position, needed = split(memoryview(data), 0, len(data), most, limit)
    return [bytes(frame) for frame in frames], position, needed


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_any_cut_gives_the_frames_before_it(payloads: list[bytes], data: st.DataObject) -> None:
    stream = framed(*payloads)
    end = data.draw(st.integers(0, len(stream)))
    frames, position, needed = cut(stream[:end])
    assert frames == payloads[: len(frames)]
    assert position == len(framed(*frames))
    if len(frames) < len(payloads) and end - position >= 4:
        assert needed == 4 + len(payloads[len(frames)]) > end - position
    else:
        assert needed == 0
        assert end - position < 4


def test_at_most_so_many_and_the_next_one_is_announced() -> None:
    stream = framed(b"a", b"bb", b"ccc")
    assert cut(stream, most=2) == ([b"a", b"bb"], 11, 7)
    frames, position, needed = split(memoryview(stream), 11, len(stream), 2, 1000)
    assert ([bytes(f) for f in frames], position, needed) == ([b"ccc"], len(stream), 0)


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_bad_size_is_raised_after_the_good_frames_before_it(size: int) -> None:
    bad = struct.pack(">i", size) + b"xyz"
    stream = framed(b"good") + bad
    assert cut(stream) == ([b"good"], 8, -1)
    with pytest.raises(BadFrameSize, match=str(size)) as error:
        cut(bad)
    assert error.value.size == size


def test_a_frame_of_the_limit_is_good_and_an_empty_one_too() -> None:
    assert cut(framed(b"x" * 1000, b""))[0] == [b"x" * 1000, b""]


def test_frames_are_views_of_the_buffer() -> None:
    buffer = bytearray(framed(b"abc"))
    frames, _, _ = split(memoryview(buffer), 0, len(buffer), 10, 10)
    frames[0][0] = ord("X")
    assert buffer[4:] == b"Xbc"


def test_only_ranges_of_a_memoryview_are_cut() -> None:
    for start, end in ((-1, 3), (0, 11), (4, 3)):
        with pytest.raises(ValueError, match="is not in a buffer of 10 bytes"):
            split(memoryview(bytes(10)), start, end, 10, 10)
    with pytest.raises(TypeError):
        split(bytes(10), 0, 10, 10, 10)
