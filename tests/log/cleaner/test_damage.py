"""A damaged log is never cleaned: the cleaner logs the position of the damage, and the files stay unchanged."""

import struct
import zlib

import pytest

from kafkapy._ext.batch import assemble
from kafkapy._ext.compactor import Compactor
from kafkapy._ext.cursor import Writer
from kafkapy._ext.decided_txns import DecidedTransactions
from kafkapy._ext.key_index import CorruptEntry, KeyIndex
from kafkapy._ext.keymap import KeyMap
from kafkapy.log.cleaner.codecs import pack, unpack
from kafkapy.record.batch import build
from kafkapy.record.compression import compress
from kafkapy.record.legacy import build_set

from .support import CleanerBench

NOW = 1_700_000_000_000


def both_passes(data, end=1000):
    """Run both passes over a segment. Return (bytes to keep, position reached). Raise ValueError for damage."""
    keys, view = KeyMap(1 << 16), memoryview(data)
    index = KeyIndex(keys, DecidedTransactions(), 0)
    index.begin_segment(0, end)
    payload = Writer(16)
    wants = index.feed(view, 0)
    while wants:
        unpack(view, index.position, payload, 1 << 20)
        wants = index.feed(view, index.position, payload)
    compactor = Compactor(keys, DecidedTransactions(), mapped_to=index.latest_offset, now=NOW, delete_retention=1)
    compactor.begin_segment(0, end, True, [])
    wants = compactor.feed(view, 0)
    while wants:
        if len(compactor.unpacked):
            compactor.packed(view, pack(view, compactor.position, compactor.unpacked))
            wants = compactor.feed(view, compactor.position)
        else:
            unpack(view, compactor.position, payload, 1 << 20)
            wants = compactor.feed(view, compactor.position, payload)
    assert compactor.position == index.position
    return compactor.out.getvalue(), compactor.position


ROWS = [(NOW, b"a", b"1", []), (NOW + 1, b"b", b"2" * 30, [("h", b"x")]), (NOW, b"a", None, [])]
MESSAGES = [(NOW, b"a", b"1"), (NOW + 1, b"b", b"2" * 30), (NOW, b"a", None)]
SOUND = {
    "batches": build(ROWS) + build(ROWS, base_offset=3),
    "compressed": build(ROWS, codec=1) + build(ROWS, codec=3, base_offset=3),
    "messages": build_set(MESSAGES, 1) + build_set(MESSAGES, 0, base_offset=3),
    "wrappers": build_set(MESSAGES, 1, 1) + build_set(MESSAGES, 0, 1, base_offset=3),
}


@pytest.mark.parametrize("kind", SOUND)
def test_every_byte_that_is_wrong_is_noticed_or_does_no_harm(kind):
    data = SOUND[kind]
    left, position = both_passes(data)
    assert position == len(data)
    for at in range(len(data)):
        for flipped in (0x01, 0x80):
            damaged = bytearray(data)
            damaged[at] ^= flipped
            try:
                now_left, now_position = both_passes(bytes(damaged))
            except ValueError:
                continue
            # No checksum covers offsets and leader epochs, nor an entry whose length reaches beyond the end.
            assert now_position < len(data) or len(now_left) == len(left), f"byte {at}"


@pytest.mark.parametrize("kind", SOUND)
def test_data_that_ends_anywhere_is_read_up_to_its_last_whole_entry(kind):
    data = SOUND[kind]
    for length in range(len(data)):
        _, position = both_passes(data[:length])
        assert position <= length


def in_a_batch(payload, count, *, codec=0, **fields):
    return assemble(compress(codec, payload) if codec else payload, count=count, attributes=codec, **fields)


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize(
    ("payload", "count", "words"),
    [
        (b"\x0e\x00\x00\x00\x02a\x02", 1, "record 0"),
        (b"\x02\x00", 1, "record 0"),
        (b"", 1, "record 0"),
        (b"\x10\x00\x00\x00\x02a\x02b\x00!", 1, "1 bytes are left after the 1 records"),
        (b"\x10\x00\x00\x02\x02a\x02b\x00", 1, "an offset that is not in 0..0"),
        (b"\x10\x00\x00\x00\x02a\x02b\x00" * 2, 2, "an offset that is not in 1..1"),
        (b"", -1, "declares -1 records"),
    ],
)
def test_invalid_records_are_refused_with_their_offset(payload, count, words, codec):
    with pytest.raises(CorruptEntry, match="offset 0") as refused:
        both_passes(in_a_batch(payload, count, codec=codec, last_offset_delta=max(count - 1, 0)))
    assert words in str(refused.value)


def test_entries_out_of_order_are_refused():
    with pytest.raises(CorruptEntry, match="do not follow those before"):
        both_passes(build(ROWS, base_offset=3) + build(ROWS))
    with pytest.raises(CorruptEntry, match="belong to the next segment"):
        both_passes(build(ROWS, base_offset=3), end=5)


def test_a_marker_without_a_type_is_refused():
    with pytest.raises(CorruptEntry, match="a control batch whose record has no type"):
        both_passes(build([(NOW, b"\0\0", b"", [])], control=True, transactional=True, producer_id=1, producer_epoch=0))


def test_a_wrapper_that_lies_about_its_offset_is_refused():
    data = bytearray(build_set(MESSAGES, 1, 1, base_offset=10))
    data[:8] = struct.pack(">q", 1)
    with pytest.raises(CorruptEntry, match="offset 1"):
        both_passes(bytes(data))


def test_a_payload_that_unpacks_to_too_much_is_refused(tmp_path):
    bench = CleanerBench(tmp_path)
    bench.append(("a", "x" * 100_000), codec=1)
    bench.log.roll()
    bench.env.max_decompressed = 50_000
    with pytest.raises(CorruptEntry, match=r"0\.log, read from byte 0: gzip data that unpacks to more than 50000"):
        bench.clean()


def test_a_batch_that_the_file_ends_inside_of_is_refused(tmp_path):
    bench = CleanerBench(tmp_path)
    for _ in range(3):
        bench.append(("a", "x"))
    bench.log.roll()
    segment = bench.log.segments.items[0]
    segment.size -= 5
    with pytest.raises(CorruptEntry, match=r"the batch has .* bytes, but only .* are left"):
        bench.clean(io_buffer=1)
    segment.size += 10
    with pytest.raises(CorruptEntry, match="the file ends at byte"):
        bench.clean()


def test_a_batch_larger_than_the_buffers_is_cleaned(tmp_path):
    bench = CleanerBench(tmp_path)
    bench.append(("a", "x"))
    bench.append(("a", "y" * 200_000), ("b", None))
    bench.append(("c", "z"))
    bench.roll_and_clean(io_buffer=1)
    assert len(bench.log.segments.items[0].files.pread(bench.log.segments.items[0].handle(), 1 << 20, 0)) > 200_000


def test_messages_of_another_format_in_a_wrapper_get_that_of_the_wrapper():
    """KAFKA-4298: some brokers compressed messages of format 0 into wrappers of format 1."""
    inner = build_set(MESSAGES[:2], 0)
    relative = bytearray(build_set(MESSAGES[:2], 1, 1, base_offset=5))
    # Replace the wrapper's value by messages of format 0, whose offsets count from 0, too.
    value = compress(1, inner)
    body = relative[16:26] + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    data = relative[:8] + struct.pack(">iI", len(body) + 4, zlib.crc32(body)) + body
    left, _ = both_passes(bytes(data))
    assert left != data
    from kafkapy.record.legacy import messages_of, read_entry

    assert [(record.offset, record.key, record.value) for record in messages_of(left, read_entry(left))] == [
        (5, b"a", b"1"),
        (6, b"b", b"2" * 30),
    ]


def test_an_invalid_length_at_the_end_of_a_segment_is_refused():
    with pytest.raises(
        CorruptEntry, match=r"the entry 0 bytes further \(offset 7\) has the length 3, which is not valid"
    ):
        both_passes(struct.pack(">qi", 7, 3))
    with pytest.raises(CorruptEntry, match="has the length 100 and magic 9, which is not valid"):
        both_passes(struct.pack(">qiib", 7, 100, 0, 9) + bytes(100))
