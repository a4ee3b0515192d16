"""The cursor: what a Writer writes a Reader reads, and no read leaves the buffer."""

import array
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.cursor import Reader, ShortBuffer, Writer
from kafkapy._ext.varint import BadVarint

FIXED = {
    "int8": (">b", st.integers(-(2**7), 2**7 - 1)),
    "int16": (">h", st.integers(-(2**15), 2**15 - 1)),
    "uint16": (">H", st.integers(0, 2**16 - 1)),
    "int32": (">i", st.integers(-(2**31), 2**31 - 1)),
    "uint32": (">I", st.integers(0, 2**32 - 1)),
    "int64": (">q", st.integers(-(2**63), 2**63 - 1)),
    "float64": (">d", st.floats(allow_nan=False)),
}
VARIABLE = {
    "varint": st.integers(-(2**31), 2**31 - 1),
    "varlong": st.integers(-(2**63), 2**63 - 1),
    "uvarint": st.integers(0, 2**32 - 1),
    "uvarlong": st.integers(0, 2**64 - 1),
}
TYPED = st.one_of(
    *(st.tuples(st.just(name), values) for name, (_, values) in FIXED.items()),
    *(st.tuples(st.just(name), values) for name, values in VARIABLE.items()),
    st.tuples(st.just("bytes"), st.binary(max_size=40)),
)


def write(writer, name, value):
    getattr(writer, f"write_{name}")(value)


def read(reader, name, value):
    return reader.read_bytes(len(value)) if name == "bytes" else getattr(reader, f"read_{name}")()


def read_all(reader, fields):
    for name, value in fields:
        read(reader, name, value)


@given(st.lists(TYPED, max_size=30))
def test_what_is_written_is_read_and_every_cut_is_refused(fields):
    writer = Writer(1)
    ends = []
    for name, value in fields:
        write(writer, name, value)
        ends.append(len(writer))
    data = writer.getvalue()
    assert bytes(writer) == data
    reader = Reader(data)
    for (name, value), end in zip(fields, ends, strict=True):
        assert read(reader, name, value) == value
        assert reader.position == end
        assert reader.remaining == len(data) - end
    for cut in range(len(data)):
        reader = Reader(data, 0, cut)
        with pytest.raises(ShortBuffer):
            read_all(reader, fields)


@pytest.mark.parametrize("name", FIXED)
def test_fixed_numbers_are_big_endian(name):
    form, values = FIXED[name]

    @given(values)
    def check(value):
        writer = Writer()
        write(writer, name, value)
        assert writer.getvalue() == struct.pack(form, value)
        assert getattr(Reader(struct.pack(form, value)), f"read_{name}")() == value

    check()


@pytest.mark.parametrize("name", [*FIXED, *VARIABLE, "uint8"])
def test_every_read_at_the_end_is_refused_and_moves_nothing(name):
    reader = Reader(b"abc", 3)
    with pytest.raises(ShortBuffer, match="but only 0 are there") as refused:
        getattr(reader, f"read_{name}")()
    assert refused.value.there == 0
    assert refused.value.position == 3
    assert reader.position == 3


@pytest.mark.parametrize("call", ["read_bytes", "read_view", "skip"])
@pytest.mark.parametrize("n", [-1, 4, 2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_hostile_lengths_are_refused(call, n):
    reader = Reader(b"abcd", 1)
    with pytest.raises(ShortBuffer) as refused:
        getattr(reader, call)(n)
    assert refused.value.wanted == n
    assert refused.value.there == 3
    assert reader.position == 1


def test_a_short_read_says_what_was_wanted_and_what_was_there():
    with pytest.raises(ShortBuffer, match="8 bytes wanted at byte 2, but only 3 are there"):
        Reader(b"12345", 2).read_int64()


def test_overlong_varints_are_refused():
    with pytest.raises(BadVarint, match="at byte 1 goes on after 5 bytes"):
        Reader(b"\x00" + b"\xff" * 20, 1).read_uvarint()
    with pytest.raises(BadVarint, match="after 10 bytes"):
        Reader(b"\xff" * 20).read_varlong()


def test_a_view_is_a_slice_of_the_original_and_writable_with_it():
    data = bytearray(b"abcdef")
    reader = Reader(memoryview(data)[1:])
    reader.skip(1)
    view = reader.read_view(2)
    view[0:2] = b"XY"
    assert data == b"abXYef"
    assert Reader(b"abc").read_view(2).readonly


def test_a_view_of_other_item_types_counts_bytes():
    assert Reader(array.array("i", [0x01010101] * 3)).read_view(5) == b"\x01" * 5


@pytest.mark.parametrize(("position", "end"), [(-1, None), (4, None), (0, 4), (0, -1), (3, 2)])
def test_a_window_outside_of_the_buffer_is_refused(position, end):
    with pytest.raises(ShortBuffer):
        Reader(b"abc", position, end)


def test_the_buffer_is_held_while_the_reader_lives():
    data = bytearray(b"abcd")
    reader = Reader(data)
    with pytest.raises(BufferError):
        data.extend(b"more")
    del reader
    data.extend(b"more")


def test_patching_overwrites_what_was_written_and_nothing_else():
    writer = Writer()
    writer.write_int32(0)
    writer.write_bytes(b"tail")
    writer.patch_int32(0, 4)
    assert writer.getvalue() == b"\x00\x00\x00\x04tail"
    for patch, width in [("patch_int16", 2), ("patch_int32", 4), ("patch_uint32", 4), ("patch_int64", 8)]:
        getattr(writer, patch)(8 - width, 1)
        for position in (-1, 9 - width, 2**62):
            with pytest.raises(ShortBuffer):
                getattr(writer, patch)(position, 1)


def test_a_cleared_writer_begins_anew():
    writer = Writer()
    writer.write_bytes(b"x" * 1000)
    writer.clear()
    assert len(writer) == 0
    writer.write_int8(5)
    assert writer.getvalue() == b"\x05"


def test_a_writer_does_not_move_under_a_view():
    writer = Writer(16)
    writer.write_bytes(b"0123456789")
    with memoryview(writer) as view:
        assert view.readonly
        with pytest.raises(BufferError):
            writer.write_bytes(b"x" * 1000)
    writer.write_bytes(b"x" * 1000)
    assert len(writer) == 1010


@pytest.mark.parametrize(
    ("name", "value"),
    [("int8", 128), ("int16", -32769), ("uint16", -1), ("int32", 2**31), ("uint32", -1), ("int64", 2**63)],
)
def test_numbers_that_do_not_fit_are_refused(name, value):
    writer = Writer()
    with pytest.raises(OverflowError):
        write(writer, name, value)
    assert len(writer) == 0
