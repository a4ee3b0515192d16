"""Message sets of Kafka 0.7 as a Produce brings them: what is inside compressed messages is checked too."""

import gzip

import pytest

from kafkapy.record.compression import GZIP, SNAPPY, compress
from kafkapy.record.kafka07 import build_message
from kafkapy.record.sets_07 import InvalidSet, check_inner_sets, check_set

BAD_CRC = build_message(b"bad")[:-1] + b"x"


def packed(data, codec=GZIP):
    return build_message(compress(codec, data), codec=codec)


def count(data, limit=1 << 20):
    return check_inner_sets(data, check_set(data, 1 << 20), limit)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_inner_messages_count_at_every_depth(codec):
    one = build_message(b"one")
    assert count(one + packed(one + one, codec) + one) == 4
    assert count(packed(packed(one + one, codec) + one, codec)) == 3
    assert count(packed(b"", codec)) == 0


def deep(depth):
    data = build_message(b"deep")
    for _ in range(depth):
        data = packed(data)
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (packed(build_message(b"fine") + BAD_CRC), "in a compressed message: a CRC that is not that of the payload"),
        (packed(packed(BAD_CRC)), "in a compressed message: in a compressed message: a CRC"),
        (packed(build_message(b"fine") + b"\0\0\0\7x"), "5 bytes are left over"),
        (build_message(b"no gzip", codec=GZIP), "cannot be unpacked"),
        (build_message(b"no snappy", codec=SNAPPY), "cannot be unpacked"),
        (build_message(b"", codec=3), "codec 3"),
        (deep(9), "more than 8 deep"),
        (build_message(gzip.compress(bytes(1 << 21)), codec=GZIP), "unpacks to more than the limit"),
    ],
)
def test_a_set_with_a_fault_inside_is_refused(data, words):
    with pytest.raises(InvalidSet, match=words):
        count(data)


def test_the_limit_is_for_all_compressed_messages_of_a_set_together():
    data = packed(build_message(bytes(600)))
    assert count(data, 700) == 1
    with pytest.raises(InvalidSet, match="more than the limit"):
        count(data + data, 700)


def test_nesting_up_to_the_limit_is_allowed():
    assert count(deep(8)) == 1
