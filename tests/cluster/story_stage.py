"""The cluster in which a story is told: broker 1 is the controller, Apache Kafka's or kafkapy's.

All else is the same under both: a ZooKeeper, broker 2, which is kafkapy, and the recording brokers 3, 4 and 5. What the
methods return, and what `look` finds, has names instead of ports and topic ids, so that two stages can be compared.
"""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.protocol.apis import Api
from kafkapy.protocol.message import Message
from tests.cluster.recording_broker import RecordingBroker
from tests.cluster.told import Known, told
from tests.harness.brokers import KafkaBroker, KafkapyBroker, free_port
from tests.harness.wire import Wire
from tests.harness.zookeeper import ZooKeeper

CONTROLLER, OTHER, RECORDING = 1, 2, (3, 4, 5)
SETTINGS = {
    "num.partitions": "1",
    "default.replication.factor": "2",
    "auto.create.topics.enable": "true",
    "auto.leader.rebalance.enable": "false",  # runs by a timer: when is not the controller's decision
    "unclean.leader.election.enable": "false",
    "replica.lag.time.max.ms": "3600000",  # recording brokers never fetch
    "replica.fetch.backoff.ms": "200",
    "zookeeper.session.timeout.ms": "20000",
    "controlled.shutdown.retry.backoff.ms": "200",
    "controlled.shutdown.max.retries": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "log.cleaner.enable": "false",
}
# How often, and how far apart, a stage is looked at and found unchanged before it is quiet.
_LOOKS, _APART_S = 4, 0.03
_QUIET_S = 60.0
_MISSING = "no-such-topic"
_SINCE_EPOCH = ("timestamp",)

Assignment = Sequence[Sequence[int]]


class Stage:
    """A cluster whose controller is of the given kind, "kafka" or "kafkapy"."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.kind = kind
        self._directory = directory
        self._closing = contextlib.ExitStack()
        self._ids: dict[bytes, str] = {}
        self._generations: dict[str, int] = {}
        self._epochs: dict[str, int] = {}
        self._known = {one: Known() for one in RECORDING}
        try:
            self.zookeeper = ZooKeeper(directory / "zookeeper")
            self._closing.callback(self.zookeeper.stop)
            self.tree = KazooClient(hosts=self.zookeeper.address, timeout=60)
            self.tree.start(timeout=30)
            self._closing.callback(self._close_tree)
            self.ports = {CONTROLLER: free_port(), OTHER: free_port()}
            self.controller = self._start_controller()
            self._closing.callback(lambda: self.controller.process.kill())
            self._wire = Wire(f"127.0.0.1:{self.ports[CONTROLLER]}", 90)
            self._closing.callback(lambda: self._wire.close())
            self.other: KafkapyBroker | None = None
            self._closing.callback(self._end_other)
            self.recording = {one: RecordingBroker(self.tree, one) for one in RECORDING}
            for one in self.recording.values():
                self._closing.callback(one.close)
                self.ports[one.broker_id] = one.port
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closing.close()

    def _close_tree(self) -> None:
        self.tree.stop()
        self.tree.close()

    def _start_controller(self) -> KafkaBroker | KafkapyBroker:
        settings = {**SETTINGS, "broker.id": str(CONTROLLER)}
        directory, port = self._directory / "controller", self.ports[CONTROLLER]
        if self.kind == "kafka":
            return KafkaBroker(directory, settings, port=port, zookeeper=self.zookeeper.address)
        return KafkapyBroker(directory, {**settings, "zookeeper.connect": self.zookeeper.address}, port=port)

    # --- brokers

    def start_other(self, in_sync: Sequence[tuple[str, int]] = ()) -> None:
        """Start broker 2, and wait until it is registered, and is in the ISR of these partitions."""
        settings = {**SETTINGS, "broker.id": str(OTHER), "zookeeper.connect": self.zookeeper.address}
        self.other = KafkapyBroker(self._directory / "other", settings, port=self.ports[OTHER])
        self.until(lambda: self.tree.exists(f"/brokers/ids/{OTHER}"))
        for topic, partition in in_sync:
            self.until(lambda topic=topic, partition=partition: OTHER in self.state(topic, partition)[0]["isr"])

    def stop_other(self) -> None:
        """Stop broker 2, which shuts down under control."""
        assert self.other is not None
        self.other.stop()
        self.other = None
        self.until(lambda: not self.tree.exists(f"/brokers/ids/{OTHER}"))

    def kill_other(self) -> None:
        """Kill broker 2, and end its session."""
        assert self.other is not None
        self.other.kill()
        self.other = None
        self.tree.delete(f"/brokers/ids/{OTHER}")

    def _end_other(self) -> None:
        if self.other is not None:
            self.other.kill()

    def start(self, *brokers: int, rack: str = "") -> None:
        """Register recording brokers, one after the other. What they knew is forgotten."""
        for one in brokers:
            self._known[one] = Known()
            self.recording[one].start(rack)
            self.settle()

    def stop(self, *brokers: int) -> None:
        """End the sessions of recording brokers, one after the other: if two are gone at once, it depends on Kafka's
        hash maps which of them stays in an ISR."""
        for one in brokers:
            self.recording[one].stop()
            self.settle()

    def restart_with_disk(self, broker: int) -> None:
        """Restart a recording broker; all its disks work again."""
        self.recording[broker].failed.clear()
        self.bounce(broker)

    def fail_directory(self, broker: int, *partitions: tuple[str, int]) -> None:
        """Let a recording broker lose replicas, and tell the controller."""
        self.recording[broker].failed.update(partitions)
        self.note_directory(broker)

    def bounce(self, broker: int) -> None:
        self._known[broker] = Known()
        self.recording[broker].bounce()

    def shut_down(self, broker: int, *, epoch: int | None = None) -> Any:
        """Ask for the controlled shutdown of a recording broker."""
        epoch = self.recording[broker].epoch if epoch is None else epoch
        return self.call(apis.CONTROLLED_SHUTDOWN, 3, broker_id=broker, broker_epoch=epoch)

    def move_controller(self) -> None:
        """End the controller's term; broker 1 is elected again, because broker 2 is stopped meanwhile."""
        epoch = self.tree.get("/controller_epoch")[0]
        for one in RECORDING:
            self._known[one] = Known()
        if self.other is not None:
            self.other.process.child.send_signal(signal.SIGSTOP)
        try:
            self.tree.delete("/controller")
            self.until(lambda: self.tree.get("/controller_epoch")[0] != epoch)
        finally:
            if self.other is not None:
                self.other.process.child.send_signal(signal.SIGCONT)

    def restart_controller(self, while_down: Callable[[Stage], None] = lambda stage: None) -> None:
        """Kill broker 1, which ends the controller's term, do something else, and start it again."""
        if self.other is not None:
            self.other.process.child.send_signal(signal.SIGSTOP)
        try:
            self._wire.close()
            self.controller.process.kill()
            for path in ("/controller", f"/brokers/ids/{CONTROLLER}"):
                self.tree.delete(path)
            while_down(self)
            for one in RECORDING:
                self._known[one] = Known()
            self.controller = self._start_controller()
            self._wire = Wire(f"127.0.0.1:{self.ports[CONTROLLER]}", 90)
        finally:
            if self.other is not None:
                self.other.process.child.send_signal(signal.SIGCONT)

    # --- requests of clients and brokers to the controller

    def call(self, api: Api, version: int, **fields: Any) -> Any:
        """Send a request to the controller; return the response with names, without messages of errors."""
        return self._named(self._wire.call(api, version, **fields))

    def _named(self, value: Any, topic: str | None = None) -> Any:
        """Return a message as a dict, without what differs between two clusters that are alike."""
        if isinstance(value, Message):
            names = [getattr(value, field, None) for field in ("name", "topic_name", "topic")]
            topic = next((one for one in names if isinstance(one, str) and one), topic)
            skipped = ("error_message", "throttle_time_ms", "cluster_id")
            found = {}
            for field in value._fields:
                if field in skipped:
                    continue
                one = getattr(value, field)
                if field == "topic_id":
                    one = self.id_name(one, topic)
                elif field == "port":
                    one = self.port_name(one)
                found[field] = self._named(one, topic)
            return found
        if isinstance(value, list | tuple):
            values = [self._named(one, topic) for one in value]
            # Kafka's results are in the order of a hash map.
            return sorted(values, key=str) if any(isinstance(one, dict) for one in values) else values
        return value

    def port_name(self, port: int) -> str:
        return next((f"port of {one}" for one, its in self.ports.items() if its == port), str(port))

    def id_name(self, topic_id: bytes, topic: str | None = None) -> str:
        """Return a name for a topic id: the topic's name, and a number if the topic has had another id before."""
        if topic_id == bytes(16):
            return "no id"
        if topic_id not in self._ids:
            if topic is None:
                return "unknown id"
            number = self._generations[topic] = self._generations.get(topic, 0) + 1
            self._ids[topic_id] = f"id {number} of {topic}"
        return self._ids[topic_id]

    def topic_id(self, topic: str) -> bytes:
        """Return the topic id in the tree."""
        text = json.loads(self.tree.get(f"/brokers/topics/{topic}")[0])["topic_id"]
        return base64.urlsafe_b64decode(text + "==")

    def create(
        self,
        name: str,
        assignment: Assignment = (),
        *,
        counts: tuple[int, int] = (-1, -1),
        check: bool = False,
        **configs: str,
    ) -> Any:
        """Create a topic by request. Settings have underscores for dots."""
        make = apis.CREATE_TOPICS.Request.Topics
        topic = make(
            name=name,
            num_partitions=counts[0],
            replication_factor=counts[1],
            assignments=[
                make.Assignments(partition_index=at, broker_ids=list(ids)) for at, ids in enumerate(assignment)
            ],
            configs=[make.Configs(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        answer = self.call(apis.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000, validate_only=check)
        for one in answer["topics"]:  # compared by DescribeConfigs elsewhere
            del one["configs"]
        return answer

    def extend(self, name: str, count: int, added: Assignment | None = None) -> Any:
        make = apis.CREATE_PARTITIONS.Request.Topics
        assignments = None if added is None else [make.Assignments(broker_ids=list(ids)) for ids in added]
        topic = make(name=name, count=count, assignments=assignments)
        return self.call(apis.CREATE_PARTITIONS, 3, topics=[topic], timeout_ms=30_000, validate_only=False)

    def delete(self, *names: str, wait: bool = True) -> Any:
        """Delete topics by request."""
        answer = self.call(apis.DELETE_TOPICS, 5, topic_names=list(names), timeout_ms=30_000 if wait else 100)
        if wait:
            self.until(lambda: not any(self.tree.exists(f"/brokers/topics/{one}") for one in names))
        return answer

    def delete_with_failure(self, name: str, broker: int) -> Any:
        """Delete a topic that a recording broker cannot delete."""
        self.recording[broker].failed.update((name, index) for index in range(10))
        return self.delete(name, wait=False)

    def create_while_held(self, name: str, assignment: Assignment, broker: int) -> Any:
        """Create a topic while a recording broker answers nothing."""
        self.recording[broker].hold()
        return self.create(name, assignment)

    def elect_all(self, kind: int) -> Any:
        """Ask for elections of all partitions. The results are not compared: only Kafka's include the others."""
        answer = self.call(apis.ELECT_LEADERS, 2, election_type=kind, topic_partitions=None, timeout_ms=30_000)
        return answer

    def elect(self, kind: int, **partitions: Sequence[int]) -> Any:
        """Ask for elections, 0 preferred and 1 unclean: topic=[partition, ...]."""
        make = apis.ELECT_LEADERS.Request.TopicPartitions
        asked = [make(topic=topic, partitions=list(ids)) for topic, ids in partitions.items()]
        return self.call(apis.ELECT_LEADERS, 2, election_type=kind, topic_partitions=asked, timeout_ms=30_000)

    def reassign(self, topic: str, targets: Mapping[int, Sequence[int] | None]) -> Any:
        """Move partitions to other replicas; None cancels."""
        make = apis.ALTER_PARTITION_REASSIGNMENTS.Request.Topics
        partitions = [
            make.Partitions(partition_index=index, replicas=None if ids is None else list(ids))
            for index, ids in targets.items()
        ]
        asked = [make(name=topic, partitions=partitions)]
        return self.call(apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=asked, timeout_ms=30_000)

    def configure(self, kind: int, name: str, **values: str | None) -> Any:
        """Set settings of a topic (kind 2) or a broker (4), or delete them (None)."""
        make = apis.INCREMENTAL_ALTER_CONFIGS.Request.Resources
        configs = [
            make.Configs(name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value)
            for key, value in values.items()
        ]
        asked = [make(resource_type=kind, resource_name=name, configs=configs)]
        return self.call(apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=False)

    def update_feature(self, name: str, level: int, upgrade_type: int) -> Any:
        make = apis.UPDATE_FEATURES.Request.FeatureUpdates
        one = make(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        return self.call(apis.UPDATE_FEATURES, 1, feature_updates=[one])

    def state(self, topic: str, partition: int) -> tuple[dict[str, Any], int]:
        """Return a partition's state in the tree, and the version of its node."""
        data, stat = self.tree.get(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return json.loads(data), stat.version

    def alter_isr(
        self,
        topic: str,
        partition: int,
        isr: Sequence[int],
        *,
        leader: int | None = None,
        older: int = 0,
        older_epoch: int = 0,
        recovery: int = 0,
        broker_epoch: int | None = None,
        topic_id: bytes | None = None,
    ) -> Any:
        """Ask for another ISR as the leader does. `older`: with a partition epoch that is older by so much."""
        state, version = self.state(topic, partition)
        leader = state["leader"] if leader is None else leader
        assert leader is not None
        make = apis.ALTER_PARTITION.Request.Topics
        one = make.Partitions(
            partition_index=partition,
            leader_epoch=state["leader_epoch"] - older_epoch,
            new_isr_with_epochs=[make.Partitions.NewIsrWithEpochs(broker_id=each) for each in isr],
            leader_recovery_state=recovery,
            partition_epoch=version - older,
        )
        answer = self.call(
            apis.ALTER_PARTITION,
            3,
            broker_id=leader,
            broker_epoch=self.recording[leader].epoch if broker_epoch is None else broker_epoch,
            topics=[make(topic_id=topic_id or self.topic_id(topic), partitions=[one])],
        )
        for each in answer["topics"]:
            for part in each["partitions"]:  # the epoch is that of the request, the version is not compared
                del part["leader_epoch"], part["partition_epoch"]
        return answer

    def catch_up(self, *topics: str) -> list[Any]:
        """Let recording brokers that lead partitions take all live replicas into the ISR. Return the responses."""
        answers = []
        for topic in topics:
            assignment = json.loads(self.tree.get(f"/brokers/topics/{topic}")[0])["partitions"]
            for partition, replicas in sorted(assignment.items()):
                state, _ = self.state(topic, int(partition))
                live = [one for one in replicas if self.tree.exists(f"/brokers/ids/{one}")]
                missing = [one for one in live if one not in state["isr"]]
                if missing and state["leader"] in self.recording:
                    answers.append(self.alter_isr(topic, int(partition), [*state["isr"], *missing]))
        return answers

    def move_twice(self, topic: str, partition: int, by_tool: Sequence[int], by_request: Sequence[int]) -> Any:
        """Move a partition as an old tool does, and before that is done elsewhere by a request."""
        asked = {"topic": topic, "partition": partition, "replicas": list(by_tool)}
        self.ask("/admin/reassign_partitions", {"version": 1, "partitions": [asked]}, wait=False)
        self.settle()
        return self.reassign(topic, {partition: by_request})

    def move_and_wait(self, topic: str, partition: int, target: Sequence[int]) -> Any:
        """Move a partition, and wait until that is done."""
        answer = self.reassign(topic, {partition: target})
        path = f"/brokers/topics/{topic}"
        self.until(lambda: json.loads(self.tree.get(path)[0])["partitions"][str(partition)] == list(target))
        return answer

    def until_in_sync(self, topic: str, partition: int, *isr: int) -> None:
        self.until(lambda: set(self.state(topic, partition)[0]["isr"]) >= set(isr))

    # --- what people and old tools write to the tree

    def ask(self, path: str, value: Any, *, wait: bool = True) -> None:
        """Ask the controller for something by a node in `/admin`, and wait until it has removed the node."""
        self.write(path, value)
        if wait:
            self.until(lambda: not self.tree.exists(path), f"{path} is not removed")

    def ask_in_vain(self, path: str, value: Any) -> bool:
        """Ask for something invalid; return True if the controller has removed the node."""
        self.write(path, value)
        self.settle()
        is_removed = not self.tree.exists(path)
        if not is_removed:
            self.tree.delete(path)
        return is_removed

    def note(self, path: str, value: Any) -> None:
        """Write a note to the controller, and wait until it has removed the note."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        made = self.tree.create(path, data, sequence=True)
        self.until(lambda: not self.tree.exists(made), f"{made} is not removed")

    def note_directory(self, broker: int) -> None:
        self.note("/log_dir_event_notification/log_dir_event_", {"version": 1, "broker": broker, "event": 1})

    def note_isr(self, topic: str, partition: int) -> None:
        what = {"version": 1, "partitions": [{"topic": topic, "partition": partition}]}
        self.note("/isr_change_notification/isr_change_", what)

    def write_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Write a partition's ISR as leaders before Kafka 2.7 do, with a note to the controller."""
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        self.change(path, lambda state: state.update(isr=list(isr)))
        self.note_isr(topic, partition)

    def remove(self, path: str) -> None:
        """Remove a node and all below it, if it exists."""
        with contextlib.suppress(NoNodeError):
            self.tree.delete(path, recursive=True)

    def write(self, path: str, value: Any) -> None:
        """Write a node, or create it."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        try:
            self.tree.set(path, data)
        except NoNodeError:
            self.tree.create(path, data)

    def change(self, path: str, edit: Callable[[Any], Any]) -> None:
        """Edit a node with JSON in place."""
        value = json.loads(self.tree.get(path)[0])
        edit(value)
        self.tree.set(path, json.dumps(value).encode())

    def write_topic(self, name: str, assignment: Mapping[int, Sequence[int]], **more: Any) -> None:
        """Write a topic's node as tools before Kafka 2.4 do."""
        partitions = {str(index): list(ids) for index, ids in assignment.items()}
        self.write(f"/brokers/topics/{name}", {"version": 1, "partitions": partitions, **more})

    def extend_by_hand(self, name: str, *added: Sequence[int]) -> None:
        """Add partitions with these replicas to a topic's node, and change nothing else."""

        def add(topic: Any) -> None:
            for replicas in added:
                topic["partitions"][str(len(topic["partitions"]))] = list(replicas)

        self.change(f"/brokers/topics/{name}", add)

    def set_by_hand(self, topic: str, **values: str) -> None:
        """Change a topic's settings as old tools do: the node of the settings, then a notification."""
        config = {key.replace("_", "."): value for key, value in values.items()}
        self.write(f"/config/topics/{topic}", {"version": 1, "config": config})
        note = {"version": 2, "entity_path": f"topics/{topic}"}
        self.tree.create("/config/changes/config_change_", json.dumps(note).encode(), sequence=True)

    # --- waiting

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait until the condition is true."""
        deadline = time.monotonic() + _QUIET_S
        while not condition():
            assert time.monotonic() < deadline, f"{self.kind}: {what or 'not in time'}"
            time.sleep(0.01)

    def settle(self) -> None:
        """Wait until nothing changes any more: neither the tree, nor what brokers say, nor what they are sent."""
        deadline = time.monotonic() + _QUIET_S
        before, unchanged = None, 0
        while unchanged < _LOOKS:
            now = self._digest()
            led = [_led(one) for one in now[-1].values()]
            is_known = all(one == led[0] for one in led)  # to both brokers
            assert time.monotonic() < deadline, (
                f"{self.kind}: not quiet after {_QUIET_S:.0f} s: {[*_different(*led[-2:])] or (before, now)}"
            )
            unchanged = unchanged + 1 if now == before and is_known else 0
            before = now
            time.sleep(_APART_S)

    def _digest(self) -> Any:
        # Behind all that the controller has to do already.
        make = apis.ELECT_LEADERS.Request.TopicPartitions
        asked = [make(topic=_MISSING, partitions=[0])]
        self._wire.call(apis.ELECT_LEADERS, 2, election_type=0, topic_partitions=asked, timeout_ms=30_000)
        changes = [line for line in self.zookeeper.ask("srvr").splitlines() if line.startswith("Zxid")]
        return changes, [one.count for one in self.recording.values()], self.metadata()

    # --- what there is to see

    def look(self) -> dict[str, Any]:
        """Return what the tree, the brokers and the recordings have to show, each a dict of its own."""
        nodes = self.nodes()
        epochs = {}
        for path, value in nodes.items():
            if path.endswith("/state") and isinstance(value, dict):
                topic, partition = path.split("/")[3:6:2]
                epochs[f"{topic}-{partition}"] = value.pop("leader_epoch")
        rises = {about: epoch - self._epochs.get(about, 0) for about, epoch in epochs.items()}
        self._epochs = epochs
        seen: dict[str, Any] = {
            "znodes": nodes,
            "rises of epochs": {about: rise for about, rise in rises.items() if rise},
            "metadata": self.metadata(epochs),
            "reassignments": self.call(apis.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout_ms=30_000)["topics"],
        }
        for broker_id, one in self.recording.items():
            sayings = told(one.take(), self._known[broker_id], self, epochs)
            seen[f"sent to {broker_id}"] = {about: its for about, its in sayings.items() if not _is_random(about)}
        return seen

    def metadata(self, epochs: Mapping[str, int] = {}) -> dict[str, Any]:
        """Return what Metadata of the real brokers says: topics by name, brokers by id. Leader epochs are counted from
        `epochs`.
        """
        running = [CONTROLLER] if self.other is None else [CONTROLLER, OTHER]
        return {f"of {one}": self._metadata(one, epochs) for one in running}

    def _metadata(self, broker: int, epochs: Mapping[str, int]) -> Any:
        with Wire(f"127.0.0.1:{self.ports[broker]}", 60) as wire:
            found = self._named(wire.call(apis.METADATA, 12, topics=None, allow_auto_topic_creation=False))
        topics = {one["name"]: one for one in found["topics"]}
        for name, one in topics.items():
            one["partitions"] = {part["partition_index"]: part for part in one["partitions"]}
            for index, part in one["partitions"].items():
                part["leader_epoch"] -= epochs.get(f"{name}-{index}", 0)
            if _is_random(name):
                one["partitions"] = [len(part["isr_nodes"]) for part in one["partitions"].values()]
        return {
            "topics": topics,
            "brokers": {one["node_id"]: (one["port"], one["rack"]) for one in found["brokers"]},
            "controller": found["controller_id"],
        }

    def nodes(self) -> dict[str, Any]:
        """Return the content of all nodes, by path."""
        found: dict[str, Any] = {}
        level = ["/"]
        while level:
            waiting = [(path, self.tree.get_async(path), self.tree.get_children_async(path)) for path in level]
            level = []
            for path, data, children in waiting:
                try:
                    content, names = data.get()[0], children.get()
                except NoNodeError:
                    continue
                if path != "/":
                    is_random = "/random-" in path and path.startswith("/brokers/topics")
                    found[path] = "random" if is_random else self._node(path, content)
                level += [f"{path.rstrip('/')}/{name}" for name in names if f"{path}{name}" != "/zookeeper"]
        return dict(sorted(found.items()))

    def _node(self, path: str, content: bytes | None) -> Any:
        if not content:
            return "empty"
        if path == "/cluster/id":
            return "the cluster's id"
        try:
            value = json.loads(content)
        except ValueError:
            return content
        if not isinstance(value, dict):
            return value
        for field in _SINCE_EPOCH:
            value.pop(field, None)
        if path.startswith("/brokers/ids/"):
            value = {field: value.get(field) for field in ("version", "rack", "features")}
        if "topic_id" in value:
            topic_id = base64.urlsafe_b64decode(value["topic_id"] + "==")
            value["topic_id"] = self.id_name(topic_id, path.rpartition("/")[2])
        return value


def _led(metadata: Any) -> Any:
    """Return what Metadata says of partitions with a leader, and of the brokers."""
    topics = metadata["topics"]
    partitions = {name: one["partitions"] for name, one in topics.items() if not _is_random(name)}
    led: dict[Any, Any] = {
        (name, index): part
        for name, parts in partitions.items()
        for index, part in parts.items()
        if part["leader_id"] >= 0
    }
    return led | {"brokers": metadata["brokers"], "controller": metadata["controller"]}


def _different(one: Any, other: Any = None) -> Iterator[Any]:
    for key in {*one, *(other or {})}:
        if other and one.get(key) != other.get(key):
            yield key, one.get(key), other.get(key)


def _is_random(name: str) -> bool:
    return name.startswith("random-")


def errors_of(answer: Any) -> set[int]:
    """Return all error codes in a response."""
    if isinstance(answer, dict):
        found = {answer["error_code"]} if "error_code" in answer else set()
        return found.union(*(errors_of(one) for one in answer.values()))
    if isinstance(answer, list):
        return set().union(*(errors_of(one) for one in answer))
    return set()


def refused(answer: Any) -> bool:
    """Return True if a response has any error."""
    return errors_of(answer) != {Errors.NONE}
