"""Clusters of Apache Kafka 3.9.1 brokers and kafkapy brokers with one ZooKeeper or three, each on a host of its own.

The hosts are network namespaces (tests/harness/network.py). A broker keeps its id, its address and its log directories
over restarts, and may be restarted as the other kind of broker.
"""

import contextlib
import json
import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from tests.harness import toolchain
from tests.harness.brokers import KAFKA_POM, KAFKA_VERSION, LOG4J, READY, Process, kafkapy_command
from tests.harness.disk_faults import DiskFaults
from tests.harness.moved_clock import MovedClock
from tests.harness.network import Network
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.harness.zookeeper import Ensemble

PORT = 9092
ZOOKEEPER_HOST = 100
CLIENT_HOST = 150
SESSION_MS = 4000
LAG_MS = 2500
STARTED = " started (kafka.server.KafkaServer)"
REGISTERED = re.compile("NodeExistsException|is already registered")
# What is needed for a look at a failed run; it is not part of what the test waits for.
LOG4J_FILE = """\
log4j.rootLogger=INFO, file
log4j.additivity.kafka.server.KafkaServer=true
log4j.logger.kafka.server.KafkaServer=INFO, stdout
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.kafka.coordinator=WARN
log4j.logger.kafka.server.KafkaConfig=WARN
log4j.logger.org.apache.kafka.common.config=WARN
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={file}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": str(LAG_MS),
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "leader.imbalance.check.interval.seconds": "10",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.segment.bytes": str(1 << 18),
    "num.replica.fetchers": "2",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(2 << 20),
    "log.cleaner.threads": "1",
}


class PartitionView(NamedTuple):
    """The state of a partition in a broker's Metadata or in ZooKeeper. `isr` is sorted."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


View = dict[tuple[str, int], PartitionView]


def rack(number: int) -> str:
    """Return the rack of a broker. It is alone in its rack, so consumers in that rack read from it."""
    return f"rack-{number}"


class Member:
    """One broker of a cluster: its log directories, its address, and its process if it runs."""

    def __init__(self, cluster: "Cluster", number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.directory = cluster.directory / f"broker-{number}"
        self.log_dirs = [self.directory / ("data" if n == 1 else f"data-{n}") for n in range(1, cluster.log_dirs + 1)]
        self.data = self.log_dirs[0]
        self.address = f"{cluster.network.address(number)}:{PORT}"
        self.frozen = False
        self.stopping = False
        self.process: Process | None = None
        self._cluster = cluster
        self.clock = MovedClock(self.directory / "clock")
        self.disk = DiskFaults(self.directory / "disk")
        self.restart_when_healed = False
        self._starts = 0

    @property
    def running(self) -> bool:
        """Return True if the process has been started and has not ended, even if it is frozen."""
        return self.process is not None and self.process.child.poll() is None

    def start(self, kind: str | None = None) -> None:
        """Start the process, as the given kind of broker, and return at once."""
        assert not self.running
        self.kind = kind or self.kind
        self._starts += 1
        self.frozen = self.stopping = self.restart_when_healed = False
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "broker.id": str(self.number),
            "zookeeper.connect": self._cluster.zookeeper.address,
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "listeners": f"PLAINTEXT://{self.address}",
            "broker.rack": rack(self.number),
            **SETTINGS,
            **self._cluster.overrides,
        }
        command = self._kafka(settings) if self.kind == "kafka" else self._kafkapy(settings)
        log = self.directory / f"{self._starts:02}-{self.kind}.log"
        libraries = f"{self.clock.library}:{self.disk.library}"
        environment = {"LD_PRELOAD": libraries, **self.clock.environment, **self.disk.environment}
        self.process = Process([*self._cluster.network.inside(self.number), *command], log, env=environment)

    def wait_until_started(self, timeout: float = 90) -> None:
        """Wait until the broker reports that it is ready. Raise AssertionError with its output otherwise.

        A broker that ends because the session of its predecessor has not expired yet is started again, as a supervisor
        does."""
        deadline = time.monotonic() + timeout
        while not self._has_started():
            assert self.process is not None
            code, said = self.process.child.poll(), self.process.output
            assert time.monotonic() < deadline, f"broker {self.number} is not ready:\n{said[-4000:]}"
            if code is not None:
                ended = f"broker {self.number} ({self.kind}) ended with {code}:\n{said[-4000:]}"
                assert REGISTERED.search(said), ended
                time.sleep(0.5)
                self.start()
            time.sleep(0.05)

    def _has_started(self) -> bool:
        assert self.process is not None
        if self.kind == "kafka":
            return any(line.endswith(STARTED) for line in self.process.lines)
        return any(READY.search(line) for line in self.process.lines)

    def stop(self, timeout: float = 90) -> None:
        """Stop the broker with SIGTERM, which begins a controlled shutdown, or wait for the end of a begun one."""
        assert self.process is not None
        self.thaw()
        # A second SIGTERM would end kafkapy at once.
        code = self.process.wait(timeout) if self.stopping else self.process.stop(timeout)
        assert code in (0, 143), f"broker {self.number} ended with {code}:\n{self.process.output[-4000:]}"
        self.process = None
        self.stopping = False

    def begin_stop(self) -> None:
        """Send SIGTERM and return at once. `stop` waits for the end."""
        assert self.process is not None
        self.process.child.send_signal(signal.SIGTERM)
        self.stopping = True

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process = None
        self.frozen = self.stopping = False

    def freeze(self) -> None:
        """Pause the process. Its sockets stay open."""
        assert self.process is not None
        self.process.freeze()
        self.frozen = True

    def thaw(self) -> None:
        """Continue the execution of a frozen process."""
        if self.frozen and self.process is not None:
            self.process.thaw()
            self.frozen = False

    def replica(self, topic: str, partition: int) -> Path:
        """Return the directory of the broker's replica of a partition, or a path that does not exist."""
        name = f"{topic}-{partition}"
        found = [each / name for each in self.log_dirs if (each / name).exists()]
        assert len(found) < 2, f"broker {self.number} has a partition in two log directories: {found}"
        return found[0] if found else self.data / name

    def logged(self) -> str:
        """Return the logs of all processes of this broker, those of kafkapy first."""
        files = [*sorted(self.directory.glob("*-kafkapy.log")), *self.directory.glob("server.log")]
        return "".join(file.read_text(errors="replace") for file in files)

    def _kafka(self, settings: dict[str, str]) -> list[str]:
        (self.directory / "log4j.properties").write_text(LOG4J + LOG4J_FILE.format(file=self.directory / "server.log"))
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return [
            toolchain.find("java"),
            f"-Xmx{self._cluster.heap_mb}m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-Dlog4j.configuration=file:{self.directory}/log4j.properties",
            "-cp",
            toolchain.maven_classpath(KAFKA_POM, KAFKA_VERSION),
            "kafka.Kafka",
            str(properties),
        ]

    def _kafkapy(self, settings: dict[str, str]) -> list[str]:
        words = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        return [*kafkapy_command(), "start", *words]


class Cluster:
    """Brokers 1 to N of the given kinds ("kafka" or "kafkapy") with one ZooKeeper or an ensemble of several. `close`
    ends and removes all."""

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str],
        overrides: dict[str, str] | None = None,
        *,
        heap_mb: int = 320,
        zookeepers: int = 1,
        log_dirs: int = 1,
        start: bool = True,
    ) -> None:
        """Start ZooKeeper and, with `start`, all brokers, and wait until all brokers know of all. Each broker has
        `log_dirs` log directories."""
        self.directory = directory
        self.log_dirs = log_dirs
        self.overrides = overrides or {}
        self.heap_mb = heap_mb
        self.network = Network()
        self.members: dict[int, Member] = {}
        self._closing = contextlib.ExitStack()
        self._closing.callback(self.network.close)
        try:
            self.zookeeper_hosts = [ZOOKEEPER_HOST + number for number in range(zookeepers)]
            hosts = {self.network.address(host): self.network.inside(host) for host in self.zookeeper_hosts}
            self.zookeeper = Ensemble(directory / "zookeeper", hosts)
            self._closing.callback(self.zookeeper.stop)
            self.tree = KazooClient(hosts=self.zookeeper.address, timeout=20)
            self.tree.start(timeout=30)
            self._closing.callback(self._close_tree)
            self.members = {number: Member(self, number, kind) for number, kind in enumerate(kinds, 1)}
            self._closing.callback(self._end_brokers)
            if start:
                self.start(self.members)
                self.wait_until_quiet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, number: int) -> Member:
        return self.members[number]

    def close(self) -> None:
        """Kill all brokers and ZooKeeper, and remove the network."""
        self._closing.close()

    def _close_tree(self) -> None:
        self.tree.stop()
        self.tree.close()

    def _end_brokers(self) -> None:
        for member in self.members.values():
            if member.running:
                member.kill()

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all brokers, for clients."""
        return ",".join(member.address for member in self.members.values())

    def inside_clients(self) -> list[str]:
        """Return the words to put before a command to run it on the clients' host."""
        return self.network.inside(CLIENT_HOST)

    def start(self, numbers: Iterable[int]) -> None:
        """Start brokers at the same time, and wait until all of them are ready."""
        for number in numbers:
            self[number].start()
        for number in numbers:
            self[number].wait_until_started()

    def heal(self) -> None:
        """Restore the network, the clocks and the disks, thaw frozen processes, and start those that do not run.
        Restart the brokers whose log directory failed. A broker that was frozen keeps its session or gets a new one."""
        self.network.heal()
        self.zookeeper.heal()
        frozen = [number for number, member in self.members.items() if member.frozen and member.running]
        heard = self.zookeeper.heard() if frozen else {}
        for member in self.members.values():
            member.clock.move(0)
            member.disk.end()
            member.thaw()
        for member in self.members.values():
            if member.running and (member.stopping or member.restart_when_healed):
                member.stop()
        for member in self.members.values():
            if not member.running:
                member.start()
        for member in self.members.values():
            member.wait_until_started()
        for number in frozen:
            self._wait_until_heard(number, heard)

    def _wait_until_heard(self, number: int, before: Mapping[int, str]) -> None:
        """Wait until ZooKeeper has heard from the session in which the broker is registered, since `before`.

        A broker that was frozen for less than its session time-out is registered and answers at once. But it may give
        up its connection and be too late with the next one: then all is quiet, and its session still expires."""

        def is_heard() -> bool:
            node = self.tree.exists(f"/brokers/ids/{number}")
            connection = None if node is None else self.zookeeper.heard().get(node.ephemeralOwner)
            return connection is not None and connection != before.get(node.ephemeralOwner)

        eventually(is_heard, seconds=60, what=f"broker {number} has no session with ZooKeeper")

    def controller(self) -> int | None:
        """Return the id of the broker in /controller, None if there is none."""
        try:
            return int(json.loads(self.tree.get("/controller")[0])["brokerid"])
        except NoNodeError:
            return None

    # --- the state of the cluster

    def view(self, number: int, timeout: float = 5) -> tuple[set[int], int, View]:
        """Return the live brokers, the controller and all partitions in one broker's Metadata."""
        with Wire(self[number].address, timeout) as wire:
            answer = wire.call(apis.METADATA, 9, topics=None, allow_auto_topic_creation=False)
        view = {}
        for topic in answer.topics:
            for one in topic.partitions:
                assert one.error_code in (Errors.NONE, Errors.LEADER_NOT_AVAILABLE), one
                view[topic.name, one.partition_index] = PartitionView(
                    one.leader_id, one.leader_epoch, tuple(one.replica_nodes), tuple(sorted(one.isr_nodes))
                )
        return {broker.node_id for broker in answer.brokers}, answer.controller_id, view

    def stored_view(self) -> View:
        """Return the state of all partitions in ZooKeeper."""
        view = {}
        for topic in self.tree.get_children("/brokers/topics"):
            assigned = json.loads(self.tree.get(f"/brokers/topics/{topic}")[0])["partitions"]
            for partition, replicas in assigned.items():
                state = json.loads(self.tree.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0])
                view[topic, int(partition)] = PartitionView(
                    state["leader"], state["leader_epoch"], tuple(replicas), tuple(sorted(state["isr"]))
                )
        return view

    def why_not_quiet(self, replicated: bool = True) -> str:
        """Return what is not yet as it will be when nothing happens any more; an empty string if all is quiet: every
        broker knows of all brokers, all replicas are in the ISR, and all brokers and ZooKeeper say the same."""
        everyone = set(self.members)
        try:
            stored = self.stored_view()
        except NoNodeError as missing:
            return f"ZooKeeper has no node {missing}"
        for (topic, partition), state in stored.items():
            if state.leader < 0 or (replicated and state.isr != tuple(sorted(state.replicas))):
                return f"{topic}-{partition} is {state}"
        for number in self.members:
            try:
                live, controller, view = self.view(number)
            except (OSError, AssertionError) as error:
                return f"broker {number} does not answer: {error!r}"
            if live != everyone or controller not in everyone:
                return f"broker {number} knows of brokers {live}, controller {controller}"
            different = [key for key in {*view, *stored} if view.get(key) != stored.get(key)]
            if self[number].kind == "kafka":  # keeps topics that were deleted while its session was expired
                different = [key for key in different if key in stored]
            if different:
                first = min(different)
                return f"broker {number} says that {first} is {view.get(first)}, ZooKeeper {stored.get(first)}"
        return ""

    def wait_until_quiet(self, timeout: float = 120, replicated: bool = True) -> View:
        """Wait until the cluster is quiet (see why_not_quiet), and return the state of all partitions."""
        deadline = time.monotonic() + timeout
        while why := self.why_not_quiet(replicated):
            assert time.monotonic() < deadline, f"not quiet after {timeout:.0f} s: {why}\n{self.ends_of_logs()}"
            time.sleep(0.2)
        return self.stored_view()

    def ends_of_logs(self, characters: int = 3000) -> str:
        """Return the last lines of each broker's log, for failure messages."""
        return "\n".join(f"--- broker {n} ({m.kind})\n{m.logged()[-characters:]}" for n, m in self.members.items())

    def create_topic(
        self, name: str, partitions: int, replicas: int = 3, *, on: Sequence[Sequence[int]] = (), **configs: str
    ) -> None:
        """Create a topic through the controller and wait until all brokers know of its leaders.

        `on` names the brokers of each partition, in place of the numbers of partitions and replicas. Settings are
        given with underscores in place of dots."""
        topics = apis.CREATE_TOPICS.Request.Topics
        settings = [topics.Configs(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        assignments = [topics.Assignments(partition_index=p, broker_ids=list(ids)) for p, ids in enumerate(on)]
        partitions = len(on) or partitions
        topic = topics(
            name=name,
            num_partitions=-1 if on else partitions,
            replication_factor=-1 if on else replicas,
            assignments=assignments,
            configs=settings,
        )

        def created() -> bool:
            with Wire(self[self._controller_by_metadata()].address) as wire:
                (answer,) = wire.call(apis.CREATE_TOPICS, 4, topics=[topic], timeout_ms=30_000).topics
            assert answer.error_code in (Errors.NONE, Errors.NOT_CONTROLLER, Errors.TOPIC_ALREADY_EXISTS), answer
            return bool(answer.error_code != Errors.NOT_CONTROLLER)

        eventually(created, seconds=60)
        wanted = {(name, partition) for partition in range(partitions)}
        eventually(
            lambda: all(wanted <= self.view(number)[2].keys() for number in self.members if self[number].running),
            seconds=60,
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until its node is gone."""

        def asked() -> bool:
            with Wire(self[self._controller_by_metadata()].address) as wire:
                (answer,) = wire.call(apis.DELETE_TOPICS, 4, topic_names=[name], timeout_ms=30_000).responses
            return bool(answer.error_code in (Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION))

        eventually(asked, seconds=60)
        eventually(lambda: not self.tree.exists(f"/brokers/topics/{name}"), seconds=60, what=f"{name} is not deleted")

    def move(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Move the topic's partitions to these brokers, and wait until the moves are complete."""
        topics = apis.ALTER_PARTITION_REASSIGNMENTS.Request.Topics
        partitions = [
            topics.Partitions(partition_index=partition, replicas=list(ids)) for partition, ids in replicas.items()
        ]
        asked = [topics(name=topic, partitions=partitions)]

        def accepted() -> bool:
            with Wire(self[self._controller_by_metadata()].address) as wire:
                answer = wire.call(apis.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=30_000, topics=asked)
            codes = {answer.error_code, *(one.error_code for each in answer.responses for one in each.partitions)}
            assert codes <= {Errors.NONE, Errors.NOT_CONTROLLER}, answer
            return codes == {Errors.NONE}

        def moved() -> bool:
            view = self.stored_view()
            wanted = {(topic, partition): tuple(ids) for partition, ids in replicas.items()}
            return all(view[key].replicas == ids and view[key].isr == tuple(sorted(ids)) for key, ids in wanted.items())

        eventually(accepted, seconds=60)
        eventually(moved, seconds=60, what=f"{topic} has not moved to {replicas}")

    def elect_preferred(self, topics: Iterable[str]) -> None:
        """Make the first replica of each partition of these topics the leader, and wait until it leads."""
        view = self.stored_view()
        wanted = {key: view[key].replicas[0] for key in view if key[0] in topics}
        make = apis.ELECT_LEADERS.Request.TopicPartitions
        asked = [
            make(topic=topic, partitions=[partition for name, partition in wanted if name == topic]) for topic in topics
        ]

        def elected() -> bool:
            with Wire(self[self._controller_by_metadata()].address) as wire:
                wire.call(apis.ELECT_LEADERS, 1, election_type=0, topic_partitions=asked, timeout_ms=30_000)
            now = self.stored_view()
            return all(now[key].leader == leader for key, leader in wanted.items())

        eventually(elected, seconds=60, what=f"the first replicas of {topics} do not lead them")

    def _controller_by_metadata(self) -> int:
        """Wait until a broker knows of a controller that runs, and return the controller's id."""

        def known() -> int | None:
            for number, member in self.members.items():
                if member.running and not member.frozen:
                    controller = self.view(number)[1]
                    if controller in self.members and self[controller].running:
                        return controller
            return None

        return eventually(known, seconds=60, what=lambda: f"no broker knows of a controller\n{self.ends_of_logs()}")
