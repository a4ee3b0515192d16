"""Crashes of a controller after any of its changes, beside Apache Kafka: the next controller, which is of the other
kind, completes the operation.

    python -m tests.zookeeper.crashes_beside_kafka [--from kafkapy|kafka] [--case NAME] [--expire]

carries out every case, once for each change that the controller makes in it. Broker 1 is Apache Kafka 3.9.1, brokers 2
and 3 are kafkapy brokers in this process; only broker 1 or 2 is the controller. From kafkapy to Kafka: all that
kafkapy's controller writes and sends after the change is lost, and `/controller` is deleted. From Kafka to kafkapy: a
proxy cuts Kafka's controller off from ZooKeeper, before or after it gets the response to the change. Then `/controller`
is deleted, or (`--expire`) Kafka's session ends, so that Kafka's broker is also dead for a while.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkapy.errors import Errors, name_of
from kafkapy.metadata import paths
from kafkapy.metadata.ids import encode_id, new_id
from kafkapy.metadata.tree import BadVersion, Check, Operation
from kafkapy.protocol import apis
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from tests.harness.brokers import QUICK, KafkaBroker, free_port
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.harness.zookeeper import ZooKeeper
from tests.harness.zookeeper_proxy import ZooKeeperProxy
from tests.server.requests import batch, produce

KAFKA, OURS, OTHER = 1, 2, 3
DEAD = 9  # a broker that never runs
# With Kafka's broker dead as well, no other broker can lead: while a leader shuts down, its ISR cannot grow (KIP-841).
ALONE = "controlled shutdown"
# Allowed differences after some failovers. As in Kafka, no controller waits until the replicas that a reassignment has
# removed are deleted: their brokers may be dead, or may first hear of the next controller, which does not know of those
# replicas.
LEFT_OVER = "logs of replicas that a reassignment has removed"
ANY_LEADER = "another leader, because the broker of Kafka was dead for a while"
WAIT_S = 60
SETTINGS = {
    **QUICK,
    "zookeeper.session.timeout.ms": "20000",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "100",
    "unclean.leader.election.enable": "false",
}

_INTERRUPTED = re.compile("(Controller moved to another broker when|Error while) moving some replicas")

Assignment = Mapping[int, Sequence[int]]


class ControllerWrites:
    """Lets the controller of a broker in this process make `left` changes (None: any number), and refuses later changes
    as if another controller had been elected. From then on, the controller's requests are lost, too.
    """

    def __init__(self, server: BrokerServer) -> None:
        self.left: int | None = None
        self.made = 0
        self.over = threading.Event()
        tree, channels = server._tree, server._channels
        self._submit, self._send = tree.submit, channels.send
        tree.submit = self.submit
        channels.send = self.send

    def limit(self, left: int | None) -> None:
        self.over.clear()
        self.made, self.left = 0, left

    def submit(self, operations: Sequence[Operation], done: Callable[..., object]) -> None:
        first = operations[0] if operations else None
        if not (isinstance(first, Check) and first.path == paths.CONTROLLER_EPOCH):
            self._submit(operations, done)  # not a change by the controller
            return
        if self.left == 0:
            self.over.set()
            done(None, BadVersion(paths.CONTROLLER_EPOCH, 0))
            return
        self.made += 1
        if self.left is not None:
            self.left -= 1
        is_last = self.left == 0

        def made(*results: Any) -> None:
            done(*results)
            if is_last:
                self.over.set()

        self._submit(operations, made)

    def send(self, broker: Any, requests: Any) -> None:
        if self.left != 0:
            self._send(broker, requests)


class MixedCluster:
    """A cluster with one broker of Apache Kafka and two of kafkapy. `close` ends all but ZooKeeper."""

    def __init__(self, directory: Path, zookeeper: ZooKeeper, chroot: str) -> None:
        self._directory = directory
        self._zookeeper = zookeeper
        self._chroot = chroot
        self._closing = contextlib.ExitStack()
        self._may_stand = True
        self.live = {KAFKA, OURS, OTHER}
        self.ours: dict[int, BrokerServer] = {}
        try:
            self.zk = KazooClient(zookeeper.address)
            self.zk.start()
            self._closing.callback(self.zk.close)
            self._closing.callback(self.zk.stop)
            self.zk.ensure_path(chroot)
            self.zk.chroot = chroot
            self.proxy = ZooKeeperProxy(zookeeper.port)
            self._closing.callback(self.proxy.close)
            self.kafka = self._start_kafka(free_port())
            self._closing.callback(lambda: self.kafka.kill())
            self._closing.callback(lambda: [server.stop() for server in self.ours.values()])
            self.start(OURS)
            self.start(OTHER)
            self.writes = ControllerWrites(self.ours[OURS])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.proxy.mend()
        self._closing.close()

    # --- brokers

    def _start_kafka(self, port: int) -> KafkaBroker:
        settings = {**SETTINGS, "broker.id": str(KAFKA)}
        zookeeper = f"{self.proxy.address}{self._chroot}"
        return KafkaBroker(self._directory / "kafka", settings, port=port, zookeeper=zookeeper)

    def mend_kafka(self) -> None:
        """Restart Kafka's broker, with a kill, if its controller was interrupted while it moved replicas.

        Such a controller keeps the requests of the interrupted event, and fails whenever it is elected again
        ("Controller to broker state change requests batch is not empty").
        """
        eventually(self._kafka_is_idle, seconds=WAIT_S)
        if any(_INTERRUPTED.search(line) for line in self.kafka.process.lines):
            self.elect_ours()
            self.kafka.kill()
            self.proxy.end_session()
            self.kafka = self._start_kafka(self.kafka.port)
            self.wait_for_controller(OURS)

    def _kafka_is_idle(self) -> bool:
        """Return True if Kafka's broker and the tree agree on whether this broker is the controller. The request waits
        until its controller thread has handled all earlier events.
        """
        with Wire(self.kafka.bootstrap) as wire:
            code = wire.call(apis.LIST_PARTITION_REASSIGNMENTS, 0, topics=None).error_code
        return bool((code == Errors.NONE) == (self.controller() == KAFKA))

    def start(self, broker_id: int) -> None:
        config = BrokerConfig(
            {
                **SETTINGS,
                "broker.id": str(broker_id),
                "log.dirs": str(self._directory / str(broker_id)),
                "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
                "zookeeper.connect": f"{self._zookeeper.address}{self._chroot}",
            }
        )
        server = BrokerServer(config)
        server.start()
        registry = server._shared._controllership._cluster
        become = registry.become_controller
        registry.become_controller = lambda *args: (
            become(*args) if broker_id == OURS and self._may_stand else None  # as if another broker had been elected
        )
        self.ours[broker_id] = server
        self.live.add(broker_id)
        assert server.wait_until_loaded(30)

    def stop(self, broker_id: int) -> None:
        self.ours.pop(broker_id).stop()
        self.live.discard(broker_id)

    def address(self, broker_id: int) -> str:
        return self.kafka.bootstrap if broker_id == KAFKA else self.ours[broker_id].bootstrap_servers

    # --- the controller

    def controller(self) -> int:
        try:
            return int(json.loads(self.zk.get("/controller")[0])["brokerid"])
        except NoNodeError:
            return -1

    def delete_controller(self) -> None:
        with contextlib.suppress(NoNodeError):
            self.zk.delete("/controller")

    def elect_kafka(self) -> None:
        """Make Kafka's broker the controller."""
        self._may_stand = False
        if self.controller() != KAFKA:
            self.delete_controller()
        eventually(lambda: self.controller() == KAFKA, seconds=WAIT_S)
        eventually(lambda: not self.ours[OURS].services.is_controller, seconds=WAIT_S)
        self._may_stand = True
        self.wait_for_controller(KAFKA)

    def elect_ours(self) -> None:
        """Make broker 2 the controller while Kafka's broker is frozen."""
        self.kafka.process.freeze()
        try:
            if self.controller() != OURS:
                self.delete_controller()
            self.wait_until_ours_is_elected()
        finally:
            self.kafka.process.thaw()

    def wait_until_ours_is_elected(self) -> None:
        eventually(lambda: self.controller() == OURS, seconds=WAIT_S)
        eventually(lambda: self.ours[OURS].services.is_controller, seconds=WAIT_S)

    def wait_for_controller(self, broker_id: int) -> None:
        """Wait until all brokers know the controller and the live brokers."""
        eventually(
            lambda: all(self.metadata(one)[:2] == (broker_id, self.live) for one in self.live),
            seconds=WAIT_S,
            what=f"not all brokers know that {broker_id} is the controller",
        )

    def metadata(self, broker_id: int) -> tuple[int, set[int], dict[tuple[str, int], Any]]:
        """Return the controller, the live brokers, and the partitions in a broker's Metadata."""
        with Wire(self.address(broker_id)) as wire:
            answer = wire.call(apis.METADATA, 12, topics=None, allow_auto_topic_creation=False)
        partitions = {(topic.name, one.partition_index): one for topic in answer.topics for one in topic.partitions}
        return answer.controller_id, {one.node_id for one in answer.brokers}, partitions

    def hosted(self, broker_id: int) -> set[tuple[str, int]]:
        """Return the partitions of which a broker has logs."""
        with Wire(self.address(broker_id)) as wire:
            answer = wire.call(apis.DESCRIBE_LOG_DIRS, 4, topics=None)
        return {
            (topic.name, one.partition_index)
            for directory in answer.results
            for topic in directory.topics
            for one in topic.partitions
        }

    # --- the tree

    def json(self, path: str) -> Any:
        try:
            return json.loads(self.zk.get(path)[0])
        except NoNodeError:
            return None

    def topic(self, name: str) -> Any:
        return self.json(f"/brokers/topics/{name}")

    def state(self, name: str, index: int) -> Any:
        return self.json(f"/brokers/topics/{name}/partitions/{index}/state")

    def write(self, path: str, value: Any) -> None:
        data = json.dumps(value).encode()
        if self.zk.exists(path):
            self.zk.set(path, data)
        else:
            self.zk.create(path, data, makepath=True)


class Run:
    """One run of a case: the cluster, and the topic of this run."""

    def __init__(self, cluster: MixedCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._wires: list[Wire] = []

    def close(self) -> None:
        for wire in self._wires:
            wire.close()

    def ask(self, api: Any, version: int, message: Any) -> Wire:
        """Send a request to the controller without waiting for the response. Return the connection."""
        wire = Wire(self.cluster.address(self.cluster.controller()))
        self._wires.append(wire)
        wire.send(api, version, message)
        return wire

    def create(self, assignment: Assignment) -> Wire:
        make = apis.CREATE_TOPICS.Request.Topics
        by_hand = [make.Assignments(partition_index=index, broker_ids=list(ids)) for index, ids in assignment.items()]
        configs = [make.Configs(name="retention.ms", value="700000")]
        topic = make(name=self.name, num_partitions=-1, replication_factor=-1, assignments=by_hand, configs=configs)
        return self.ask(apis.CREATE_TOPICS, 7, apis.CREATE_TOPICS.Request(topics=[topic]))

    def extend(self, *added: Sequence[int]) -> None:
        make = apis.CREATE_PARTITIONS.Request
        by_hand = [make.Topics.Assignments(broker_ids=list(ids)) for ids in added]
        topic = make.Topics(name=self.name, count=1 + len(added), assignments=by_hand)
        self.ask(apis.CREATE_PARTITIONS, 3, make(topics=[topic], timeout_ms=30_000))

    def delete(self) -> None:
        make = apis.DELETE_TOPICS.Request
        self.ask(apis.DELETE_TOPICS, 6, make(topics=[make.Topics(name=self.name)], timeout_ms=30_000))

    def elect(self, kind: int) -> None:
        make = apis.ELECT_LEADERS.Request
        asked = make.TopicPartitions(topic=self.name, partitions=[0, 1])
        self.ask(apis.ELECT_LEADERS, 2, make(election_type=kind, topic_partitions=[asked]))

    def reassign(self, targets: Mapping[int, Sequence[int] | None]) -> None:
        make = apis.ALTER_PARTITION_REASSIGNMENTS.Request
        partitions = [
            make.Topics.Partitions(partition_index=index, replicas=None if ids is None else list(ids))
            for index, ids in targets.items()
        ]
        topic = make.Topics(name=self.name, partitions=partitions)
        self.ask(apis.ALTER_PARTITION_REASSIGNMENTS, 0, make(topics=[topic]))

    def allow_unclean_elections(self) -> None:
        make = apis.INCREMENTAL_ALTER_CONFIGS.Request.Resources
        setting = make.Configs(name="unclean.leader.election.enable", config_operation=0, value="true")
        resource = make(resource_type=2, resource_name=self.name, configs=[setting])
        message = apis.INCREMENTAL_ALTER_CONFIGS.Request(resources=[resource], validate_only=False)
        self.ask(apis.INCREMENTAL_ALTER_CONFIGS, 1, message)

    def move_leadership_away(self, is_over: Callable[[], bool]) -> None:
        """Request a controlled shutdown of broker 3 until broker 3 leads no partition or `is_over` returns True."""
        epoch = self.cluster.ours[OTHER].services.broker_epoch
        while not is_over():
            message = apis.CONTROLLED_SHUTDOWN.Request(broker_id=OTHER, broker_epoch=epoch)
            wire = self.ask(apis.CONTROLLED_SHUTDOWN, 3, message)
            wire.socket.settimeout(0.2)
            while not is_over():
                with contextlib.suppress(TimeoutError):
                    _, answer = wire.receive(apis.CONTROLLED_SHUTDOWN, 3)
                    if answer.error_code == Errors.NONE and not answer.remaining_partitions:
                        return
                    break
            wire.close()
            time.sleep(0.1)

    def assignment(self) -> dict[int, list[int]]:
        topic = self.cluster.topic(self.name) or {"partitions": {}}
        return {int(index): ids for index, ids in topic["partitions"].items()}

    def why_not(self, after: After | None, *, allowed: Collection[str] = ()) -> str:
        """Return the first difference from the state that must be reached after the case, "" if there is none."""
        try:
            return self._why_not_gone(allowed) if after is None else self._why_not_there(after, allowed=allowed)
        except (OSError, AssertionError) as error:  # a broker does not have the metadata of the cluster yet
            return f"a broker does not answer: {error!r}"

    def _why_not_gone(self, allowed: Collection[str]) -> str:
        cluster, name = self.cluster, self.name
        for path in (f"/brokers/topics/{name}", f"/config/topics/{name}", f"/admin/delete_topics/{name}"):
            if cluster.zk.exists(path):
                return f"{path} exists"
        for one in cluster.live:
            if LEFT_OVER not in allowed and any(topic == name for topic, _ in cluster.hosted(one)):
                return f"broker {one} has logs of {name}"
            if any(topic == name for topic, _ in cluster.metadata(one)[2]):
                return f"broker {one} has in its Metadata {name}"
        return ""

    def _why_not_there(self, after: After, *, allowed: Collection[str]) -> str:
        cluster, name = self.cluster, self.name
        topic = cluster.topic(name)
        if topic is None or topic["adding_replicas"] or topic["removing_replicas"]:
            return f"the topic is {topic}"
        if self.assignment() != {index: list(ids) for index, (ids, _) in after.items()}:
            return f"the assignment is {topic['partitions']}"
        views = {one: cluster.metadata(one)[2] for one in cluster.live}
        hosted = {one: {index for topic, index in cluster.hosted(one) if topic == name} for one in cluster.live}
        for index, (replicas, leader) in after.items():
            state = cluster.state(name, index)
            isr = sorted(set(replicas) & cluster.live)
            if state is None or (isr and sorted(state["isr"]) != isr):
                return f"the state of {name}-{index} is {state}"
            if state["leader"] != leader and not (ANY_LEADER in allowed and state["leader"] in isr):
                return f"the state of {name}-{index} is {state}"
            for one in cluster.live:
                view = views[one].get((name, index))
                if view is None or (view.leader_id, view.leader_epoch, sorted(view.isr_nodes), view.replica_nodes) != (
                    state["leader"], state["leader_epoch"], sorted(state["isr"]), list(replicas),
                ):  # fmt: skip
                    return f"broker {one} says of {name}-{index} {view}, and ZooKeeper {state}"
                is_left_over = one not in replicas and LEFT_OVER in allowed
                if (one in replicas) != (index in hosted[one]) and not is_left_over:
                    return f"broker {one} has partitions {sorted(hosted[one])} of {name}"
        return ""

    def wait_until(self, after: After | None, *, allowed: Collection[str] = ()) -> None:
        deadline = time.monotonic() + WAIT_S
        while why := self.why_not(after, allowed=allowed):
            assert time.monotonic() < deadline, why
            time.sleep(0.02)

    def produce(self) -> None:
        """Produce a record with acks=all to each partition, which shows that all replicas have their roles."""
        for index in self.assignment():
            deadline = time.monotonic() + WAIT_S
            while code := self._produced(index):
                assert time.monotonic() < deadline, f"nothing is appended to {self.name}-{index}: {name_of(code)}"

    def _produced(self, index: int) -> int:
        leader = self.cluster.state(self.name, index)["leader"]
        if leader < 0:
            return 0
        with Wire(self.cluster.address(leader)) as wire:
            return int(produce(wire, self.name, batch(b"v"), acks=-1, index=index).error_code)


After = Mapping[int, tuple[Sequence[int], int]]  # replicas and leader by partition


class Case(NamedTuple):
    """An operation during which the controller ends.

    before      the topic's partitions at the beginning, which is created by a request
    prepare     makes a state that no request can make, just before the first controller is elected
    act         requests the operation
    after       the topic's partitions after the operation, None if the topic must be gone
    has_begun   returns True if a client need not repeat its request
    """

    before: After | None
    act: Callable[[Run, Callable[[], bool]], object]
    after: After | None
    has_begun: Callable[[Run], bool] = lambda run: False
    prepare: Callable[[Run], object] = lambda run: None
    moves: bool = False  # True for a reassignment


def _return(run: Run, _: Callable[[], bool]) -> None:
    if OTHER not in run.cluster.ours:
        run.cluster.start(OTHER)


def _stop(run: Run, _: Callable[[], bool]) -> None:
    if OTHER in run.cluster.ours:
        run.cluster.stop(OTHER)


def _shut_down(run: Run, is_over: Callable[[], bool]) -> None:
    if OTHER in run.cluster.ours:
        run.move_leadership_away(is_over)
        if not is_over():
            run.cluster.stop(OTHER)


def _has_stopped(run: Run) -> bool:
    return OTHER not in run.cluster.ours


def _led_by_others(run: Run) -> None:
    """Reverse the replicas of each partition, so that the preferred leader does not lead."""
    run.reassign({index: ids[::-1] for index, ids in run.assignment().items()})
    eventually(lambda: run.assignment() == {0: [1, 2], 1: [3, 2]}, seconds=WAIT_S)


def _lost(run: Run) -> None:
    """Write a topic whose ISRs have only a broker that is dead for good."""
    topic = {"version": 3, "topic_id": encode_id(new_id()), "adding_replicas": {}, "removing_replicas": {},
             "partitions": {"0": [DEAD, OURS], "1": [DEAD, KAFKA]}}  # fmt: skip
    state = {"version": 1, "leader": -1, "leader_epoch": 4, "isr": [DEAD], "controller_epoch": 1}
    cluster, path = run.cluster, f"/brokers/topics/{run.name}"
    cluster.write(f"/config/topics/{run.name}", {"version": 1, "config": {}})
    change = cluster.zk.transaction()
    change.create(path, json.dumps(topic).encode())
    change.create(f"{path}/partitions")
    for index in topic["partitions"]:
        change.create(f"{path}/partitions/{index}")
        change.create(f"{path}/partitions/{index}/state", json.dumps(state).encode())
    assert [one for one in change.commit() if isinstance(one, Exception)] == []


def _moving_to_a_dead_broker(run: Run) -> None:
    topic = run.cluster.topic(run.name)
    topic |= {"partitions": {"0": [DEAD, 1, 2]}, "adding_replicas": {"0": [DEAD]}, "removing_replicas": {"0": [2]}}
    run.cluster.write(f"/brokers/topics/{run.name}", topic)


def _no_partition_moves_to(dead: int) -> Callable[[Run], bool]:
    return lambda run: dead not in run.assignment()[0]


_NEW = {0: ([1, 2], 1), 1: ([2, 3], 2), 2: ([3, 1], 3)}
_ON_OTHER = {0: ([3, 1], 3), 1: ([3, 2], 3), 2: ([1, 3], 1)}
_WITHOUT_OTHER = {0: ([3, 1], 1), 1: ([3, 2], 2), 2: ([1, 3], 1)}

CASES = {
    "creation": Case(
        None,
        lambda run, _: run.create({index: ids for index, (ids, _) in _NEW.items()}),
        _NEW,
        lambda run: bool(run.assignment()),
    ),
    "more partitions": Case(
        {0: ([1, 2], 1)}, lambda run, _: run.extend([2, 3], [3, 1]), _NEW, lambda run: len(run.assignment()) == 3
    ),
    "deletion": Case(
        _NEW,
        lambda run, _: run.delete(),
        None,
        lambda run: not run.assignment() or run.cluster.zk.exists(f"/admin/delete_topics/{run.name}") is not None,
    ),
    "preferred election": Case(
        {0: ([2, 1], 2), 1: ([2, 3], 2)},
        lambda run, _: run.elect(0),
        {0: ([1, 2], 1), 1: ([3, 2], 3)},
        prepare=_led_by_others,
    ),
    "unclean election": Case(
        None, lambda run, _: run.elect(1), {0: ([DEAD, 2], 2), 1: ([DEAD, 1], 1)}, prepare=_lost
    ),
    "unclean election by setting": Case(
        None,
        lambda run, _: run.allow_unclean_elections(),
        {0: ([DEAD, 2], 2), 1: ([DEAD, 1], 1)},
        lambda run: "unclean" in str(run.cluster.json(f"/config/topics/{run.name}")),
        prepare=_lost,
    ),
    "loss of a leader": Case(_ON_OTHER, _stop, _WITHOUT_OTHER, _has_stopped),
    "return of a leader": Case(
        {0: ([3], 3), 1: ([3], 3)}, _return, {0: ([3], 3), 1: ([3], 3)},
        prepare=lambda run: _stop(run, lambda: False),
    ),
    ALONE: Case(_ON_OTHER, _shut_down, _WITHOUT_OTHER, _has_stopped),
    "reassignment": Case(
        {0: ([1, 2], 1), 1: ([2, 1], 2)},
        lambda run, _: run.reassign({0: [3, 2], 1: [1, 3]}),
        {0: ([3, 2], 3), 1: ([1, 3], 1)},
        lambda run: 3 in run.assignment()[0] and 3 in run.assignment()[1],
        moves=True,
    ),
    "cancelled reassignment": Case(
        {0: ([1, 2], 1)},
        lambda run, _: run.reassign({0: None}),
        {0: ([1, 2], 1)},
        _no_partition_moves_to(DEAD),
        prepare=_moving_to_a_dead_broker,
        moves=True,
    ),
    "replaced reassignment": Case(
        {0: ([1, 2], 1)},
        lambda run, _: run.reassign({0: [3, 2]}),
        {0: ([3, 2], 3)},
        _no_partition_moves_to(DEAD),
        prepare=_moving_to_a_dead_broker,
        moves=True,
    ),
}  # fmt: skip


class Failover(NamedTuple):
    """A change of the controller: `limit(n)` lets the first controller make n changes, `is_over()` returns True when it
    has made them, `pass_over()` ends it and elects the next one, `made()` returns how many changes it made.
    """

    elect_first: Callable[[], object]
    limit: Callable[[int | None], object]
    is_over: Callable[[], bool]
    made: Callable[[], int]
    pass_over: Callable[[], object]
    allowed: Collection[str] = ()


def from_kafkapy(cluster: MixedCluster) -> Failover:
    def elect_first() -> None:
        if cluster.controller() == OURS:
            cluster.elect_kafka()  # so that kafkapy's controller reads the tree again when it is elected
        cluster.elect_ours()
        cluster.wait_for_controller(OURS)

    def pass_over() -> None:
        cluster.writes.left = 0
        cluster.elect_kafka()
        cluster.writes.limit(None)

    writes = cluster.writes
    return Failover(elect_first, writes.limit, writes.over.is_set, lambda: writes.made, pass_over)


def from_kafka(cluster: MixedCluster, *, answered: bool, expire: bool) -> Failover:
    """Return the change from Kafka's controller to kafkapy's. With `answered`, Kafka's controller gets the response to
    its last change. With `expire`, its session ends."""
    proxy = cluster.proxy

    def elect_first() -> None:
        if cluster.controller() == KAFKA:
            cluster.elect_ours()  # so that Kafka's controller reads the tree again when it is elected
        cluster.elect_kafka()

    def pass_over() -> None:
        proxy.cut()
        if expire:
            proxy.end_session()
        else:
            cluster.delete_controller()
        cluster.wait_until_ours_is_elected()
        proxy.mend()
        cluster.wait_for_controller(OURS)

    return Failover(
        elect_first,
        lambda changes: proxy.limit(changes, answered=answered),
        lambda: proxy.is_cut,
        lambda: proxy.changes,
        pass_over,
        allowed=(LEFT_OVER, ANY_LEADER) if expire else (LEFT_OVER,),
    )


def run_case(cluster: MixedCluster, case: Case, failover: Failover, name: str, changes: int | None) -> int:
    """Carry out a case in which the first controller ends after so many changes, or when the case is complete (None).
    Return how many changes it made. Raise AssertionError if the state after the case is wrong.
    """
    run = Run(cluster, name)
    allowed = [one for one in failover.allowed if one != LEFT_OVER or case.moves]
    try:
        if case.before is not None:
            wire = run.create({index: ids for index, (ids, _) in case.before.items()})
            _, response = wire.receive(apis.CREATE_TOPICS, 7)
            assert response.topics[0].error_code == Errors.NONE, response
            run.wait_until(case.before)
        case.prepare(run)
        failover.elect_first()
        failover.limit(changes)
        case.act(run, failover.is_over)
        deadline = time.monotonic() + WAIT_S
        while not failover.is_over() and (why := run.why_not(case.after)):
            assert time.monotonic() < deadline, f"without a failover: {why}"
            time.sleep(0.02)
        made = failover.made()
        failover.pass_over()
        if not case.has_begun(run):
            case.act(run, lambda: False)  # as a client that repeats a failed request
        run.wait_until(case.after, allowed=allowed)
        if OTHER not in cluster.live:
            cluster.start(OTHER)
            run.wait_until(case.after, allowed=allowed)
        run.produce()
        if case.after is not None:
            _clear(run, allowed)
        cluster.mend_kafka()
        return made
    except BaseException:
        print(f"failed: {name}, {changes} changes", file=sys.stderr)
        raise
    finally:
        run.close()


def _clear(run: Run, allowed: Collection[str]) -> None:
    """Delete the topic, unless it has replicas on a broker that never runs."""
    topic = run.cluster.topic(run.name)
    if DEAD not in {one for ids in topic["partitions"].values() for one in ids}:
        run.delete()
        run.wait_until(None, allowed=allowed)


def run_all(
    cluster: MixedCluster, names: Sequence[str], failover: Failover, label: str, report: Callable[[str], object]
) -> None:
    """Carry out each of the cases first without a failover in the middle, then with one after each change."""
    for name in names:
        began = time.monotonic()
        topic = f"{label}-{name.replace(' ', '-')}"
        made = run_case(cluster, CASES[name], failover, f"{topic}-all", None)
        for changes in range(made):
            run_case(cluster, CASES[name], failover, f"{topic}-{changes}", changes)
        report(f"{label}: {name}: changes {made}, {time.monotonic() - began:.1f} s")


@contextlib.contextmanager
def new_cluster(directory: Path) -> Iterator[MixedCluster]:
    zookeeper = ZooKeeper(directory / "zookeeper")
    try:
        cluster = MixedCluster(directory, zookeeper, "/kafka")
        try:
            yield cluster
        finally:
            cluster.close()
    finally:
        zookeeper.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.zookeeper.crashes_beside_kafka", description=__doc__)
    parser.add_argument("--from", dest="source", choices=("kafkapy", "kafka"))
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--expire", action="store_true", help="end the session of Kafka's controller, too")
    parser.add_argument("--log", type=Path, help="a file for the log of the kafkapy brokers")
    options = parser.parse_args()
    if options.log is not None:
        logging.basicConfig(filename=options.log, level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    names = options.case or list(CASES)
    with tempfile.TemporaryDirectory() as directory, new_cluster(Path(directory)) as cluster:
        if options.source != "kafka":
            run_all(cluster, names, from_kafkapy(cluster), "from-kafkapy", print)
        if options.source != "kafkapy":
            for answered in (True, False):
                failover = from_kafka(cluster, answered=answered, expire=options.expire)
                label = "answered" if answered else "unanswered"
                run_all(cluster, [one for one in names if not options.expire or one != ALONE], failover, label, print)


if __name__ == "__main__":
    main()
