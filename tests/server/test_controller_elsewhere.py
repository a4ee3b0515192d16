"""Requests of clients to a broker while another broker is the controller."""

import json

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cache import Leader, LiveBroker, MetadataCache, TopicUpdate
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Create, TreeUnreachable
from kafkapy.server.controller_elsewhere import ControllerElsewhere


def check(settings):
    if "bad" in settings.values():
        raise KafkaError(Errors.INVALID_CONFIG, "bad")


@pytest.fixture
def tree(tmp_path):
    tree = LocalTree(tmp_path / FILE_NAME)
    ClusterRegistry(tree)
    yield tree
    tree.close()


@pytest.fixture
def cache():
    cache = MetadataCache()
    cache.set_brokers(7, [LiveBroker(1, {}), LiveBroker(7, {}), LiveBroker(9, {})])
    return cache


@pytest.fixture
def controller(tree, cache):
    return ControllerElsewhere(
        tree,
        cache,
        check_settings=check,
        default_partitions=lambda: 3,
        default_replication=lambda: 2,
        allocate_producer_ids=lambda done: done(range(5, 6)),
    )


def value(tree, path):
    return json.loads(tree.get(path).data)


def test_the_nodes_of_a_topic_are_those_that_kafka_writes_before_its_controller_sees_them(tree, controller):
    controller.create_on_demand("t", partitions=4, overrides={"segment.bytes": "4096"})
    assert value(tree, "/config/topics/t") == {"version": 1, "config": {"segment.bytes": "4096"}}
    topic = value(tree, "/brokers/topics/t")
    assert len(topic.pop("topic_id")) == 22
    assignment = topic.pop("partitions")
    assert topic == {"adding_replicas": {}, "removing_replicas": {}, "version": 3}
    assert sorted(assignment) == ["0", "1", "2", "3"]
    assert all(len(set(replicas)) == 2 and set(replicas) <= {1, 7, 9} for replicas in assignment.values())
    assert not tree.children("/brokers/topics/t")


def test_topics_of_a_metadata_request_have_no_leaders_yet(tree, cache, controller):
    cache.store([TopicUpdate("known", bytes(16), {0: Leader(7, 0, (7,), (7,))})])
    errors = controller.auto_create(["new", "known", "bad name"])
    codes = {name: error.code for name, error in errors.items()}
    not_yet = Errors.LEADER_NOT_AVAILABLE
    assert codes == {"new": not_yet, "known": not_yet, "bad name": Errors.INVALID_TOPIC_EXCEPTION}
    assert len(value(tree, "/brokers/topics/new")["partitions"]) == 3
    assert tree.children("/brokers/topics") == ["new"]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"name": "t"}, Errors.TOPIC_ALREADY_EXISTS),
        ({"name": "marked"}, Errors.TOPIC_ALREADY_EXISTS),
        ({"name": "a.b"}, Errors.INVALID_TOPIC_EXCEPTION),
        ({"name": "n", "replication": 4}, Errors.INVALID_REPLICATION_FACTOR),
        ({"name": "n", "partitions": 0}, Errors.INVALID_PARTITIONS),
        ({"name": "n", "overrides": {"segment.bytes": "bad"}}, Errors.INVALID_CONFIG),
    ],
)
def test_topics_that_must_not_be_made_are_refused(tree, controller, settings, code):
    controller.create_on_demand("t")
    tree.commit([Create("/brokers/topics/a_b"), Create("/admin/delete_topics/marked")])
    with pytest.raises(KafkaError) as caught:
        controller.create_on_demand(**settings)
    assert caught.value.code == code
    assert tree.children("/brokers/topics") == ["a_b", "t"]


def test_settings_that_are_left_from_an_earlier_topic_are_replaced(tree, controller):
    tree.commit([Create("/config/topics/t", b"old")])
    controller.create_on_demand("t")
    assert value(tree, "/config/topics/t") == {"version": 1, "config": {}}


def test_a_topic_that_cannot_be_written_has_no_leader_yet_for_clients(tree, controller, monkeypatch):
    def unreachable(operations):
        raise TreeUnreachable("/", "ZooKeeper does not answer")

    monkeypatch.setattr(tree, "commit", unreachable)
    assert controller.auto_create(["t"])["t"].code == Errors.LEADER_NOT_AVAILABLE


def test_what_only_the_controller_does_is_refused(controller):
    calls = [
        controller.check_active,
        lambda: controller.create("t"),
        lambda: controller.add_partitions("t", 3, None, validate_only=True),
        lambda: controller.delete("t"),
        lambda: controller.reassign("t", 0, [1]),
        lambda: controller.elect(0, [("t", 0)]),
    ]
    for call in calls:
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code == Errors.NOT_CONTROLLER


def test_producer_ids_come_from_the_controller(controller):
    given = []
    controller.allocate_producer_ids(1, given.append)
    assert given == [range(5, 6)]
