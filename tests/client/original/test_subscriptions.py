"""Registrations of both layouts are read and written as by Kafka's consumers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.client.original.filters import Blacklist, TopicFilter, Whitelist
from kafkapy.client.original.znodes.layouts import Layout, layout_of_broker, partitions_07, partitions_in
from kafkapy.client.original.znodes.subscriptions import Subscription, read_subscription
from kafkapy.errors import KafkaError

from .golden_tree import znodes

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True).filter(lambda name: name not in (".", ".."))
SUBSCRIPTIONS = st.one_of(
    st.dictionaries(TOPICS, st.integers(1, 99), min_size=1).map(Subscription),
    st.builds(
        lambda kind, regex, streams: Subscription({}, kind(regex), streams),
        st.sampled_from([Whitelist, Blacklist]),
        st.sampled_from([".*", "a|b", r"t\d+", '"quoted,list"', "ä.*"]),
        st.integers(1, 99),
    ),
)


@given(SUBSCRIPTIONS, st.sampled_from(Layout))
def test_a_written_subscription_is_read_back(subscription: Subscription, layout: Layout) -> None:
    assert read_subscription(subscription.written(layout, 7)) == subscription


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_data_that_is_no_subscription_is_refused_with_a_clear_error(data: bytes) -> None:
    message = ""
    try:
        read_subscription(data)
    except ValueError as error:
        message = str(error)
    assert not message or "subscription" in message or "regular expression" in message


@pytest.mark.parametrize(
    ("version", "path", "subscription"),
    [
        ("0.7.2", "group-a/ids/group-a_one", Subscription({"two-partitions": 1})),
        ("0.7.2", "group-white/ids/group-white_three", Subscription({}, Whitelist("(gzip|none)"), 2)),
        ("0.8.2.2", "zk-group/ids/zk-group_two", Subscription({"v0-four": 2})),
        ("0.8.2.2", "zk-white/ids/zk-white_white", Subscription({}, Whitelist("v0-(four|consumed)"), 1)),
    ],
)
def test_the_znodes_of_scala_consumers(version: str, path: str, subscription: Subscription) -> None:
    data = znodes(version)[f"/consumers/{path}"]
    found = read_subscription(data)
    assert found == subscription
    timestamp = int(data.split(b'"timestamp":"')[1].split(b'"')[0]) if version != "0.7.2" else 0
    layout = Layout.V07 if version == "0.7.2" else Layout.V08
    assert found.written(layout, timestamp) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"t": 0}',
        b'{"t": "1"}',
        b'{"t": true}',
        b'{"version":1,"pattern":"static"}',
        b'{"version":1,"subscription":{"t":1}}',
        b'{"version":1,"subscription":{"(":1},"pattern":"white_list"}',
        b"*0*.*",
        b'{"..": 1}',
        b'{"a/b": 1}',
        b'{"version":1,"subscription":{"a\\u0000":1},"pattern":"static"}',
    ],
)
def test_broken_registrations(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"subscription|regular expression"):
        read_subscription(data)


@pytest.mark.parametrize(
    ("one", "allowed", "filtered"),
    [
        (Whitelist("a,b"), ["a", "b"], ["ab", "c", ""]),
        (Whitelist(' "a.*" '), ["a", "abc"], ["ba"]),
        (Blacklist("a|b.*"), ["c", "ab"], ["a", "b", "bc"]),
        (Blacklist("x"), ["y"], ["__consumer_offsets"]),
    ],
)
def test_filters(one: TopicFilter, allowed: list[str], filtered: list[str]) -> None:
    assert [topic for topic in allowed + filtered if one.allows(topic)] == allowed


def test_internal_topics_come_when_asked_for() -> None:
    assert Whitelist(".*").allows("__consumer_offsets", exclude_internal=False)


def test_a_filter_that_is_no_expression_is_refused_with_it() -> None:
    with pytest.raises(ValueError, match=r"'a\(' is no regular expression"):
        Whitelist("a(")


def test_partitions_are_sorted_as_numbers_since_0_8_and_as_text_before() -> None:
    assert partitions_in("/t", b'{"version":1,"partitions":{"10":[1],"2":[1],"0":[1]}}') == ["0", "2", "10"]
    assert partitions_07("/t", {"2": b"1", "10": b"11"})[:4] == ["10-0", "10-1", "10-10", "10-2"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"partitions":{"x":[1]}}',
        b"[1]",
        b'{"partitions":null}',
        b'{"partitions":{"-1":[1]}}',
        b'{"partitions":{"2147483648":[1]}}',
    ],
)
def test_a_topic_whose_znode_is_broken_is_named(data: bytes) -> None:
    with pytest.raises(KafkaError, match="/brokers/topics/t in ZooKeeper has"):
        partitions_in("/brokers/topics/t", data)
    with pytest.raises(KafkaError, match="/brokers/topics/t/1 in ZooKeeper has b'x'"):
        partitions_07("/brokers/topics/t", {"1": b"x"})


def test_the_registration_of_a_broker_shows_the_layout() -> None:
    assert layout_of_broker(znodes("0.7.2")["/brokers/ids/8"]) is Layout.V07
    assert layout_of_broker(znodes("0.8.2.2")["/brokers/ids/4"]) is Layout.V08
