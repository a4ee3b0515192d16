"""Lists of partitions as users write and read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.partition_ranges import partitions_text, topics_and_partitions


def test_topics_are_read_with_and_without_partitions():
    read = topics_and_partitions("--topic", ["a", "b:3,0-1", "b:1,7", "c:5", "c"])
    assert read == {"a": None, "b": [3, 0, 1, 7], "c": None}


def test_a_topic_with_and_without_partitions_means_the_whole_topic():
    assert topics_and_partitions("--topic", ["a", "a:1"]) == {"a": None}


@pytest.mark.parametrize("text", [":1", "", "a:", "a:x", "a:1,", "a:3-1", "a:-1", "a:1-", "a:0-99999999", "a:٣"])
def test_the_error_names_an_invalid_partition(text):
    with pytest.raises(CallError, match=r"write .*TOPIC:0,2-4"):
        topics_and_partitions("--topic", [text])


def test_adjacent_partitions_are_shown_as_a_range():
    assert partitions_text([("b", 0), ("a", 5), ("a", 1), ("a", 0), ("a", 2), ("a", 7), ("a", 8)]) == "a:0-2,5,7-8 b:0"
    assert partitions_text([]) == "-"


@given(st.sets(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 40)), min_size=1))
def test_the_shown_form_can_be_read(partitions):
    read = topics_and_partitions("--topic", partitions_text(partitions).split())
    assert {(topic, number) for topic, numbers in read.items() for number in numbers} == partitions
