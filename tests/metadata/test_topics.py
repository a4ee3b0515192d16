"""Topics in the metadata tree: creation, added partitions, deletion and states, as nodes that Kafka can read."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.controller_fence import ControllerFence, Term
from kafkapy.metadata.ids import ZERO_ID, encode_id
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.topic_nodes import Move, decode_topic, encode_topic
from kafkapy.metadata.topics import PartitionState, Topic, TopicRegistry
from kafkapy.metadata.tree import Create, Set, wait


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LocalTree]:
    tree = LocalTree(tmp_path / FILE_NAME)
    ClusterRegistry(tree)
    yield tree
    tree.close()


@pytest.fixture
def topics(tree: LocalTree) -> TopicRegistry:
    return TopicRegistry(tree)


def make(topics: TopicRegistry, name: str, partitions: int = 1) -> Topic:
    topic: Topic = wait(topics.create, name, {partition: [0] for partition in range(partitions)}, {})
    return topic


def test_a_topic_has_kafkas_nodes(tree: LocalTree) -> None:
    fence = ControllerFence(tree)
    tree.commit([Create(paths.CONTROLLER_EPOCH, b"4")])
    fence.set_term(Term(4, 0))
    topic = wait(TopicRegistry(tree, fence=fence).create, "t", {0: [0], 1: [0]}, {"retention.ms": "5"})
    assert json.loads(tree.get("/brokers/topics/t").data) == {
        "version": 3,
        "partitions": {"0": [0], "1": [0]},
        "topic_id": encode_id(topic.id),
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert json.loads(tree.get("/brokers/topics/t/partitions/1/state").data) == {
        "version": 1,
        "leader": 0,
        "leader_epoch": 0,
        "controller_epoch": 4,
        "isr": [0],
    }
    assert json.loads(tree.get("/config/topics/t").data) == {"version": 1, "config": {"retention.ms": "5"}}


def test_a_topic_is_found_by_name_and_id_now_and_after_a_restart(tree: LocalTree, topics: TopicRegistry) -> None:
    topic = make(topics, "t", 12)
    for registry in (topics, TopicRegistry(tree)):
        assert "t" in registry
        assert registry.names() == ["t"]
        assert len(registry) == 1
        assert registry.get("t") == topic
        assert registry.by_id(topic.id) == topic
        assert registry.name_of(topic.id) == "t"
        assert list(topic.assignment) == list(range(12))
    assert topics.get("no") is None
    assert topics.by_id(b"x" * 16) is None
    assert topics.name_of(ZERO_ID) is None


def test_the_name_of_a_new_topic_is_checked(topics: TopicRegistry) -> None:
    make(topics, "a.b")
    for name, code in [
        ("a.b", Errors.TOPIC_ALREADY_EXISTS),
        ("a_b", Errors.INVALID_TOPIC_EXCEPTION),
        ("a/b", Errors.INVALID_TOPIC_EXCEPTION),
    ]:
        with pytest.raises(KafkaError) as caught:
            topics.check_new(name)
        assert caught.value.code == code
    topics.check_new("a..b")


def test_of_two_concurrent_creations_one_is_refused(topics: TopicRegistry) -> None:
    outcomes: list[object] = []
    topics.create("t", {0: [0]}, {}, lambda topic, error: outcomes.append(error))
    with pytest.raises(KafkaError) as caught:
        make(topics, "t", 5)
    assert caught.value.code == Errors.TOPIC_ALREADY_EXISTS
    assert outcomes == [None]
    assert topics.get("t").assignment == {0: [0]}  # type: ignore[union-attr]


def test_partitions_are_added_to_the_topic_as_it_was_planned(tree: LocalTree, topics: TopicRegistry) -> None:
    first = make(topics, "t")
    grown = wait(topics.add_partitions, first, {1: [0], 2: [0]})
    assert grown.assignment == {0: [0], 1: [0], 2: [0]}
    assert grown.id == first.id
    assert topics.get("t") == TopicRegistry(tree).get("t") == grown
    assert topics.state("t", 2) == PartitionState(0, 0, [0], 1)
    with pytest.raises(KafkaError) as caught:
        wait(topics.add_partitions, first, {1: [0]})
    assert caught.value.code == Errors.NOT_CONTROLLER
    assert "changed at the same time; try again" in caught.value.message
    with pytest.raises(KafkaError) as caught:
        wait(topics.add_partitions, Topic("no", ZERO_ID, {0: [0]}), {1: [0]})
    assert caught.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_deletion_takes_two_steps_and_survives_a_restart_between_them(tree: LocalTree, topics: TopicRegistry) -> None:
    topic = make(topics, "t", 3)
    assert wait(topics.mark_deleted, "t") == topic
    assert wait(topics.mark_deleted, "t") == topic
    for registry in (topics, TopicRegistry(tree)):
        assert "t" not in registry
        assert registry.by_id(topic.id) is None
        assert registry.marked() == [topic]
        with pytest.raises(KafkaError) as caught:
            registry.check_new("t")
        assert caught.value.code == Errors.TOPIC_ALREADY_EXISTS
    wait(topics.remove, "t")
    assert topics.marked() == TopicRegistry(tree).marked() == []
    assert tree.children("/brokers/topics") == tree.children("/config/topics") == []
    assert tree.children("/admin/delete_topics") == []
    again = make(topics, "t")
    assert again.id != topic.id


def test_a_topic_is_known_at_every_moment_of_its_deletion(topics: TopicRegistry) -> None:
    """A thread that saw the mark of a topic, and found the topic neither present nor marked, would remove the mark, and
    the topic's node would stay for ever."""
    make(topics, "t")
    known: list[bool] = []

    class Watched(dict[str, Topic]):
        def pop(self, *arguments: Any) -> Any:
            found = super().pop(*arguments)
            known.append("t" in topics or topics.marked_topic("t") is not None)
            return found

    topics._by_name = Watched(topics._by_name)
    wait(topics.mark_deleted, "t")
    assert known == [True]


def test_deleting_an_unknown_topic_is_refused(topics: TopicRegistry) -> None:
    for call in (topics.mark_deleted, topics.remove):
        with pytest.raises(KafkaError) as caught:
            wait(call, "no")
        assert caught.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_partition_states_are_written_all_or_none(tree: LocalTree, topics: TopicRegistry) -> None:
    make(topics, "t", 2)
    new = PartitionState(0, 5, [0], 2)
    wait(topics.set_states, {("t", 0): new, ("t", 1): new})
    assert topics.state("t", 1) == new
    with pytest.raises(KafkaError):
        wait(topics.set_states, {("t", 0): PartitionState(0, 6, [0], 2), ("t", 9): new})
    assert topics.state("t", 0) == new
    assert topics.state("t", 9) is None


def test_a_topic_of_an_older_kafka_has_no_id(tree: LocalTree) -> None:
    data = b'{"version":1,"partitions":{"1":[0],"0":[0]}}'
    tree.commit([Create(paths.topic("old"), data), Create(paths.partitions("old"))])
    topics = TopicRegistry(tree)
    assert topics.get("old") == Topic("old", ZERO_ID, {0: [0], 1: [0]})
    assert topics.by_id(ZERO_ID) is None
    wait(topics.add_partitions, topics.get("old"), {2: [0]})
    assert "topic_id" not in json.loads(tree.get(paths.topic("old")).data)


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"partitions":{"x":[0]}}', b'{"partitions":{},"topic_id":"?"}'])
def test_a_topic_that_cannot_be_read_is_named(tree: LocalTree, data: bytes) -> None:
    tree.commit([Create(paths.topic("bad"), data)])
    with pytest.raises(ValueError, match="/brokers/topics/bad"):
        TopicRegistry(tree)


def test_configurations_are_kept_by_topic_and_broker(tree: LocalTree, topics: TopicRegistry) -> None:
    configs = ConfigRegistry(tree)
    make(topics, "t")
    assert configs.topic("t") == configs.topic("no") == configs.broker(1) == configs.broker_default() == {}
    configs.alter_topic("t", lambda _: {"retention.ms": "1"})
    configs.alter_broker(1, lambda _: {"log.cleaner.threads": "2"})
    configs.alter_broker(1, lambda _: {"log.cleaner.threads": "3"})
    configs.alter_broker_default(lambda _: {"message.max.bytes": "9"})
    assert configs.topic("t") == {"retention.ms": "1"}
    assert configs.broker(1) == {"log.cleaner.threads": "3"}
    assert configs.broker_default() == {"message.max.bytes": "9"}
    assert tree.children("/config/brokers") == ["1", "<default>"]
    with pytest.raises(KafkaError) as caught:
        configs.alter_topic("no", lambda _: {})
    assert caught.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unreachable_tree_gives_a_retriable_error(tree: LocalTree, topics: TopicRegistry) -> None:
    make(topics, "t")
    tree.close()
    calls: list[tuple[Callable[..., None], tuple[Any, ...], int]] = [
        (topics.create, ("u", {0: [0]}, {}), Errors.NOT_CONTROLLER),
        (topics.mark_deleted, ("t",), Errors.NOT_CONTROLLER),
        (topics.remove, ("t",), Errors.NOT_CONTROLLER),
    ]
    for call, arguments, code in calls:
        with pytest.raises(KafkaError) as caught:
            wait(call, *arguments)
        assert caught.value.code == code
    with pytest.raises(KafkaError) as caught:
        ConfigRegistry(tree).alter_broker(1, lambda _: {})
    assert caught.value.code == Errors.REQUEST_TIMED_OUT


def test_a_change_that_cannot_be_stored_gives_a_final_error(tree: LocalTree, topics: TopicRegistry) -> None:
    tree._database.execute("PRAGMA max_page_count = 1")
    with pytest.raises(KafkaError) as caught:
        wait(topics.create, "t", {0: [0]}, {"large": "x" * 5_000_000})
    assert caught.value.code == Errors.UNKNOWN_SERVER_ERROR


def test_reads_do_not_see_a_change_that_is_not_durable(tree: LocalTree) -> None:
    tree.commit([Create("/x", b"1")])
    tree._database.execute("PRAGMA max_page_count = 1")
    outcomes: list[object] = []
    tree.submit([Set("/x", b"2" * 5_000_000)], lambda _, error: outcomes.append(error))
    tree.submit([], lambda _, error: None)
    while not outcomes:
        assert tree.get("/x").data == b"1"
    assert outcomes[0] is not None
    assert tree.get("/x").data == b"1"


@pytest.mark.parametrize("count", [0, 1, 500, 501, 3000])
def test_the_json_of_a_large_topic_is_that_of_a_small_one(count: int) -> None:
    topic = Topic("t", bytes(range(16)), {index: [index % 7, 8] for index in range(count)}, {0: Move([1], [2])})
    data = encode_topic(topic)
    value = json.loads(data)
    assert data == paths.to_json(value)
    assert list(value) == ["partitions", "topic_id", "adding_replicas", "removing_replicas", "version"]
    for text in (data, json.dumps(value, indent=3).encode(), json.dumps(dict(reversed(value.items()))).encode()):
        assert paths.from_json(text, "/t") == value
    if count:
        assert decode_topic("t", data) == topic


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'],"1500"', b']"1500"'),
        (b'"1500":[', b'"1500":{['),
        (b"}", b""),
        (b'"1500":[3', b'"1500":[x'),
        (b'"partitions":{', b'"partitions":{{'),
    ],
)
def test_broken_json_of_a_large_topic_is_refused(old: bytes, new: bytes) -> None:
    data = encode_topic(Topic("t", bytes(range(16)), {index: [3, 1] for index in range(3000)}))
    with pytest.raises(paths.Unreadable, match="/t is not JSON"):
        paths.from_json(data.replace(old, new, 1), "/t")


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(paths.Unreadable, match="/t is not JSON"):
        paths.from_json(b'{"a":' + b"[" * 100_000, "/t")
