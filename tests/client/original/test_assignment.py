"""Each partition has one owner, all members compute the same owner, and it is the one the Scala consumers chose."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.client.original.assignment import STRATEGIES, Assignment, Thread, range_assignment, round_robin_assignment
from kafkapy.client.original.znodes.layouts import Layout, layout_of_topic, partitions_07, partitions_in
from kafkapy.client.original.znodes.subscriptions import read_subscription
from tests.harness.examples import examples

from .golden_tree import children, znodes

TOPICS = st.sampled_from(["a", "b", "topic-c", "d.e"])
CONSUMERS = st.text(st.sampled_from("ab-_1\U00010000\uffff"), min_size=1, max_size=4)
STREAMS = st.dictionaries(CONSUMERS, st.dictionaries(TOPICS, st.integers(1, 12), max_size=4), min_size=1, max_size=6)
PARTITIONS = st.dictionaries(TOPICS, st.integers(0, 40).map(lambda n: list(map(str, range(n)))))


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=examples(150), deadline=None)
@given(streams=STREAMS, partitions=PARTITIONS, seed=st.integers(0, 1 << 30))
def test_every_partition_that_is_wanted_has_one_owner_and_all_members_compute_the_same(
    strategy: str, streams: dict[str, dict[str, int]], partitions: dict[str, list[str]], seed: int
) -> None:
    assign = STRATEGIES[strategy]
    found = assign(streams, partitions)
    wanted = {topic for its_streams in streams.values() for topic in its_streams}
    assert set(found) == {(topic, name) for topic in wanted for name in partitions.get(topic, ())}
    for (topic, _), thread in found.items():
        assert thread.number < streams[thread.consumer].get(topic, 0)
    # Another member reads the same znodes in another order.
    mixed = random.Random(seed).sample(list(streams.items()), len(streams))
    others = {consumer: dict(reversed(its_streams.items())) for consumer, its_streams in mixed}
    assert assign(others, dict(reversed(partitions.items()))) == found


@settings(max_examples=examples(100), deadline=None)
@given(streams=STREAMS, partitions=PARTITIONS)
def test_ranges_differ_by_one_at_most_and_are_neighbours(
    streams: dict[str, dict[str, int]], partitions: dict[str, list[str]]
) -> None:
    found = range_assignment(streams, partitions)
    for topic, names in partitions.items():
        threads = [Thread(consumer, n) for consumer, its in streams.items() for n in range(its.get(topic, 0))]
        owned = {thread: [int(name) for name in names if found[topic, name] == thread] for thread in threads}
        sizes = [len(one) for one in owned.values()]
        assert not sizes or max(sizes) - min(sizes) <= 1
        assert all(one == list(range(one[0], one[0] + len(one))) for one in owned.values() if one)


def test_threads_are_sorted_as_text() -> None:
    names = [str(number) for number in range(12)]
    found = range_assignment({"g_c": {"t": 12}}, {"t": names})
    assert [found["t", name].number for name in names] == [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]


def test_round_robin_goes_by_the_hash_codes_of_java() -> None:
    """[t,0] has the hash code 87540032, [two,0] -1702279768; the next partition of a topic has 31 more."""
    found = round_robin_assignment({"c": {"t": 2, "two": 2}}, {"t": ["0", "1", "2"], "two": ["0", "1"]})
    assert [found[one].number for one in [("two", "0"), ("two", "1"), ("t", "0"), ("t", "1"), ("t", "2")]] == [
        0,
        1,
        0,
        1,
        0,
    ]


def test_round_robin_passes_over_threads_that_do_not_want_the_topic() -> None:
    found = round_robin_assignment({"c1": {"t": 1}, "c2": {"u": 1}}, {"t": ["0", "1"], "u": ["0"]})
    assert found == {("t", "0"): Thread("c1", 0), ("t", "1"): Thread("c1", 0), ("u", "0"): Thread("c2", 0)}


@pytest.mark.parametrize("version", ["0.7.2", "0.8.2.2"])
def test_the_computed_assignment_is_what_the_scala_consumers_own(version: str) -> None:
    tree = znodes(version)
    topics = children(tree, "/brokers/topics")
    partitions = {}
    for topic in topics:
        path = f"/brokers/topics/{topic}"
        if layout_of_topic(tree[path]) is Layout.V08:
            partitions[topic] = partitions_in(path, tree[path])
        else:
            partitions[topic] = partitions_07(path, {one: tree[f"{path}/{one}"] for one in children(tree, path)})
    groups = children(tree, "/consumers")
    assert len(groups) >= 2
    for group in groups:
        ids = f"/consumers/{group}/ids"
        streams = {one: read_subscription(tree[f"{ids}/{one}"]).streams_of(topics) for one in children(tree, ids)}
        owners = f"/consumers/{group}/owners"
        seen: dict[tuple[str, str], str] = {
            (topic, name): tree[f"{owners}/{topic}/{name}"].decode()
            for topic in children(tree, owners)
            for name in children(tree, f"{owners}/{topic}")
        }
        computed: Assignment = range_assignment(streams, partitions)
        assert {one: str(thread) for one, thread in computed.items()} == seen, group
