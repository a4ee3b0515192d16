"""A former controller cannot change the tree. Clients retry, and its changes succeed when it is elected again."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.topics import PartitionState, TopicRegistry
from kafkapy.metadata.tree import Create, Delete, Set, Tree, TreeUnavailable, wait
from kafkapy.metadata.zookeeper import batches
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.waiting import eventually
from tests.harness.zookeeper import ZooKeeper
from tests.zookeeper.conftest import OpenTree, Start

EPOCH = "/controller_epoch"


ROUNDS = int(os.environ.get("KAFKAPY_FAULT_ROUNDS", "0"))


def value(tree: Tree, path: str) -> Any:
    return json.loads(tree.get(path).data)


def elected(tree: Tree, broker_id: int) -> tuple[TopicRegistry, ControllerFence]:
    """Elect a broker as controller. Return its topics and its fence."""
    cluster = ClusterRegistry(tree)
    fence = ControllerFence(tree)
    fence.set_term(cluster.become_controller(broker_id, 0))
    return TopicRegistry(tree, fence=fence), fence


def moves_on(tree: Tree) -> None:
    """Elect broker 7 as an Apache Kafka broker does: change /controller and /controller_epoch in one transaction."""
    number = tree.get(EPOCH)
    steps = [Set(EPOCH, b"%d" % (int(number.data) + 1), number.version)]
    controller = [Delete("/controller")] if tree.exists("/controller") else []
    creation = Create("/controller", b'{"version":2,"brokerid":7,"timestamp":"0","kraftControllerEpoch":-1}')
    tree.commit([*controller, creation, *steps])


def test_each_change_of_a_former_controller_fails_as_a_whole(tree: ZooKeeperTree, open_tree: OpenTree) -> None:
    """KAFKA-3083, like the tests with stand-ins in tests/controller/test_known_cases.py."""
    topics, fence = elected(tree, 1)
    topic = wait(topics.create, "t", {0: [1]}, {})
    moved = wait(topics.create, "moved", {0: [1]}, {})
    wait(topics.create, "doomed", {0: [1]}, {})
    wait(topics.mark_deleted, "doomed")
    tree.commit([Create("/isr_change_notification/n")])
    tree.commit([Create("/brokers/topics/outside", b'{"version":1,"partitions":{"0":[1]}}')])
    other = open_tree()
    eventually(lambda: other.exists("/brokers/topics/outside"))
    moves_on(other)
    before = {path: other.get(path) for path in other.subtree("/")}
    changes: list[Callable[[], object]] = [
        lambda: wait(topics.create, "new", {0: [1]}, {}),
        lambda: wait(topics.add_partitions, topic, {1: [1]}),
        lambda: wait(topics.reassign, moved, moved._replace(assignment={0: [1, 2]})),
        lambda: wait(topics.mark_deleted, "t"),
        lambda: wait(topics.remove, "doomed"),
        lambda: wait(topics.set_states, {("t", 0): PartitionState(1, 9, [1], 1)}),
        lambda: wait(topics.complete_topic, "outside"),
        lambda: fence.discard("/isr_change_notification/n"),
    ]
    for change in changes:
        with pytest.raises(KafkaError) as caught:
            change()
        assert caught.value.code == Errors.NOT_CONTROLLER
    assert {path: other.get(path) for path in other.subtree("/")} == before
    assert ClusterRegistry(tree).become_controller(1, 0) is None
    fence.set_term(None)
    with pytest.raises(KafkaError, match="no longer the controller"):
        wait(topics.create, "new", {0: [1]}, {})
    other.commit([Delete("/controller")])
    eventually(lambda: not tree.exists("/controller"))
    fence.set_term(ClusterRegistry(tree).become_controller(1, 0))
    assert fence.epoch == 3
    for change in changes:
        change()
    assert value(tree, "/brokers/topics/new/partitions/0/state")["controller_epoch"] == 3
    assert not tree.exists("/brokers/topics/doomed")


def test_a_change_sent_before_another_election_and_applied_after_it_fails(
    zookeeper: ZooKeeper, tree: ZooKeeperTree, open_tree: OpenTree, connect: str
) -> None:
    """The change waits for the connection while another broker is elected. The session does not expire."""
    proxy = TcpProxy(zookeeper.port)
    behind = open_tree(f"{proxy.address}/{connect.partition('/')[2]}", session_timeout_ms=6000)
    try:
        topics, _ = elected(behind, 1)
        wait(topics.create, "t", {0: [1]}, {})
        proxy.cut()
        eventually(lambda: not behind.is_reachable)
        outcome: list[Any] = []
        topics.create("late", {0: [1]}, {}, lambda topic, error: outcome.append(error))
        eventually(lambda: tree.exists("/brokers/topics/t"))
        moves_on(tree)
        proxy.mend()
        eventually(lambda: outcome)
        assert outcome[0].code == Errors.NOT_CONTROLLER
        assert not tree.exists("/brokers/topics/late")
        assert not tree.exists("/config/topics/late")
    finally:
        behind.close()
        proxy.close()


def test_a_former_controller_handles_no_changes_until_it_is_elected_again(
    start: Start, tree: ZooKeeperTree, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = start()
    services, controller = server.services, server.services.controller
    controller.create("t", partitions=1)
    controller.create("half", partitions=1)
    moves_on(tree)
    eventually(lambda: services.controller is not controller)
    tree.commit([Create("/brokers/topics/meanwhile", b'{"version":1,"partitions":{"0":[0]}}')])
    tree.commit([Create("/admin/delete_topics/half")])  # only the other controller may delete it
    for former in (controller, services.controller):
        with pytest.raises(KafkaError) as caught:
            former.create("mine", partitions=1)
        assert caught.value.code == Errors.NOT_CONTROLLER
        with pytest.raises(KafkaError):
            former.delete("t")
    assert "t" in services.cache, "nothing was done before the tree had it"
    assert services.replicas.holds("t", 0), "what it leads it leads on"
    assert tree.exists("/brokers/topics/half")
    assert not services.replicas.holds("meanwhile", 0)
    tree.commit([Delete("/controller")])
    eventually(lambda: server.services.replicas.holds("meanwhile", 0))
    eventually(lambda: not tree.exists("/brokers/topics/half") and not tree.exists("/admin/delete_topics/half"))
    assert tree.get(EPOCH).data == b"3"
    controller.create("mine", partitions=1)
    eventually(lambda: tree.exists("/brokers/topics/mine/partitions/0/state"))
    assert value(tree, "/brokers/topics/mine/partitions/0/state")["controller_epoch"] == 3


def test_a_deletion_that_another_controller_has_finished_is_not_repeated(
    start: Start, tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a new topic of the same name would be deleted."""
    server = start()
    topics = server.services.topics
    server.services.controller.create("t", partitions=1)
    monkeypatch.setattr(server.services.controller, "finish_marked", lambda name: None)
    wait(topics.mark_deleted, "t")
    old = topics.marked()[0]
    eventually(lambda: tree.exists("/admin/delete_topics/t"))
    moves_on(tree)
    monkeypatch.undo()
    doomed = [*tree.subtree("/brokers/topics/t"), *tree.subtree("/config/topics/t"), "/admin/delete_topics/t"]
    new = Create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')
    tree.commit([*map(Delete, doomed), new, Delete("/controller")])
    eventually(lambda: (created := topics.get("t")) is not None and created.id != old.id)
    eventually(lambda: server.services.replicas.holds("t", 0))
    assert topics.marked() == []
    eventually(lambda: tree.exists("/brokers/topics/t/partitions/0/state"))
    assert value(tree, "/brokers/topics/t/partitions/0/state")["leader"] == 0


def test_an_election_whose_response_was_lost_is_repeated_and_gives_the_same_term(
    start: Start, tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start()
    become, tries = ClusterRegistry.become_controller, []

    def answer_lost(cluster: ClusterRegistry, broker_id: int, time_ms: int) -> Any:
        term = become(cluster, broker_id, time_ms)
        tries.append(term)
        if len(tries) == 1:
            raise TreeUnavailable("/", "ZooKeeper has not answered")
        return term

    monkeypatch.setattr(ClusterRegistry, "become_controller", answer_lost)
    tree.commit([Delete("/controller")])
    eventually(lambda: len(tries) > 1)
    assert tries[0] == tries[1]
    eventually(lambda: server.services.topics.controller_epoch == 2)
    server.services.controller.create("t", partitions=1)


def test_a_broker_that_is_elected_already_gets_its_term_again(tree: ZooKeeperTree) -> None:
    """A broker that retries after a lost response finds the node of its own session, and gets the same term."""
    cluster = ClusterRegistry(tree)
    term = cluster.become_controller(1, 0)
    assert term is not None
    assert cluster.become_controller(1, 5) == term
    assert cluster.become_controller(2, 5) is None
    epoch = cluster.register_broker(1, [], None, 0)
    assert cluster.register_broker(1, [], None, 5) == epoch
    assert value(tree, "/brokers/ids/1")["timestamp"] == "5"


def test_the_leader_epoch_of_a_deleted_state_node_is_not_used_again(
    start: Start, tree: ZooKeeperTree, tmp_path: Path
) -> None:
    state = "/brokers/topics/t/partitions/0/state"
    first = start()
    first.services.controller.create("t", partitions=2)
    first.stop()
    eventually(lambda: not tree.children("/brokers/ids"))
    led = b'{"controller_epoch":1,"leader":7,"version":1,"leader_epoch":4,"isr":[7,0]}'
    tree.commit([Set(state, led)])
    server = start()
    eventually(lambda: value(tree, state)["leader_epoch"] == 5)
    assert "\n5 0\n" in (tmp_path / "0" / "t-0" / "leader-epoch-checkpoint").read_text()
    assert server.services.replicas.leader_epoch("t", 0) == 5
    server.stop()
    eventually(lambda: not tree.children("/brokers/ids"))
    tree.commit([Delete(state)])
    again = start()
    eventually(lambda: tree.exists(state) and tree.exists("/brokers/topics/t/partitions/1/state"))
    assert value(tree, state) == {"controller_epoch": 3, "leader": 0, "version": 1, "leader_epoch": 6, "isr": [0]}
    assert again.services.replicas.leader_epoch("t", 0) == 6
    assert value(tree, "/brokers/topics/t/partitions/1/state")["leader_epoch"] == 0


def test_a_topic_of_many_partitions_is_created_and_deleted_in_several_transactions(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4000 partitions are too many for one transaction of ZooKeeper. The short run lowers the limit instead."""
    count = 4000 if ROUNDS else 20
    if not ROUNDS:
        monkeypatch.setattr(batches, "_MAX_OPERATIONS", 7)
    topics, _ = elected(tree, 1)
    wait(topics.create, "wide", {partition: [1] for partition in range(count)}, {})
    assert [topics.state("wide", partition) for partition in range(count)] == [PartitionState(1, 0, [1], 1)] * count
    wait(topics.mark_deleted, "wide")
    wait(topics.remove, "wide")
    assert not tree.exists("/brokers/topics/wide")
    assert not tree.exists("/config/topics/wide")
    assert tree.children("/admin/delete_topics") == []


def test_a_partly_created_topic_is_completed(
    start: Start, tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second transaction fails. The first leaves a topic like one that another tool might have created."""
    monkeypatch.setattr(batches, "_MAX_OPERATIONS", 7)
    server = start()
    submit, seen = server.services.topics._tree.submit, []

    def second_fails(operations: Any, done: Any) -> None:
        seen.append(operations)
        if len(seen) == 2:
            done(None, TreeUnavailable("/", "nobody answers"))
        else:
            submit(operations, done)

    monkeypatch.setattr(server.services.topics._tree, "submit", second_fails)
    with pytest.raises(KafkaError, match="nobody answers"):
        server.services.controller.create("wide", partitions=20)
    eventually(lambda: all(server.services.replicas.holds("wide", partition) for partition in range(20)))
    eventually(lambda: tree.exists("/brokers/topics/wide/partitions/19/state"))


def test_a_root_node_that_may_not_be_read_counts_as_existing(open_tree: OpenTree, connect: str) -> None:
    """Kafka's brokers create /config/users with an ACL that lets only them read it."""
    other = KazooClient(connect.partition("/")[0])
    other.start()
    chroot = "/" + connect.partition("/")[2]
    try:
        other.ensure_path(f"{chroot}/config")
        other.create(f"{chroot}/config/users", None, acl=[make_digest_acl("kafka", "secret", all=True)])
    finally:
        other.stop()
        other.close()
    tree = open_tree()
    ClusterRegistry(tree)
    assert tree.exists("/config/topics")
    assert not tree.exists("/config/users")
    assert tree.hidden == ["/config/users"]
