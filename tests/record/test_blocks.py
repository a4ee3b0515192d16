"""Blocks of a segment file: whatever their size, every complete batch is returned once, and damage is reported."""

import os
import zlib

import pytest

from kafkapy._ext.crc32c import crc32c
from kafkapy.record import blocks as module
from kafkapy.record.batch import build
from kafkapy.record.blocks import SegmentBlocks
from kafkapy.record.columns import DamagedBatch, column_builder
from kafkapy.record.legacy import build_set

from .column_rows import rows_of

BATCHES = [build([(5, b"key", bytes(size), ())], base_offset=n) for n, size in enumerate((1, 300, 20, 5000, 3, 70))]


def offsets(blocks):
    builder = column_builder(("offset",))
    for block in blocks:
        list(builder.feed(block))
        blocks.used(builder.consumed)
    rest = builder.finish()
    return [row["offset"] for row in rows_of(rest)] if rest else []


@pytest.fixture
def segment(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(BATCHES))
    return path


@pytest.mark.parametrize("block", [1, 11, 12, 17, 61, 80, 400, 10_000])
def test_every_batch_is_returned_whatever_the_size_of_a_block(segment, block):
    with SegmentBlocks(segment, block=max(block, 17)) as blocks:
        assert offsets(blocks) == list(range(6))
        assert blocks.position == blocks.end == segment.stat().st_size


@pytest.mark.parametrize("missing", [1, 60, 100, 200])
def test_reading_ends_before_an_incomplete_batch(segment, missing):
    os.truncate(segment, segment.stat().st_size - missing)
    with SegmentBlocks(segment, block=50) as blocks:
        assert offsets(blocks) == list(range(4 if missing == 200 else 5))
        assert blocks.position == sum(map(len, BATCHES[: 4 if missing == 200 else 5])) < blocks.end


def test_a_block_is_used_up_unless_a_position_is_set(segment):
    with SegmentBlocks(segment, block=1000) as blocks:
        assert b"".join(bytes(block) for block in blocks) == b"".join(BATCHES)


def test_reading_can_begin_anywhere(segment):
    with SegmentBlocks(segment, len(BATCHES[0])) as blocks:
        assert offsets(blocks) == list(range(1, 6))


def test_batches_appended_later_are_not_read(segment):
    with SegmentBlocks(segment) as blocks:
        with segment.open("ab") as file:
            file.write(build([(0, None, None, ())], base_offset=6))
        assert offsets(blocks) == list(range(6))


def test_a_file_that_becomes_shorter_raises_an_error(segment):
    with SegmentBlocks(segment, block=100) as blocks:
        turns = iter(blocks)
        next(turns)
        blocks.used(len(BATCHES[0]))
        os.truncate(segment, 90)
        with pytest.raises(DamagedBatch, match="the file became shorter"):
            next(turns)


@pytest.mark.parametrize("magic", [1, 2])
def test_an_implausible_length_takes_no_memory(segment, monkeypatch, magic):
    monkeypatch.setattr(module, "VERIFY_FIRST", 5000)
    if magic == 2:
        lie = bytearray(build([(5, b"key", b"value", ())], base_offset=9))
    else:
        lie = bytearray(build_set([(5, b"key", b"value")], magic))
    lie[8:12] = (20_000).to_bytes(4, "big")
    with segment.open("ab") as file:
        file.write(lie + bytes(30_000))
    with SegmentBlocks(segment, block=1000) as blocks:
        with pytest.raises(DamagedBatch, match=r"\(20012 bytes by its length\) has a wrong CRC"):
            offsets(blocks)
        assert blocks.position == sum(map(len, BATCHES))
        assert len(blocks._memory) < 20_000


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_long_batch_is_read_when_its_checksum_is_right(tmp_path, monkeypatch, magic):
    monkeypatch.setattr(module, "VERIFY_FIRST", 5000)
    value = bytes(range(256)) * 100
    data = build([(5, b"k", value, ())]) if magic == 2 else build_set([(5, b"k", value)], magic)
    assert zlib.crc32(data[16:]) == int.from_bytes(data[12:16], "big") or crc32c(data[21:]) == int.from_bytes(
        data[17:21], "big"
    )
    path = tmp_path / "0.log"
    path.write_bytes(data + data)
    with SegmentBlocks(path, block=1000) as blocks:
        assert offsets(blocks) == [0, 0]


def test_closing_twice_is_no_error(segment):
    blocks = SegmentBlocks(segment)
    blocks.close()
    blocks.close()
