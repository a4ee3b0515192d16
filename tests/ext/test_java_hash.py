"""Java's hash codes."""

import pytest

from kafkapy._ext.java_hash import hash_of_bytes, hash_of_string

# Printed by Java 17: text.hashCode(), Arrays.hashCode(text.getBytes(UTF_8)).
OF_JAVA = [
    ("", 0, 1),
    ("a", 97, 128),
    ("kafka", 101807910, 130437061),
    ("user-4711", 291394725, 94881220),
    ("my-group", -1906497762, 581015071),
    ("Grüße", 69215351, -758603932),
    ("größe", 98762257, 1871531338),
    ("日本", 835047, 43436899),
    ("\U0001f600", 1772899, 350296),
    ("\U0001f600 smile", -1559691765, -1192592064),
    ("polygenelubricants", -2147483648, 1303011777),
    ("x" * 100, 1680682496, -1120372351),
]


@pytest.mark.parametrize(("text", "of_string", "of_bytes"), OF_JAVA)
def test_hash_codes_are_those_of_java(text, of_string, of_bytes):
    assert hash_of_string(text) == of_string
    assert hash_of_bytes(text.encode()) == of_bytes


def test_half_a_surrogate_pair_counts_as_it_stands():
    assert hash_of_string("\ud83d") == 55357
    assert hash_of_string("a\ude00b") == 1855107
    assert hash_of_string("\ud83d\ude00") == hash_of_string("\U0001f600")


def test_bytes_have_a_sign():
    assert hash_of_bytes(bytes(range(256))) == -764092287
    assert hash_of_bytes(memoryview(bytes([255, 128, 127]))) == 24989


def test_what_is_no_string_and_no_bytes_is_refused():
    with pytest.raises(TypeError):
        hash_of_string(b"a")
    with pytest.raises(TypeError):
        hash_of_bytes("a")
