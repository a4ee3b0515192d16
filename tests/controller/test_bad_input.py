"""Wrong data from other programs in the metadata tree, or in responses: the log names them, they are left unchanged,
and everything else continues."""

import json
from pathlib import Path

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.tree import Create, Set
from kafkapy.protocol import apis
from tests.controller.lab import Lab
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import start_broker

REFUSED = KafkaError(Errors.UNKNOWN_SERVER_ERROR, "the broker answers UNKNOWN_SERVER_ERROR")


def check_that_all_else_continues(lab: Lab) -> None:
    """Check that a topic can be created, led by another broker, and deleted."""
    lab.controller.create("else", by_hand={0: [1, 2]})
    lab.brokers_are(0, 2)
    assert lab.topics.state("else", 0).leader == 2
    lab.brokers_are(0, 1, 2)
    lab.controller.delete("else")
    lab.finish()
    assert not lab.tree.exists("/brokers/topics/else")


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"partitions":{"x":[0]}}', b'{"partitions":{"0":7}}', b"\xff"])
def test_a_topic_whose_node_is_broken_is_left_alone(lab: Lab, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    lab.controller.create("known", by_hand={0: [1, 2]})
    lab.follow_outside_changes()
    lab.tree.commit([Create("/brokers/topics/broken", data), Set("/brokers/topics/known", data)])
    for name in ("broken", "known"):
        eventually(lambda name=name: f"/brokers/topics/{name} is ignored: the metadata at" in caplog.text)
    assert "broken" not in lab.topics
    assert lab.tree.get("/brokers/topics/broken").data == lab.tree.get("/brokers/topics/known").data == data
    lab.brokers_are(0, 2)  # the known partition still gets a leader
    assert lab.topics.state("known", 0).leader == 2
    lab.brokers_are(0, 1, 2)
    check_that_all_else_continues(lab)


@pytest.mark.parametrize("replicas", [[], [1, 1], [-1, 1], ["1"], [None], [True, 2], [1.5]])
def test_a_topic_with_an_impossible_assignment_is_left_alone(
    lab: Lab, replicas: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    lab.follow_outside_changes()
    data = json.dumps({"version": 1, "partitions": {"0": [1], "1": replicas}}).encode()
    lab.tree.commit([Create("/brokers/topics/broken", data)])
    eventually(lambda: f"partition 1 has the replicas {replicas}" in caplog.text)
    assert "the metadata at /brokers/topics/broken is not a valid topic" in caplog.text
    assert "broken" not in lab.topics
    assert lab.tree.children("/brokers/topics/broken") == []
    check_that_all_else_continues(lab)


@pytest.mark.parametrize(("index", "said"), [("0", "removes all replicas, [1, 2]"), ("7", "topic: 7")])
def test_an_impossible_reassignment_in_a_topics_node_is_ignored(
    lab: Lab, index: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    lab.controller.create("t", by_hand={0: [1, 2]})
    lab.follow_outside_changes()
    node = json.loads(lab.tree.get("/brokers/topics/t").data) | {"removing_replicas": {index: [2, 1]}}
    lab.tree.commit([Set("/brokers/topics/t", json.dumps(node).encode())])
    eventually(lambda: said in caplog.text)
    assert lab.topics.get("t").assignment == {0: [1, 2]}
    assert lab.topics.state("t", 0).isr == [1, 2]
    check_that_all_else_continues(lab)


def test_a_topic_on_brokers_that_are_not_there_waits_for_them(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, since these brokers may start later."""
    lab.follow_outside_changes()
    data = json.dumps({"version": 1, "partitions": {"0": [7], "1": [8, 1]}}).encode()
    lab.tree.commit([Create("/brokers/topics/waits", data)])
    eventually(lambda: "waits-0 has no leader: " in caplog.text)
    eventually(lambda: "waits" in lab.topics and lab.topics.state("waits", 1) is not None)
    assert lab.topics.state("waits", 0) is None
    assert (lab.topics.state("waits", 1).leader, lab.topics.state("waits", 1).isr) == (1, [1])
    check_that_all_else_continues(lab)
    lab.controller.delete("waits")
    assert "waits" not in lab.topics


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"{}", b'{"leader":1,"leader_epoch":"x","isr":[1],"controller_epoch":1}']
)
def test_a_partition_whose_state_is_broken_is_left_alone(
    lab: Lab, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    lab.controller.create("t", by_hand={0: [1, 2], 1: [1, 2]})
    path = paths.partition_state("t", 0)
    lab.tree.commit([Set(path, data)])
    lab.brokers_are(0, 2)
    assert f"the metadata at {path}" in caplog.text
    assert lab.tree.get(path).data == data
    assert lab.topics.state("t", 1).leader == 2
    lab.controller.rebalance()
    assert lab.controller.elect(0, [("t", 0)])["t", 0].code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    lab.brokers_are(0, 1, 2)
    check_that_all_else_continues(lab)
    lab.controller.delete("t")
    lab.finish()
    assert not lab.tree.exists("/brokers/topics/t")


def test_a_state_from_a_later_controller_epoch_is_named_and_replaced(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """The tree accepts changes of this controller only, so the number in `/controller_epoch` has been set back. (Kafka
    would not elect a leader until the controller epoch is that high.)
    """
    lab.controller.create("t", by_hand={0: [1, 2]})
    state = lab.topics.state("t", 0)
    path = paths.partition_state("t", 0)
    value = json.loads(lab.tree.get(path).data) | {"controller_epoch": 99}
    lab.tree.commit([Set(path, json.dumps(value).encode())])
    lab.brokers_are(0, 2)
    assert f"the metadata at {path} has controller epoch 99, and this controller's is 1" in caplog.text
    after = lab.topics.state("t", 0)
    assert (after.leader, after.leader_epoch, after.controller_epoch) == (2, state.leader_epoch + 1, 1)


def test_a_topic_that_is_being_deleted_is_not_reassigned(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.follow_outside_changes()
    lab.controller.create("t", by_hand={0: [1, 2]})
    lab.brokers_are(0, 2)
    lab.controller.delete("t")
    assert [topic.name for topic in lab.topics.marked()] == ["t"]
    with pytest.raises(KafkaError) as raised:
        lab.controller.reassign("t", 0, [0, 2])
    assert raised.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    asked = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [0, 2]}]}
    lab.tree.commit([Create(paths.REASSIGNMENT, json.dumps(asked).encode())])
    eventually(lambda: not lab.tree.exists(paths.REASSIGNMENT))
    assert f"the reassignment of t-0 that {paths.REASSIGNMENT} requests is refused: " in caplog.text
    assert lab.brokers.roles[0] == {}
    lab.brokers_are(0, 1, 2)
    eventually(lambda: not lab.tree.exists("/brokers/topics/t"))
    check_that_all_else_continues(lab)


@pytest.mark.parametrize("path", [paths.PREFERRED_ELECTION, paths.REASSIGNMENT])
@pytest.mark.parametrize("data", [b"{", b"[]", b'{"partitions":7}', b'{"partitions":[{"topic":7,"partition":0}]}'])
def test_a_request_node_that_is_broken_is_named_and_deleted(
    lab: Lab, path: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    lab.follow_outside_changes()
    lab.tree.commit([Create(path, data)])
    eventually(lambda: not lab.tree.exists(path))
    assert path in caplog.text
    check_that_all_else_continues(lab)


@pytest.mark.parametrize("parent", [paths.ISR_CHANGES, paths.LOG_DIR_EVENTS])
@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"broker":"x","partitions":[7]}', b'{"broker":9}'])
def test_a_notification_that_is_broken_is_deleted(lab: Lab, parent: str, data: bytes) -> None:
    lab.follow_outside_changes()
    lab.tree.commit([Create(f"{parent}/note_0000000001", data)])
    eventually(lambda: not lab.tree.children(parent))
    check_that_all_else_continues(lab)


def test_a_broker_that_refuses_its_roles_holds_nothing_up(lab: Lab) -> None:
    lab.brokers.failures[1] = {("t", 0): REFUSED, ("else", 0): REFUSED}
    lab.controller.create("t", by_hand={0: [1, 2]})
    assert lab.brokers.caches[2].leader("t", 0).id == 1
    check_that_all_else_continues(lab)


def test_a_broker_that_does_not_respond_holds_nothing_up_but_its_own_deletions(lab: Lab) -> None:
    lab.brokers.silent.add(1)
    lab.controller.create("t", by_hand={0: [1, 2], 1: [2, 0]})
    lab.controller.create("u", by_hand={0: [2, 0]})
    lab.controller.reassign("u", 0, [2])
    lab.controller.delete("u")
    lab.controller.begin_deletion("t")
    lab.finish()
    assert not lab.tree.exists("/brokers/topics/u")
    assert lab.tree.exists("/brokers/topics/t")
    lab.brokers_are(0, 2)
    lab.brokers.silent.clear()
    lab.brokers_are(0, 1, 2)
    assert not lab.tree.exists("/brokers/topics/t")
    check_that_all_else_continues(lab)


@pytest.mark.not_quick
def test_requests_with_100_000_partitions_are_refused_partition_by_partition(tmp_path: Path) -> None:
    """Requests that create so many partitions are refused as a whole. In others, the topic's own partitions succeed."""
    count = 100_000
    server = start_broker(tmp_path, broker_id=0)
    try:
        with Wire(server.bootstrap_servers, 120) as wire:
            wire.create_topic("t", 2)
            topics = apis.CREATE_TOPICS.Request.Topics
            asked = topics(name="big", num_partitions=count, replication_factor=1)
            (big,) = wire.call(apis.CREATE_TOPICS, 7, topics=[asked]).topics
            assert big.error_code == Errors.POLICY_VIOLATION
            assert "100000 new partitions at once are too many" in big.error_message
            make = apis.CREATE_PARTITIONS.Request
            (grown,) = wire.call(apis.CREATE_PARTITIONS, 3, make(topics=[make.Topics(name="t", count=count)])).results
            assert grown.error_code == Errors.POLICY_VIOLATION
            make = apis.ELECT_LEADERS.Request
            asked = make.TopicPartitions(topic="t", partitions=list(range(count)))
            answer = wire.call(apis.ELECT_LEADERS, 2, make(election_type=1, topic_partitions=[asked]))
            codes = [one.error_code for one in answer.replica_election_results[0].partition_result]
            assert codes == [Errors.ELECTION_NOT_NEEDED] * 2 + [Errors.UNKNOWN_TOPIC_OR_PARTITION] * (count - 2)
            make = apis.ALTER_PARTITION_REASSIGNMENTS.Request
            parts = [make.Topics.Partitions(partition_index=index, replicas=[0]) for index in range(count)]
            asked = make(topics=[make.Topics(name="t", partitions=parts)])
            answer = wire.call(apis.ALTER_PARTITION_REASSIGNMENTS, 0, asked)
            codes = [one.error_code for one in answer.responses[0].partitions]
            assert codes == [Errors.NONE] * 2 + [Errors.UNKNOWN_TOPIC_OR_PARTITION] * (count - 2)
            wire.create_topic("else")
    finally:
        server.stop()
