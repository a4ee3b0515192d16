"""Clusters of several kafkapy brokers: the controller handles brokers, topics and replicas that come and go."""

import errno
import json
from functools import partial
from typing import Any

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.failures import Shortage
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.topic_nodes import decode_topic, encode_topic
from kafkapy.metadata.tree import Create, Set, Tree
from kafkapy.protocol import apis
from kafkapy.server.broker import BrokerServer
from tests.harness.records import consume, produce
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.harness.zookeeper import ZooKeeper
from tests.zookeeper.conftest import Start

QUICK = {
    "zookeeper_session_timeout_ms": "20000",
    "replica_fetch_backoff_ms": "100",
    "controlled_shutdown_retry_backoff_ms": "100",
    "offsets_topic_num_partitions": "2",
    "log_initial_task_delay_ms": "100",
}


class Brokers:
    """Brokers 1, 2 and 3, of which one is the controller."""

    def __init__(self, start: Start, tree: Tree) -> None:
        self.start: Any = partial(start, **QUICK)
        self.tree = tree
        self.running: dict[int, BrokerServer] = {}
        for broker_id in (1, 2, 3):
            self.begin(broker_id)

    def begin(self, broker_id: int) -> None:
        self.running[broker_id] = self.start(broker_id)
        count = len(self.running)
        eventually(lambda: all(len(one.services.cache.live_brokers()) == count for one in self.running.values()))

    def end(self, broker_id: int) -> None:
        self.running.pop(broker_id).stop()
        eventually(lambda: all(not one.services.cache.is_alive(broker_id) for one in self.running.values()))

    @property
    def controller(self) -> BrokerServer:
        (found,) = [one for one in self.running.values() if one.services.is_controller]
        return found

    def create(self, name: str, assignment: dict[int, list[int]], **settings: str) -> None:
        self.controller.services.controller.create(name, by_hand=assignment, overrides=settings)
        eventually(lambda: all(one.services.cache.leader(name, 0) for one in self.running.values()))

    def leader(self, name: str, index: int = 0) -> Any:
        """Return the partition's leader in the metadata caches of all brokers, None while they differ."""
        found = {one.services.cache.leader(name, index) for one in self.running.values()}
        return found.pop() if len(found) == 1 else None

    def wait_until_known(self, name: str, index: int = 0, **wanted: Any) -> None:
        """Wait until all brokers know the same leader of the partition, with these values of its fields."""

        def known() -> bool:
            found = self.leader(name, index)
            return found is not None and all(getattr(found, field) == value for field, value in wanted.items())

        eventually(known, what=lambda: f"{name}-{index} is {self.leader(name, index)}, not {wanted}")

    def state(self, name: str, index: int = 0) -> Any:
        """Return the partition's state in the test's own tree, which may learn of a change later than the brokers."""
        path = f"/brokers/topics/{name}/partitions/{index}/state"
        eventually(lambda: self.tree.exists(path))
        return json.loads(self.tree.get(path).data)

    def wait_for(self, name: str, leader: int, isr: list[int], index: int = 0) -> None:
        def agreed() -> bool:
            known = self.leader(name, index)
            return known is not None and (known.id, sorted(known.isr)) == (leader, isr)

        def stored() -> bool:
            state = self.state(name, index)
            return (state["leader"], sorted(state["isr"])) == (leader, isr)

        eventually(agreed, seconds=30)
        eventually(stored)

    def ask(self, api: Any, version: int, message: Any) -> Any:
        with Wire(self.controller.bootstrap_servers) as wire:
            return wire.call(api, version, message)


@pytest.fixture
def brokers(start: Start, tree: Tree) -> Brokers:
    return Brokers(start, tree)


def test_leadership_moves_when_a_broker_stops_and_returns_by_a_preferred_election(brokers: Brokers) -> None:
    brokers.create("t", {0: [2, 3], 1: [2, 1], 2: [1, 2]}, **{"min.insync.replicas": "1"})
    produce(brokers.controller.bootstrap_servers, "t", ["a"])
    epoch = brokers.state("t")["leader_epoch"]
    brokers.end(2)
    brokers.wait_for("t", 3, [3])
    brokers.wait_for("t", 1, [1], index=1)
    brokers.wait_for("t", 1, [1], index=2)
    assert brokers.state("t")["leader_epoch"] == epoch + 1  # a controlled shutdown changes the leader once
    produce(brokers.controller.bootstrap_servers, "t", ["b"])
    brokers.begin(2)
    brokers.wait_for("t", 3, [2, 3])
    make = apis.ELECT_LEADERS.Request
    asked = make(topic_partitions=[make.TopicPartitions(topic="t", partitions=[0, 1, 2, 7])], timeout_ms=30_000)
    brokers.wait_for("t", 1, [1, 2], index=1)
    (topic,) = brokers.ask(apis.ELECT_LEADERS, 2, asked).replica_election_results
    assert [one.error_code for one in topic.partition_result] == [
        Errors.NONE,
        Errors.NONE,
        Errors.ELECTION_NOT_NEEDED,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    brokers.wait_for("t", 2, [2, 3])
    assert sorted(consume(brokers.controller.bootstrap_servers, "t", "g", 2)) == ["a", "b"]


def test_every_broker_knows_a_topic_when_its_creation_has_ended(brokers: Brokers) -> None:
    """When its deletion has ended, no broker knows the topic."""
    controller = brokers.controller.services.controller
    for name in map("t{}".format, range(20)):
        controller.create(name, by_hand={0: [1, 2], 1: [3, 2]})
        controller.add_partitions(name, 3, None, validate_only=False)
        for one in brokers.running.values():
            assert all(one.services.cache.leader(name, index) for index in range(3))
        controller.delete(name)
        for one in brokers.running.values():
            assert one.services.cache.leader(name, 0) is None


def test_another_broker_takes_over_when_the_controller_stops(brokers: Brokers) -> None:
    brokers.create("t", {0: [1, 2, 3]})
    before = brokers.controller.services.broker_id
    epoch = int(brokers.tree.get("/controller_epoch").data)
    brokers.end(before)
    eventually(lambda: sum(one.services.is_controller for one in brokers.running.values()) == 1)
    eventually(lambda: int(brokers.tree.get("/controller_epoch").data) == epoch + 1)
    left = sorted(brokers.running)
    brokers.wait_for("t", left[0], left)
    brokers.create("after", {0: [left[0]]})
    brokers.begin(before)
    brokers.wait_for("t", left[0], [1, 2, 3])


def test_a_partition_moves_with_its_records_and_its_old_log_is_deleted(brokers: Brokers) -> None:
    brokers.create("t", {0: [1, 2]})
    produce(brokers.controller.bootstrap_servers, "t", [str(number) for number in range(50)])
    make = apis.ALTER_PARTITION_REASSIGNMENTS.Request
    part = make.Topics.Partitions(partition_index=0, replicas=[3, 2])
    answer = brokers.ask(apis.ALTER_PARTITION_REASSIGNMENTS, 0, make(topics=[make.Topics(name="t", partitions=[part])]))
    assert answer.responses[0].partitions[0].error_code == Errors.NONE
    brokers.wait_for("t", 3, [2, 3])
    brokers.wait_until_known("t", replicas=(3, 2))
    eventually(lambda: brokers.running[1].services.log_manager.get("t", 0) is None)

    def is_complete() -> bool:
        topic = json.loads(brokers.tree.get("/brokers/topics/t").data)
        return (topic["partitions"], topic["adding_replicas"], topic["removing_replicas"]) == ({"0": [3, 2]}, {}, {})

    eventually(is_complete)
    listed = brokers.ask(apis.LIST_PARTITION_REASSIGNMENTS, 0, apis.LIST_PARTITION_REASSIGNMENTS.Request(topics=None))
    assert listed.topics == []
    assert len(consume(brokers.controller.bootstrap_servers, "t", "g", 50)) == 50


def test_a_move_to_a_broker_that_stops_continues_when_it_is_back_and_can_be_cancelled(brokers: Brokers) -> None:
    controller = brokers.controller.services.broker_id
    away = next(one for one in (3, 2) if one != controller)
    stays = next(one for one in (1, 2, 3) if one not in (away, controller))
    brokers.create("t", {0: [controller]})
    brokers.create("u", {0: [controller]})
    services = brokers.controller.services
    # Without fetches of the new replica, the move stays in progress until the broker has started again.
    brokers.running[away].services.replicas.on_followed = lambda partition: None
    for name in ("t", "u"):
        services.controller.reassign(name, 0, [away])
    brokers.end(away)
    assert services.topics.get("t").moves[0].adding == [away]
    services.controller.reassign("u", 0, None)
    assert services.topics.get("u").assignment == {0: [controller]}
    with pytest.raises(KafkaError) as raised:
        services.controller.reassign("u", 0, None)
    assert raised.value.code == Errors.NO_REASSIGNMENT_IN_PROGRESS
    with pytest.raises(KafkaError, match="are not live") as raised:
        services.controller.reassign("u", 0, [away])
    assert raised.value.code == Errors.INVALID_REPLICA_ASSIGNMENT
    brokers.begin(away)
    brokers.wait_for("t", away, [away])
    brokers.wait_for("u", controller, [controller])
    assert brokers.running[stays].services.log_manager.get("t", 0) is None


def test_a_topic_is_deleted_on_a_broker_that_was_away_when_it_is_back(brokers: Brokers) -> None:
    controller = brokers.controller.services.broker_id
    away = next(one for one in (1, 2, 3) if one != controller)
    brokers.create("t", {0: [controller, away]})
    directory = brokers.running[away].services.log_manager.get("t", 0).dir
    brokers.end(away)
    brokers.controller.services.controller.delete("t")
    eventually(lambda: all("t" not in one.services.cache for one in brokers.running.values()))
    eventually(lambda: brokers.tree.exists("/admin/delete_topics/t"))
    assert brokers.tree.exists("/brokers/topics/t")
    assert directory.exists()
    with pytest.raises(KafkaError) as raised:
        brokers.controller.services.controller.create("t")
    assert raised.value.code == Errors.TOPIC_ALREADY_EXISTS
    brokers.begin(away)
    eventually(lambda: not brokers.tree.exists("/brokers/topics/t"))
    eventually(lambda: not directory.exists())
    brokers.create("t", {0: [away, controller]})


def test_topics_written_by_other_brokers_and_old_tools_get_leaders_and_keep_their_ids(brokers: Brokers) -> None:
    tree = brokers.tree
    tree.commit([Create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[2,3],"1":[3,1]}}')])
    brokers.wait_for("old", 2, [2, 3])
    brokers.wait_for("old", 3, [1, 3], index=1)
    topic = decode_topic("old", tree.get("/brokers/topics/old").data)
    assert topic.id != ZERO_ID
    # A tool that does not know topic ids drops the id when it adds a partition (KAFKA-14190).
    grown = topic._replace(assignment={**topic.assignment, 2: [1, 2]}, id=ZERO_ID)
    tree.commit([Set("/brokers/topics/old", encode_topic(grown))])
    brokers.wait_for("old", 1, [1, 2], index=2)
    eventually(lambda: decode_topic("old", tree.get("/brokers/topics/old").data).id == topic.id)
    assert all(one.services.cache.topic_id("old") == topic.id for one in brokers.running.values())


def test_settings_of_a_topic_that_are_changed_through_several_brokers_in_turn_are_all_kept(brokers: Brokers) -> None:
    brokers.create("t", {0: [1, 2]})
    names = {1: "retention.ms", 2: "segment.ms", 3: "flush.ms"}
    wanted: dict[str, str] = {}
    for number in range(30):
        asked = number % 3 + 1
        change = {names[asked]: str(1_000_000 + number)}
        services = brokers.running[asked].services
        services.topic_settings.alter("t", lambda now, change=change: {**now, **change}, validate_only=False)
        wanted |= change
        assert services.configs.topic("t") == wanted


def test_a_leader_is_elected_from_outside_the_isr_only_if_that_is_allowed(brokers: Brokers) -> None:
    controller = brokers.controller.services.broker_id
    first, second = (one for one in (1, 2, 3) if one != controller)
    brokers.create("t", {0: [first, second]})
    brokers.create("u", {0: [first, second]})
    brokers.end(second)
    for name in ("t", "u"):
        brokers.wait_for(name, first, [first])
    brokers.end(first)
    brokers.begin(second)
    for name in ("t", "u"):
        brokers.wait_for(name, -1, [first])
    services = brokers.controller.services
    services.topic_settings.alter(
        "u", lambda old: {**old, "unclean.leader.election.enable": "true"}, validate_only=False
    )
    brokers.wait_for("u", second, [second])
    assert brokers.state("u").get("leader_recovery_state", 0) == 1
    brokers.wait_until_known("t", id=-1)
    assert services.controller.elect(1, [("t", 0)]) == {("t", 0): None}
    brokers.wait_for("t", second, [second])


def test_a_failed_log_directory_costs_its_broker_the_leadership(brokers: Brokers, tmp_path: Any) -> None:
    controller = brokers.controller.services.broker_id
    loses, other = (one for one in (1, 2, 3) if one != controller)
    brokers.end(loses)
    directories = f"{tmp_path / str(loses)},{tmp_path / 'second'}"
    brokers.running[loses] = brokers.start(loses, log_dirs=directories)
    eventually(lambda: all(len(one.services.cache.live_brokers()) == 3 for one in brokers.running.values()))
    brokers.create("t", {index: [loses, other] for index in range(4)})
    logs = brokers.running[loses].services.log_manager
    failed = {index for index in range(4) if logs.get("t", index).dir.parent.name == "second"}
    assert 0 < len(failed) < 4
    logs.get("t", min(failed)).env.failed("writing", OSError("the disk is broken"))
    for index in range(4):
        if index in failed:
            brokers.wait_for("t", other, [other], index)
        else:
            brokers.wait_for("t", loses, sorted((loses, other)), index)
    brokers.wait_until_known("t", min(failed), offline=(loses,))
    eventually(lambda: not brokers.tree.children("/log_dir_event_notification"))


@pytest.mark.parametrize("first", [1, 2])
def test_a_broker_forgets_the_topics_that_were_deleted_while_its_session_had_expired(
    start: Start, tree: Tree, zookeeper: ZooKeeper, connect: str, caplog: pytest.LogCaptureFixture, first: int
) -> None:
    """Broker 2, the controller or not, loses ZooKeeper, so that no controller tells it of deletions."""
    proxy = TcpProxy(zookeeper.port)
    places = {1: connect, 2: f"{proxy.address}/{connect.partition('/')[2]}"}
    running = {broker_id: start(broker_id, places[broker_id]) for broker_id in (first, 3 - first)}
    caches = {broker_id: server.services.cache for broker_id, server in running.items()}
    try:
        eventually(lambda: all(len(cache.live_brokers()) == 2 for cache in caches.values()))
        controller = running[first].services.controller
        for name, partitions in (("gone", 1), ("smaller", 2), ("kept", 1)):
            controller.create(name, by_hand={index: [1] for index in range(partitions)})
        assert set(caches[2].names()) == {"gone", "smaller", "kept"}
        proxy.cut()
        eventually(lambda: not tree.exists("/brokers/ids/2") and running[1].services.is_controller)
        controller = running[1].services.controller
        eventually(lambda: running[1].services.topics._fence.is_held)
        controller.delete("gone")
        controller.delete("smaller")
        controller.create("smaller", by_hand={0: [1]})
        assert "gone" in caches[2]
        proxy.mend()
        eventually(lambda: tree.exists("/brokers/ids/2"))
        eventually(lambda: set(caches[2].names()) == {"smaller", "kept"})
        eventually(lambda: list(caches[2].indexes("smaller")) == [0])
        assert caches[2].topic_id("smaller") == caches[1].topic_id("smaller")
        assert "though the topic was not" not in caplog.text
    finally:
        running[2].stop()
        proxy.close()


def test_a_leader_whose_disk_is_full_gives_way_and_follows_when_there_is_room(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = brokers.controller.services.broker_id
    short, other = (one for one in (1, 2, 3) if one != controller)
    logs = brokers.running[short].services.log_manager

    def full(*_args: Any, **_settings: Any) -> None:
        raise Shortage("creating a log", OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(logs, "create", full)
    brokers.create("t", {0: [short, other], 1: [other, short]})
    for index in (0, 1):
        brokers.wait_until_known("t", index, id=other)
    produce(brokers.controller.bootstrap_servers, "t", ["a"], acks="1")  # the follower without space joins the ISR
    monkeypatch.undo()
    for index in (0, 1):
        brokers.wait_for("t", other, sorted((short, other)), index)
    brokers.wait_until_known("t", offline=())
    assert brokers.controller.services.controller.elect(0, [("t", 0)]) == {("t", 0): None}
    brokers.wait_for("t", short, sorted((short, other)))
