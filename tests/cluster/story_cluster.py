"""The cluster in which the story happens. Broker 1 is the controller, of Apache Kafka or kafkapy.

Everything else is the same with both: a ZooKeeper, broker 2, which is kafkapy, and the recording brokers 3, 4 and 5.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.protocol.apis import Api
from tests.cluster.recording_broker import RecordingBroker
from tests.cluster.requests_received import Received, new_changes
from tests.cluster.story_names import Names
from tests.cluster.story_view import different, is_random, metadata, nodes, with_leader
from tests.harness.brokers import KafkaBroker, KafkapyBroker, free_port
from tests.harness.wire import Wire
from tests.harness.zookeeper import ZooKeeper

CONTROLLER, OTHER, RECORDING = 1, 2, (3, 4, 5)
SETTINGS = {
    "num.partitions": "1",
    "default.replication.factor": "2",
    "auto.create.topics.enable": "true",
    "auto.leader.rebalance.enable": "false",  # runs by a timer, at times that are not comparable
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
# A cluster is quiet when it is unchanged for so many looks, this far apart.
_LOOKS, _APART_S = 4, 0.03
_QUIET_S = 60.0
_MISSING = "no-such-topic"


class StoryCluster:
    """A cluster whose controller is of the given kind, "kafka" or "kafkapy"."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.kind = kind
        self._directory = directory
        self._closing = contextlib.ExitStack()
        self._epochs: dict[str, int] = {}
        self._received = {one: Received() for one in RECORDING}
        try:
            self.zookeeper = ZooKeeper(directory / "zookeeper")
            self._closing.callback(self.zookeeper.stop)
            self.tree = KazooClient(hosts=self.zookeeper.address, timeout=60)
            self.tree.start(timeout=30)
            self._closing.callback(self._close_tree)
            self.ports = {CONTROLLER: free_port(), OTHER: free_port()}
            self.names = Names(self.ports)
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
        """Start broker 2, and wait until it is registered and in the ISR of these partitions."""
        settings = {**SETTINGS, "broker.id": str(OTHER), "zookeeper.connect": self.zookeeper.address}
        self.other = KafkapyBroker(self._directory / "other", settings, port=self.ports[OTHER])
        self.until(lambda: self.is_seen(OTHER))
        for topic, partition in in_sync:
            self.until(lambda topic=topic, partition=partition: OTHER in self.state(topic, partition)[0]["isr"])

    def stop_other(self) -> None:
        """Stop broker 2 with a controlled shutdown."""
        assert self.other is not None
        self.other.stop()
        self.other = None
        self.until(lambda: not self.is_seen(OTHER))

    def kill_other(self) -> None:
        """Kill broker 2, and end its session."""
        assert self.other is not None
        self.other.kill()
        self.other = None
        self.tree.delete(f"/brokers/ids/{OTHER}")
        self.until(lambda: not self.is_seen(OTHER))

    def _end_other(self) -> None:
        if self.other is not None:
            self.other.kill()

    def start(self, *brokers: int, rack: str = "") -> None:
        """Register recording brokers one after the other. They have received no changes yet."""
        for one in brokers:
            self._received[one] = Received()
            self.recording[one].start(rack)
            self.until(lambda one=one: self.is_seen(one))
            self.settle()

    def stop(self, *brokers: int) -> None:
        """End the sessions of recording brokers one after the other. If two were gone at once, Kafka's hash maps would
        decide which of them stays in an ISR."""
        for one in brokers:
            self.recording[one].stop()
            self.until(lambda one=one: not self.is_seen(one))
            self.settle()

    def restart_with_disk(self, broker: int) -> None:
        """Restart a recording broker with all its log directories online again."""
        self.recording[broker].failed.clear()
        self.bounce(broker)

    def bounce(self, broker: int) -> None:
        self._received[broker] = Received()
        count = self.recording[broker].count
        self.recording[broker].bounce()
        self.until(lambda: self.recording[broker].count > count)

    def shut_down(self, broker: int, *, epoch: int | None = None) -> Any:
        """Request the controlled shutdown of a recording broker. Return the response."""
        epoch = self.recording[broker].epoch if epoch is None else epoch
        return self.call(apis.CONTROLLED_SHUTDOWN, 3, broker_id=broker, broker_epoch=epoch)

    def move_controller(self) -> None:
        """Have a new controller elected: broker 1 again, because broker 2 is frozen meanwhile."""
        epoch = self.tree.get("/controller_epoch")[0]
        with self._next_term():
            counts = {one: self.recording[one].count for one in RECORDING if self.recording[one].epoch >= 0}
            self.tree.delete("/controller")
            self.until(lambda: self.tree.get("/controller_epoch")[0] != epoch)
            self.until(lambda: all(self.recording[one].count > count for one, count in counts.items()))

    def restart_controller(self, while_down: Callable[[Any], None] = lambda stage: None) -> None:
        """Kill broker 1, the controller, call `while_down`, and start broker 1 again as the next controller."""
        epoch = self.tree.get("/controller_epoch")[0]
        with self._next_term():
            self._wire.close()
            self.controller.process.kill()
            for path in ("/controller", f"/brokers/ids/{CONTROLLER}"):
                self.tree.delete(path)
            while_down(self)
            self.controller = self._start_controller()
            self._wire = Wire(f"127.0.0.1:{self.ports[CONTROLLER]}", 90)
            # Broker 1 is ready before it stands for election. Broker 2 must stay frozen so long, or it could win.
            self.until(lambda: self.tree.get("/controller_epoch")[0] != epoch, "no next controller")

    @contextlib.contextmanager
    def _next_term(self) -> Iterator[None]:
        """Freeze broker 2, so that broker 1 is elected. Forget the changes that the recording brokers have received:
        the new controller sends everything to them again."""
        self._received = {one: Received() for one in RECORDING}
        if self.other is not None:
            self.other.process.freeze()
        try:
            yield
        finally:
            if self.other is not None:
                self.other.process.thaw()

    def state(self, topic: str, partition: int) -> tuple[dict[str, Any], int]:
        """Return a partition's state in the tree, and the version of its node."""
        data, stat = self.tree.get(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return json.loads(data), stat.version

    def call(self, api: Api, version: int, **fields: Any) -> Any:
        """Send a request to the controller. Return the response with names, and without error messages."""
        return self.names.message(self._wire.call(api, version, **fields))

    # --- waiting

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait until the condition is true."""
        deadline = time.monotonic() + _QUIET_S
        while not condition():
            assert time.monotonic() < deadline, f"{self.kind}: {what or 'not in time'}"
            time.sleep(0.01)

    def settle(self) -> None:
        """Wait until neither the tree, nor the brokers' Metadata, nor the number of requests to brokers changes."""
        deadline = time.monotonic() + _QUIET_S
        before, unchanged = None, 0
        while unchanged < _LOOKS:
            if not self._has_caught_up():
                assert time.monotonic() < deadline, f"{self.kind}: broker {CONTROLLER} is not the controller"
                unchanged = 0
                time.sleep(_APART_S)
                continue
            now = self._digest()
            known = [with_leader(one) for one in now[-1].values()]  # one entry for each real broker
            unknown = list(different(known[0], known[-1]))
            assert time.monotonic() < deadline, f"{self.kind}: not quiet after {_QUIET_S:.0f} s: {unknown or now}"
            unchanged = unchanged + 1 if now == before and not unknown else 0
            before = now
            time.sleep(_APART_S)

    def _has_caught_up(self) -> bool:
        """Wait until the controller has handled all earlier events. Return False if broker 1 is not the controller."""
        make = apis.ELECT_LEADERS.Request.TopicPartitions
        asked = [make(topic=_MISSING, partitions=[0])]
        answer = self._wire.call(apis.ELECT_LEADERS, 2, election_type=0, topic_partitions=asked, timeout_ms=30_000)
        ((result,),) = (one.partition_result for one in answer.replica_election_results)
        return bool(result.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION)

    def is_seen(self, broker: int) -> bool:
        """Return True if the controller counts a broker as registered."""
        return broker in self._metadata({})[f"of {CONTROLLER}"]["brokers"]

    def _digest(self) -> Any:
        changes = [line for line in self.zookeeper.ask("srvr").splitlines() if line.startswith("Zxid")]
        return changes, [one.count for one in self.recording.values()], self._metadata({})

    # --- the state that is compared

    def look(self) -> dict[str, Any]:
        """Return the state of the tree, of the brokers' Metadata, and of the recordings, each as a dict."""
        found = nodes(self.tree, self.names)
        epochs = {}
        for path, value in found.items():
            if path.endswith("/state") and isinstance(value, dict):
                topic, partition = path.split("/")[3:6:2]
                epochs[f"{topic}-{partition}"] = value.pop("leader_epoch")
        rises = {about: epoch - self._epochs.get(about, 0) for about, epoch in epochs.items()}
        self._epochs = epochs
        seen: dict[str, Any] = {
            "znodes": found,
            "rises of epochs": {about: rise for about, rise in rises.items() if rise},
            "metadata": self._metadata(epochs),
            "reassignments": self.call(apis.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout_ms=30_000)["topics"],
        }
        for broker_id, one in self.recording.items():
            changes = new_changes(one.take(), self._received[broker_id], self.names, epochs)
            seen[f"sent to {broker_id}"] = {about: its for about, its in changes.items() if not is_random(about)}
        return seen

    def _metadata(self, epochs: Mapping[str, int]) -> dict[str, Any]:
        running = [CONTROLLER] if self.other is None else [CONTROLLER, OTHER]
        return {f"of {one}": metadata(f"127.0.0.1:{self.ports[one]}", self.names, epochs) for one in running}
