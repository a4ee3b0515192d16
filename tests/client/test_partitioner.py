"""Keys go to the same partitions as with Kafka's own clients."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.client.producing.partitioner import StickyChoice, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        # Computed with org.apache.kafka.common.utils.Utils.murmur2 of kafka-clients 3.9.1 (signed there).
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
        (b"\xff", -311467685),
        (b"\x80\xff", -80095470),
        (b"\x7f\x80\xff", -148980706),
        (b"\xff\xfe\xfd\xfc", 2136149935),
        (b"\x00\x01\xfe\xff\x80", -2102479966),
        (b"\xe2\x82\xac\x00\xff\x80\x81", -929714536),
    ],
)
def test_murmur2_is_kafkas(data, hashed):
    assert murmur2(data) == hashed & 0xFFFFFFFF


def plain_murmur2(data):
    """Return the murmur2 hash, computed in plain Python as the algorithm is described."""
    mask = 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & mask
        k = (k ^ k >> 24) * 0x5BD1E995 & mask
        h = (h * 0x5BD1E995 & mask) ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & mask
    h = (h ^ h >> 13) * 0x5BD1E995 & mask
    return h ^ h >> 15


@given(st.binary(max_size=70), st.integers(1, 1000))
def test_every_key_is_hashed_as_the_algorithm_says(key, partitions):
    assert murmur2(key) == plain_murmur2(key)
    assert partition_of_key(key, partitions) == (plain_murmur2(key) & 0x7FFFFFFF) % partitions


def test_a_topic_without_partitions_has_none_for_a_key():
    with pytest.raises(ValueError, match="0 partitions"):
        partition_of_key(b"k", 0)


def test_a_key_goes_to_its_positive_hash_modulo_the_partitions():
    assert partition_of_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


def test_records_without_key_stay_until_the_batch_is_full_and_then_leave():
    choice = StickyChoice()
    seen = Counter()
    for _ in range(300):
        first = choice.partition("t", 3)
        assert choice.partition("t", 3) == first
        choice.batch_is_full("t", first, 3)
        assert choice.partition("t", 3) != first
        seen[first] += 1
    assert set(seen) == {0, 1, 2}


def test_a_full_batch_of_another_partition_changes_nothing():
    choice = StickyChoice()
    current = choice.partition("t", 2)
    choice.batch_is_full("t", 1 - current, 2)
    assert choice.partition("t", 2) == current


def test_a_single_partition_is_always_chosen():
    choice = StickyChoice()
    choice.batch_is_full("t", choice.partition("t", 1), 1)
    assert choice.partition("t", 1) == 0


def test_a_partition_that_is_not_available_any_more_is_left():
    available = [0, 1, 2]
    choice = StickyChoice(lambda topic, count: available)
    for _ in range(20):
        current = choice.partition("t", 3)
        available[:] = [one for one in range(3) if one != current]
        assert choice.partition("t", 3) != current
