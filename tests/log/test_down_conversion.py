"""Records are converted piece by piece for clients that know only older message formats."""

import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.reading import down_conversion
from kafkapy.log.reading.down_conversion import CHUNK, Chunks, DownConversion
from kafkapy.record.batch import build
from kafkapy.record.conversion import down_convert
from kafkapy.record.file_region import FileHandle, FileRegion
from kafkapy.record.legacy import build_set, iter_entries, messages_of
from tests.harness.examples import examples

LIMIT = 1 << 30


def region_of(tmp_path, *parts, cut=0):
    data = b"".join(parts)
    path = tmp_path / f"log-{len(list(tmp_path.iterdir()))}"
    path.write_bytes(b"in front" + data)
    return FileRegion(FileHandle(os.open(path, os.O_RDONLY), path), 8, len(data) - cut)


def batch(first, *values, codec=0, headers=(), **options):
    records = [(1000 + first + at, b"k", value, headers) for at, value in enumerate(values)]
    return build(records, codec=codec, base_offset=first, **options)


def converted(conversion, most=1 << 30):
    """Return all bytes that a client gets."""
    data = conversion.take_first(most)
    while len(data) < conversion.length:
        piece = conversion.make(len(data))
        assert len(piece)
        data += piece
    return data[: conversion.length]


def messages(data):
    return [one for header in iter_entries(data) for one in messages_of(data, header)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("again", [False, True])
def test_pieces_are_the_conversion_of_the_whole_up_to_the_promised_size(tmp_path, magic, again):
    values = [b"%d" % at * 40 for at in range(50)]
    parts = [batch(at * 50, *values, codec=at % 2, headers=[("h", bytes(300))]) for at in range(90)]
    region = region_of(tmp_path, *parts)
    assert region.length > 5 * CHUNK
    expected = b"".join(down_convert(part, magic) for part in parts)
    data = converted(DownConversion(region, magic, 0, LIMIT), 10 if again else 1 << 30)
    assert len(data) == region.length
    assert data.startswith(expected)
    rest = data[len(expected) :]
    offset, size = struct.unpack_from(">qi", rest)
    assert (offset, size) == (-1, len(rest) + 1)
    assert [one.offset for one in messages(data)] == list(range(4500))


def test_no_more_is_read_at_once_than_a_chunk_or_a_batch(tmp_path, monkeypatch):
    parts = [batch(at, bytes(5000)) for at in range(200)] + [batch(200, os.urandom(400_000))]
    handed = []

    def spy(chunk, *arguments, **options):
        handed.append(len(chunk))
        return down_convert(chunk, *arguments, **options)

    monkeypatch.setattr(down_conversion, "down_convert", spy)
    converted(DownConversion(region_of(tmp_path, *parts), 1, 0, LIMIT))
    assert handed[0] == len(parts[0])  # the first batch is converted before the size is known
    assert handed[-1] == len(parts[-1])
    assert max(handed[:-1]) <= CHUNK
    assert sum(handed) == sum(map(len, parts))


def test_the_first_batch_comes_whole_though_it_needs_more_room(tmp_path):
    part = batch(0, *[b""] * 100)
    region = region_of(tmp_path, part, part)
    conversion = DownConversion(region, 1, 0, LIMIT)
    expected = down_convert(part, 1)
    assert conversion.length == len(expected) > region.length
    assert converted(conversion) == expected


def test_a_batch_that_is_not_whole_is_left_out(tmp_path):
    first, second = batch(0, b"a" * 100), batch(1, b"b" * 100)
    conversion = DownConversion(region_of(tmp_path, first, second, cut=1), 0, 0, LIMIT)
    data = converted(conversion)
    assert len(data) == len(first) + len(second) - 1
    assert [one.offset for one in messages(data)] == [0]


def test_where_nothing_is_left_a_message_that_was_cut_is_given(tmp_path):
    """Old clients get no control batches. In their place, Kafka sends the same twelve bytes."""
    region = region_of(tmp_path, batch(0, b"a", control=True), batch(1, b"b", control=True))
    conversion = DownConversion(region, 1, 0, LIMIT)
    assert converted(conversion) == struct.pack(">qi", -1, 61)


def test_control_batches_and_records_before_the_offset_are_passed_over(tmp_path):
    parts = [batch(0, b"a", control=True), batch(1, b"b", b"c"), batch(3, b"d", control=True), batch(4, b"e")]
    conversion = DownConversion(region_of(tmp_path, *parts), 1, 2, LIMIT)
    assert [(one.offset, one.value) for one in messages(converted(conversion))] == [(2, b"c"), (4, b"e")]


def test_zstd_first_is_refused_and_later_left_for_the_next_fetch(tmp_path):
    plain, packed = batch(0, b"a"), batch(1, b"b", codec=4)
    with pytest.raises(KafkaError) as refused:
        DownConversion(region_of(tmp_path, packed, plain), 1, 0, LIMIT)
    assert refused.value.code == Errors.UNSUPPORTED_COMPRESSION_TYPE
    region = region_of(tmp_path, plain, packed)
    for again in (False, True):
        data = converted(DownConversion(region, 1, 0, LIMIT), 0 if again else 1 << 30)
        assert len(data) == region.length
        assert [one.offset for one in messages(data)] == [0]


def test_damage_in_the_first_batch_is_an_error_and_later_damage_ends_the_reply(tmp_path, caplog):
    good, bad = batch(0, b"a" * 100), bytearray(batch(1, b"b" * 50, b"c" * 50, codec=1))
    bad[70:] = bytes(len(bad) - 70)
    with pytest.raises(KafkaError) as refused:
        DownConversion(region_of(tmp_path, bytes(bad), good), 1, 0, LIMIT)
    assert refused.value.code == Errors.CORRUPT_MESSAGE
    no_length = struct.pack(">qi", 1, 3) + bytes(100)
    for damaged in (bytes(bad), no_length):
        region = region_of(tmp_path, good, damaged, batch(2, b"d"))
        data = converted(DownConversion(region, 1, 0, LIMIT))
        assert len(data) == region.length
        assert [one.offset for one in messages(data)] == [0]  # only the next fetch gets the error
        assert "ends before byte" in caplog.text
        caplog.clear()


@settings(max_examples=examples(40), deadline=None)
@given(
    first=st.booleans(),
    codec=st.sampled_from([0, 1]),
    ending=st.sampled_from(["", "cut", "damage", "zstd"]),
    offsets=st.lists(st.integers(0, 400_000), max_size=20),
)
def test_a_released_piece_is_converted_again(tmp_path_factory, first, codec, ending, offsets):
    values = [os.urandom(20) for _ in range(300)]
    parts = [batch(at * 300, *values, codec=codec) for at in range(40)]
    if ending == "damage":
        parts[30] = parts[30][:60] + b"\x7f" + bytes(len(parts[30]) - 61)
    elif ending == "zstd":
        parts[30] = batch(9000, b"b", codec=4)
    region = region_of(tmp_path_factory.mktemp("again"), *parts, cut=ending == "cut")
    whole = converted(DownConversion(region, 1, 5, LIMIT))
    conversion = DownConversion(region, 1, 5, LIMIT)
    piece = conversion.take_first(1 << 30 if first else 0)
    begin = 0
    while begin + len(piece) < conversion.length:
        for offset in offsets:
            if offset < len(piece):
                assert whole[begin + offset : begin + len(piece)].startswith(
                    bytes(conversion.make(begin + offset))[: len(whole) - begin - offset]
                )
        begin += len(piece)
        piece = conversion.make(begin)
        assert whole[begin:].startswith(bytes(piece)[: len(whole) - begin])


def test_a_batch_that_unpacks_to_too_much_is_refused(tmp_path):
    region = region_of(tmp_path, batch(0, bytes(1_000_000), codec=1))
    with pytest.raises(KafkaError) as refused:
        DownConversion(region, 1, 0, 100_000)
    assert refused.value.code == Errors.CORRUPT_MESSAGE


@settings(max_examples=examples(60), deadline=None)
@given(
    magics=st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=12),
    sizes=st.lists(st.sampled_from([0, 30, 1000, 200_000]), min_size=12, max_size=12),
    known=st.sampled_from([0, 1]),
    cut=st.sampled_from([0, 1, 50]),
)
def test_a_client_knows_the_format_of_a_region_if_it_knows_that_of_every_whole_entry(
    tmp_path_factory, magics, sizes, known, cut
):
    parts = [
        batch(at, bytes(sizes[at])) if magic == 2 else build_set([(5, b"k", bytes(sizes[at]))], magic, base_offset=at)
        for at, magic in enumerate(magics)
    ]
    region = region_of(tmp_path_factory.mktemp("known"), *parts, cut=cut)
    end, whole = 0, []
    for magic, part in zip(magics, parts, strict=True):
        end += len(part)
        if end <= region.length:
            whole.append(magic)
    assert Chunks(region).all_known(known) == all(magic <= known for magic in whole)
