"""Which partition a group belongs to: Kafka's own answers."""

import pytest

from kafkapy.coordinator.java_hash import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "value"),
    [  # jshell of Java 17: "...".hashCode()
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("polygenelubricants", -(1 << 31)),
        ("größe", 98762257),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_lowest_hash_belongs_to_the_first_partition() -> None:
    assert partition_of("polygenelubricants", 50) == 0


def test_a_negative_hash_counts_as_positive() -> None:
    name = "my-group"
    assert java_hash(name) < 0
    assert partition_of(name, 50) == -java_hash(name) % 50
