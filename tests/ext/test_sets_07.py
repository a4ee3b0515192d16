"""ext/sets_07.pyx compared with the plain reader kafkapy.record.kafka07: equal messages, errors for the same sets."""

import pytest
from hypothesis import example, given, strategies

from kafkapy._ext.sets_07 import InvalidSet, MessageTooLarge, check, scan
from kafkapy.record.kafka07 import CorruptMessage, build_message, iter_messages

messages = strategies.builds(
    build_message,
    strategies.binary(max_size=100),
    magic=strategies.integers(0, 1),
    codec=strategies.integers(0, 3),
)
sets = strategies.lists(messages, max_size=5).map(b"".join)


@strategies.composite
def damaged(draw):
    data = bytearray(draw(sets))
    for _ in range(draw(strategies.integers(0, 2))):
        if data:
            data[draw(strategies.integers(0, len(data) - 1))] = draw(strategies.integers(0, 255))
    return bytes(data[: draw(strategies.integers(0, len(data)))])


def plain(data):
    """Return the end, number and compressed positions of the valid messages in front, and whether damage follows."""
    end, count, compressed = 0, 0, []
    try:
        for message in iter_messages(data):
            if not message.is_valid:
                return end, count, compressed, True
            end, count = message.end, count + 1
            if message.codec:
                compressed.append(message.position)
    except CorruptMessage:
        return end, count, compressed, True
    return end, count, compressed, False


@given(damaged())
@example(b"")
@example(b"\0\0\0\5\1\0\0\0\0")
@example(b"\0\0\0\5\2")
@example(b"\xff\xff\xff\xff")
@example(b"\0\0\0\7\0\0\0")
def test_sets_are_read_as_the_plain_reader_reads_them(data):
    end, count, compressed, is_damaged = plain(data)
    found_end, found_count, needed, fault = scan(data)
    # An incomplete message may have an invalid magic, which the plain reader sees before the rest has arrived.
    assert (found_end, found_count) == (end, count)
    assert fault is None or (is_damaged and needed == 0)
    assert needed == 0 or needed > len(data) - end
    is_cut_at_once = fault is None and not count and len(data) >= 4
    if fault is None and not is_cut_at_once:
        assert check(data, 1 << 20) == (end, count, compressed)
    else:
        with pytest.raises(InvalidSet) as raised:
            check(data, 1 << 20)
        assert raised.value.position == end


def test_faults_are_explained():
    for data, words in (
        (b"\0\0\0\4aaaa", "a length of 4 bytes, too few"),
        (b"\xff\xff\xff\xfe", "a length of -2 bytes, too few"),
        (b"\0\0\0\5\1aaaa", "a length of 5 bytes, too few"),
        (b"\0\0\0\6\2aaaaa", "magic 2"),
        (build_message(b"one")[:-1] + b"x", "a CRC that is not that of the payload"),
        (build_message(b"one")[:-1], "a length of 9 bytes, more than there are"),
    ):
        with pytest.raises(InvalidSet, match=words):
            check(data, 100)


def test_the_first_fault_counts():
    bad = build_message(b"bad")[:-1] + b"x"
    with pytest.raises(MessageTooLarge, match="a message has a payload of 11 bytes, 10 are allowed"):
        check(build_message(b"x" * 11) + bad, 10)
    with pytest.raises(InvalidSet):
        check(bad + build_message(b"x" * 11), 10)
    assert check(build_message(b"x" * 10), 10)[1] == 1


def test_long_sets_are_checked_without_the_gil():
    data = build_message(b"x" * (3 << 20))
    assert check(data + data, 4 << 20) == (2 * len(data), 2, [])
