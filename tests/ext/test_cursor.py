"""The Writer from Python. Reading and writing numbers is tested through the codec, in tests/protocol/test_codec.py."""

import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.cursor import Writer


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_a_writer_holds_what_was_written(parts):
    writer = Writer(1)
    for part in parts:
        writer.write_bytes(part)
    assert writer.getvalue() == bytes(writer) == b"".join(parts)
    assert len(writer) == sum(map(len, parts))


def test_any_bytes_like_object_can_be_written():
    writer = Writer()
    for data in (bytearray(b"ab"), memoryview(b"xcdy")[1:3], array.array("i", [0x01010101])):
        writer.write_bytes(data)
    assert writer.getvalue() == b"abcd\x01\x01\x01\x01"
    with pytest.raises(TypeError):
        writer.write_bytes("text")


def test_a_cleared_writer_starts_over():
    writer = Writer()
    writer.write_bytes(b"x" * 1000)
    writer.clear()
    assert len(writer) == 0
    writer.write_bytes(b"\x05")
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
