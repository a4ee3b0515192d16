"""The offsets that each task reads, and the size of a micro-batch.

Expected ranges are those of Spark's KafkaOffsetRangeCalculatorSuite and KafkaMicroBatchStream.
"""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.spark.reading.positions import BadCheckpoint, Positions, positions_of
from kafkapy.spark.reading.ranges import KafkaRange, divided
from kafkapy.spark.reading.rates import Delay, rate_limited
from tests.harness.examples import examples


def ranges(*sizes):
    return [KafkaRange("t", index, 0, size) for index, size in enumerate(sizes)]


def split(parts, **more):
    found = divided(parts, more.get("least"), more.get("most"))
    return [(one.partition, one.start, one.end) for one in found]


def test_one_task_a_partition_and_none_for_an_empty_one():
    assert split(ranges(5, 0, 1)) == [(0, 0, 5), (2, 0, 1)]
    assert split([KafkaRange("t", 0, 7, 3)]) == []


def test_min_partitions_splits_the_large_ones():
    assert split(ranges(4), least=3) == [(0, 0, 1), (0, 1, 2), (0, 2, 4)]
    assert split(ranges(5, 5), least=1) == [(0, 0, 5), (1, 0, 5)]
    assert split(ranges(1, 21), least=3) == [(0, 0, 1), (1, 0, 10), (1, 10, 21)]
    assert split(ranges(2), least=6) == [(0, 0, 1), (0, 1, 2)]


@pytest.mark.parametrize(
    ("given", "least", "edges"),
    [
        ([(1, 2), (1, 2), (1, 2)], 3, [[1, 2], [1, 2], [1, 2]]),
        ([(1, 5)], 4, [[1, 2, 3, 4, 5]]),
        ([(1, 5), (1, 21)], 4, [[1, 5], [1, 7, 14, 21]]),
        ([(1, 1), (1, 21)], 4, [[], [1, 6, 11, 16, 21]]),
        ([(1, 2), (1, 1001)], 4, [[1, 2], [1, 334, 667, 1001]]),
        ([(1, 11)], 3, [[1, 4, 7, 11]]),
        ([(0, 10), (0, 10), (0, 1)], 6, [[0, 3, 6, 10], [0, 3, 6, 10], [0, 1]]),
        ([(0, 500), (0, 12000), (0, 15001)], 6, [[0, 500], [0, 6000, 12000], [0, 5000, 10000, 15001]]),
        ([(0, 1), (0, 1), (0, 10000)], 6, [[0, 1], [0, 1], [0, 2500, 5000, 7500, 10000]]),
        ([(0, 1), (0, 1), (0, 2)], 4, [[0, 1], [0, 1], [0, 1, 2]]),
    ],
)
def test_ranges_are_those_that_spark_makes(given, least, edges):
    found = divided([KafkaRange("t", index, *one) for index, one in enumerate(given)], least, None)
    wanted = [(index, *pair) for index, of in enumerate(edges) for pair in pairwise(of)]
    assert [(one.partition, one.start, one.end) for one in found] == wanted


def test_tasks_that_unsplit_partitions_do_not_use_go_to_the_others():
    """One large and many small partitions: the large one is split into the tasks that the small ones leave."""
    found = split(ranges(1, 1, 1, 1000), least=10)
    assert [one for one in found if one[0] < 3] == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]
    assert len(found) == 10


def test_max_records_per_partition_bounds_each_task():
    assert split(ranges(1, 8), most=3) == [(0, 0, 1), (1, 0, 2), (1, 2, 5), (1, 5, 8)]
    assert split(ranges(6), most=10) == [(0, 0, 6)]


def test_with_both_options_the_larger_number_of_tasks_is_used():
    assert len(split(ranges(100), most=50, least=4)) == 4
    assert len(split(ranges(100), most=10, least=4)) == 10


def test_only_the_first_piece_begins_at_the_beginning():
    parts = divided([KafkaRange("t", 0, 0, 10, "id", True)], 3, None)
    assert [one.from_earliest for one in parts] == [True, False, False]
    assert {one.topic_id for one in parts} == {"id"}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(0, 300), max_size=8),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 300),
)
def test_every_offset_is_read_once(sizes, least, most):
    read = {}
    for one in divided(ranges(*sizes), least, most):
        assert one.start == read.get(one.partition, 0)
        assert one.size > 0
        assert most is None or one.size <= most
        read[one.partition] = one.end
    assert read == {index: size for index, size in enumerate(sizes) if size}


def limited(limit, begin, end):
    found = rate_limited(
        limit, {("t", at): one for at, one in begin.items()}, {("t", at): one for at, one in end.items()}
    )
    return {at: one for (_, at), one in found.items()}


def test_a_limit_is_shared_in_proportion_and_every_partition_gets_some():
    assert limited(10, {0: 0, 1: 0}, {0: 90, 1: 10}) == {0: 9, 1: 1}
    assert limited(10, {0: 0, 1: 0}, {0: 1000, 1: 1}) == {0: 9, 1: 1}
    assert limited(500, {0: 5, 1: 0}, {0: 20, 1: 10}) == {0: 20, 1: 10}
    assert limited(10, {0: 7}, {0: 7}) == {0: 7}
    assert limited(10, {0: 9}, {0: 3}) == {0: 3}, "an end before the beginning is for others to report"
    assert limited(4, {0: 0}, {0: 8, 1: 8}) == {0: 4, 1: 8}


def test_a_batch_waits_for_enough_records_but_not_forever():
    delay = Delay(10, 60)
    begin = {("t", 0): 100}
    assert not delay.waits(begin, {("t", 0): 103}, now=5), "the first batch does not wait"
    assert delay.waits(begin, {("t", 0): 109}, now=6)
    assert not delay.waits(begin, {("t", 0): 110}, now=7)
    assert delay.waits(begin, {("t", 0): 101}, now=66.9)
    assert not delay.waits(begin, {("t", 0): 101}, now=67)
    assert delay.waits(begin, {("t", 0): 101}, now=68)


def test_positions_come_back_from_the_checkpoint():
    positions = Positions({("a", 1): 5, ("a", 0): 7, ("b", 10): 0}, {"a": "0" * 32}, False, {("a", 0): 1})
    text = positions.to_json()
    assert positions_of(text) == positions
    assert text["offsets"] == {"a": {"0": 7, "1": 5}, "b": {"10": 0}}
    assert positions_of(Positions({}, initial=True).to_json()) == Positions({}, initial=True)


def test_a_checkpoint_of_sparks_own_source_can_be_read():
    assert positions_of({"kafkapy": {"0": 5}, "b": {"1": 2}}) == Positions({("kafkapy", 0): 5, ("b", 1): 2})


@pytest.mark.parametrize(
    "text", [None, 5, [1], {"offset": 3}, {"kafkapy": 1}, {"kafkapy": 1, "offsets": {"a": {"x": 1}}}]
)
def test_the_error_names_the_checkpoint_of_another_query(text):
    with pytest.raises(BadCheckpoint, match="choose another checkpointLocation"):
        positions_of(text)


def test_the_checkpoint_of_a_newer_version_is_refused():
    with pytest.raises(BadCheckpoint, match="newer kafkapy"):
        positions_of({"kafkapy": 2, "offsets": {}})
