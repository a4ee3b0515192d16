"""The deep check of a segment in C: the problems that it finds, their positions, and the same result for any pieces."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext.crc32c import crc32c
from kafkapy._ext.segment_check import Checker, check_packed
from kafkapy.record.batch import build, payload_of
from kafkapy.record.legacy import build_set, read_entry
from tests.harness.examples import examples

GZIP = 1


def batch(offset, values=(b"a", b"b"), **more):
    return build([(1000 + number, b"k", value, ()) for number, value in enumerate(values)], base_offset=offset, **more)


def changed(data, at, new, *, mend=False):
    """Return the data with these bytes at a position. With `mend`, the checksum is computed again."""
    result = bytearray(data)
    result[at : at + len(new)] = new
    if mend:
        result[17:21] = crc32c(result[21:]).to_bytes(4, "big")
    return bytes(result)


def check(data, base=0, window=1 << 20):
    """Feed all data to a Checker. Return the Checker and the troubles."""
    checker, position, troubles, size = Checker(base), 0, [], window
    while position < len(data) and not checker.stopped:
        end = checker.feed(data[position : position + size], position)
        troubles += checker.take_troubles()
        if end == position:
            if checker.wanted > len(data) - position:
                break
            size = checker.wanted
            continue
        position, size = end, window
    return checker, troubles


def test_a_sound_segment_is_counted():
    data = batch(0) + batch(2, codec=GZIP) + batch(9)
    checker, troubles = check(data)
    assert troubles == []
    assert (checker.batches, checker.records, checker.first_offset, checker.next_offset) == (3, 4, 0, 11)
    assert (checker.max_timestamp, checker.gap) == (1001, 9)
    position, size, _ = struct.unpack("=qqq", checker.take_packed())
    assert (position, size) == (len(batch(0)), len(batch(2, codec=GZIP)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (changed(batch(0), 70, b"x"), "a wrong CRC"),
        (changed(batch(0), 8, bytes(4)), "a length of 0 bytes"),
        (changed(batch(0), 16, b"\x07"), "magic 7"),
        (
            changed(batch(0), 23, (-1).to_bytes(4, "big", signed=True), mend=True),
            "the base offset 0, but the last offset -1",
        ),
        (changed(batch(0), 57, b"\0\0\0\3", mend=True), "a count of 3 records for 2 offsets"),
        (changed(batch(0), 57, b"\0\0\0\1", mend=True), "bytes after its last record"),
        (changed(batch(0), 35, (5).to_bytes(8, "big"), mend=True), "the max timestamp 5, but the largest of its"),
        (changed(batch(0), 21, b"\0\5", mend=True), "codec 5"),
        (changed(batch(0), 61, b"\x7e", mend=True), "records that cannot be read: "),
        (changed(batch(0), 64, b"\2", mend=True), "offset"),
        (batch(1 << 31), "the last offset 2147483649, too far"),
    ],
)
def test_what_is_wrong_with_a_batch_is_reported(data, words):
    _, ((position, offset, sentence), *more) = check(data)
    assert (position, more, words in sentence) == (0, [], True), sentence
    assert offset in (-1, 0, 1 << 31)


def test_offsets_that_go_back_are_reported_and_the_walk_continues():
    checker, troubles = check(batch(5) + batch(6) + batch(7))
    assert troubles == [(len(batch(5)), 6, "offsets from 6 on, but 7 or more must follow")]
    assert (checker.batches, checker.next_offset) == (3, 9)


def test_a_batch_after_a_damaged_one_follows_on_a_gap():
    checker, _ = check(batch(0) + changed(batch(2), 70, b"x") + batch(4))
    assert checker.gap == 4


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_older_formats_are_checked(magic):
    records = [(1000, b"k", b"v"), (1001, None, b"w")]
    sound = build_set(records, magic) + build_set(records, magic, GZIP, base_offset=2)
    checker, troubles = check(sound)
    assert (troubles, checker.batches, checker.records, checker.next_offset) == ([], 3, 2, 4)
    _, troubles = check(changed(sound, 20, b"x"))
    assert [one[::2] for one in troubles] == [(0, "a wrong CRC")]


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=12), st.integers(17, 300), st.randoms())
def test_it_does_not_matter_how_the_file_is_cut_up(kinds, window, random):
    data, offset = b"", 0
    for kind, count in kinds:
        values = [b"v" * random.randrange(40) for _ in range(count)]
        if kind < 2:
            data += batch(offset, values, codec=kind, producer_id=7, producer_epoch=0, base_sequence=offset)
        else:
            data += build_set([(0, None, value) for value in values], kind - 2, base_offset=offset)
        offset += count
    whole, troubles = check(data)
    parts, same = check(data, window=window)
    assert troubles == same == []
    for name in ("batches", "records", "first_offset", "next_offset", "max_timestamp", "gap"):
        assert getattr(whole, name) == getattr(parts, name)
    assert whole.take_packed() == parts.take_packed()
    assert whole.take_epochs() == parts.take_epochs()


@settings(max_examples=examples(150))
@given(st.integers(0, 400), st.integers(0, 255), st.integers(1, 60))
def test_no_nonsense_makes_it_read_outside(at, byte, length):
    data = batch(0) + build_set([(5, b"k", b"v")], 1, base_offset=2) + batch(3, codec=GZIP)
    at %= len(data)
    check(data[:at] + bytes([byte]) * min(length, len(data) - at) + data[at + length :])


def test_plain_batches_of_one_producer_that_follow_on_each_other_are_one():
    own = {"producer_id": 7, "producer_epoch": 1}
    data = batch(0, base_sequence=0, **own) + batch(2, base_sequence=2, **own)
    data += batch(4, base_sequence=9, **own) + batch(6, base_sequence=11, transactional=True, **own)
    checker, _ = check(data)
    found = list(struct.iter_unpack("=qqqqqqqiiiihh4x", checker.take_produced()))
    # (producer, first offset, base and last offset of the last batch), (first, base and last sequence)
    assert [(one[:4], one[7:10]) for one in found] == [
        ((7, 0, 2, 3), (0, 2, 3)),
        ((7, 4, 4, 5), (9, 9, 10)),
        ((7, 6, 6, 7), (11, 11, 12)),
    ]


def test_index_entries_are_answered_on_the_way():
    data = batch(0) + batch(2) + batch(4)
    size = len(batch(0))
    checker = Checker(0, struct.pack("=3q", 0, size + 1, 2 * size), struct.pack("=3q", 0, 3, 9))
    checker.feed(data, 0)
    assert list(struct.iter_unpack("=5q", checker.at_positions())) == [
        (0, -1, 0, 1, 1),
        (size + 1, -1, -1, -1, -1),
        (2 * size, 3, 4, 5, 1),
    ]
    assert list(struct.iter_unpack("=6q", checker.at_offsets())) == [
        (0, -1, 0, 1, 1001, 2),
        (3, 1001, 2, 3, 1001, 2),
        (9, -1, -1, -1, -1, -1),
    ]


def packed_check(data, payload=None):
    return check_packed(data, payload_of(data, read_entry(data)) if payload is None else payload)


def test_what_is_inside_of_compressed_entries_is_checked():
    assert packed_check(batch(0, codec=GZIP)) == (2, None)
    plain = payload_of(batch(0), read_entry(batch(0)))
    assert "record" in packed_check(batch(0, codec=GZIP), bytes(plain)[:-1])[1]
    assert packed_check(batch(0, codec=GZIP), bytes(plain) + b"x")[1] == "1 bytes after its last record"


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_inside_of_wrappers_is_checked(magic):
    records = [(1000, b"k", b"v"), (1001, None, b"w")]
    wrapper = build_set(records, magic, GZIP, base_offset=5)
    first = 0 if magic else 5
    inner = build_set(records, magic, base_offset=first)
    assert packed_check(wrapper, inner) == packed_check(wrapper) == (2, None)
    key = 30 if magic else 22
    assert packed_check(wrapper, changed(inner, key, b"x"))[1] == "a wrong CRC in its message 0"
    assert packed_check(wrapper, inner + b"x")[1] == "1 bytes after its last message"
    assert packed_check(wrapper, b"")[1] == "a set that cannot be read: the wrapper has no messages"
    twice = build_set(records, magic, offsets=[first, first])
    assert "out of order" in packed_check(wrapper, twice)[1]
    assert "is compressed too" in packed_check(wrapper, wrapper)[1]


def test_a_wrapper_whose_messages_reach_back_is_reported():
    """A wrapper's offset is that of its last message, so the wrapper alone seems to follow the entry before it."""
    data = build_set([(1000, b"k", b"v")] * 2, 1) + build_set([(1000, b"k", b"v")] * 3, 1, GZIP, base_offset=1)
    checker, troubles = check(data)
    ((position, size, least),) = struct.iter_unpack("=qqq", checker.take_packed())
    wrapper = data[position : position + size]
    assert (troubles, least) == ([], 2)
    _, wrong = check_packed(wrapper, payload_of(wrapper, read_entry(wrapper)), least)
    assert wrong == "messages from offset 1 on, but 2 or more must follow"


def test_a_wrapper_with_messages_of_another_format_is_reported():
    wrapper = build_set([(1000, b"k", b"v")], 1, GZIP)
    assert packed_check(wrapper, build_set([(1000, b"k", b"v")], 0))[1] == "a message of format 0 (message 0)"


def test_a_wrapper_with_a_wrong_timestamp_is_reported():
    wrapper = build_set([(1000, b"k", b"v")], 1, GZIP)
    assert "the timestamp 1000, but the largest" in packed_check(wrapper, build_set([(7, b"k", b"v")], 1))[1]


def test_too_little_of_an_entry_is_refused():
    with pytest.raises(ValueError, match="20 bytes, too few for the header of an entry"):
        check_packed(bytes(20), b"")
