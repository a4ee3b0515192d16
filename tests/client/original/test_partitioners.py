"""Keys go to the same partitions as with Kafka's original producers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.client.original.encoders import DefaultEncoder, NullEncoder, StringEncoder
from kafkapy.client.original.partitioners import DefaultPartitioner, Murmur2Partitioner, java_hash
from kafkapy.client.producing.partitioner import partition_of_key

# Printed by Java 17: Integer.hashCode, Long.hashCode, Boolean.hashCode.
NUMBERS = [(0, 0), (-1, -1), (1 << 31, -(1 << 31)), (1 << 40, 256), (-(1 << 40), -256), (True, 1231), (False, 1237)]


@pytest.mark.parametrize(("number", "hashed"), NUMBERS)
def test_numbers_have_the_hash_of_java(number, hashed):
    assert java_hash(number) == hashed


@pytest.mark.parametrize(
    ("key", "partition"),
    [("kafka", 101807910 % 7), (b"kafka", 130437061 % 7), ("Grüße".encode(), 758603932 % 7), ("polygenelubricants", 0)],
)
def test_the_default_is_the_hash_without_its_sign_and_zero_for_the_least(key, partition):
    assert DefaultPartitioner().partition(key, 7) == partition


@given(st.text() | st.binary() | st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1, 1000))
def test_every_key_has_a_partition(key, count):
    assert 0 <= DefaultPartitioner().partition(key, count) < count


@pytest.mark.parametrize("key", [1.5, 1 << 63, object()])
def test_a_key_without_a_hash_is_named(key):
    with pytest.raises(TypeError, match=r"set partitioner\.class"):
        DefaultPartitioner().partition(key, 3)


def test_murmur2_agrees_with_the_clients_of_today():
    for key in (b"", b"a", b"kafka", b"\xff" * 33):
        assert Murmur2Partitioner().partition(key, 13) == partition_of_key(key, 13)
    assert Murmur2Partitioner().partition("clé", 13) == partition_of_key("clé".encode(), 13)


def test_encoders_accept_only_their_types():
    assert DefaultEncoder().to_bytes(bytearray(b"x")) == b"x"
    assert StringEncoder().to_bytes("ü") == b"\xc3\xbc"
    assert StringEncoder({"serializer.encoding": "ISO-8859-1"}).to_bytes("ü") == b"\xfc"
    assert NullEncoder().to_bytes("anything") is None
    with pytest.raises(TypeError, match="'ü' is of type str"):
        DefaultEncoder().to_bytes("ü")
    with pytest.raises(TypeError, match="strings only"):
        StringEncoder().to_bytes(b"x")
    with pytest.raises(ValueError, match="'EBCDIC-0', which"):
        StringEncoder({"serializer.encoding": "EBCDIC-0"})
