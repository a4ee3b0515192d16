"""Runs histories: clients use a cluster while faults happen to it, and a checker reads what the clients recorded.

    python -m tests.cluster.histories --kinds kafka,kafka,kafkapy --rounds 100 --seed 7
    python -m tests.cluster.histories --kinds kafkapy*5 --zookeepers 3 --log-dirs 2

A history has a few rounds, topics of its own and new clients; the cluster stays the same over a run. In each round, one
fault happens to the cluster (nemesis.py) and is healed; in every second history an operator works meanwhile
(operator_work.py). At the end of a history the cluster must become quiet and every check must pass, or the files of the
history stay below --directory for inspection. The same seed makes the same choices.
"""

import argparse
import json
import logging
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kazoo.exceptions import NoNodeError

from kafkapy.errors import Errors, name_of
from kafkapy.protocol import apis
from tests.cluster import history, nemesis, tree_log
from tests.cluster.checker import check
from tests.cluster.operator_work import Operator
from tests.cluster.replicas import read_end, wait_until_equal
from tests.harness import toolchain
from tests.harness.brokers import KAFKA_VERSION
from tests.harness.cluster import Cluster, View, rack
from tests.harness.wire import Wire

ROOT = Path(__file__).parents[2]
JAVA_POM = ROOT / "tests" / "interop" / "java" / "pom.xml"
JAVA_SOURCES = Path(__file__).parent / "java"
PARTITIONS = 3
FINISH_S = 150


class ClientProcess:
    """A process with one or more clients on the clients' host. It takes commands on its standard input."""

    def __init__(self, cluster: Cluster, command: list[str], log: Path, files: list[Path]) -> None:
        self.files = files
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                [*cluster.inside_clients(), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                cwd=ROOT,
            )

    def say(self, line: str) -> None:
        """Send a command. Ignore that the process has ended early: the checker finds its incomplete history."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            pass

    def wait(self, timeout: float) -> None:
        """Wait until the process ends, and kill it if it does not."""
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def close(self) -> None:
        """Close the standard input."""
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # raised if the process has ended early: see `say`
            self._child.stdin.close()


class Violation(AssertionError):
    """A check of a history failed: for example, a record is lost. The test gets no second try."""


class NotYetKnown(Exception):
    """A leader does not know its high watermark yet."""


class Clients:
    """All clients of one history. `rate` is in records a second, for each producer."""

    def __init__(self, cluster: Cluster, directory: Path, number: int, rate: int) -> None:
        self._cluster = cluster
        self._directory = directory
        self.acked, self.fast = f"acked-{number}", f"fast-{number}"
        self.copies = {f"copied-rdkafka-{number}": self.acked, f"copied-java-{number}": self.acked}
        self.topics = [self.acked, self.fast, *self.copies]
        for topic in self.topics:
            cluster.create_topic(topic, PARTITIONS)
        every = dict.fromkeys(self.topics, PARTITIONS)
        near = rack(1 + number % len(cluster.members))  # consumers read from this broker (KIP-392)
        copied_rdkafka, copied_java = self.copies
        idempotent = {"acks": "all", "idempotent": True, "rate": rate, "partitions": PARTITIONS, "topic": self.acked}
        member = {"group": f"group-{number}", "topics": {self.acked: PARTITIONS}}
        copier = {"source": self.acked, "partitions": PARTITIONS}
        self._processes: dict[str, ClientProcess] = {
            "rdkafka-producer": self._rdkafka("producer", "rdkafka-producer", **idempotent, compression="lz4"),
            "rdkafka-fast": self._rdkafka(
                "producer", "rdkafka-fast", topic=self.fast, acks="1", rate=rate, partitions=PARTITIONS
            ),
            "rdkafka-copier": self._rdkafka(
                "copier", "rdkafka-copier", **copier, topic=copied_rdkafka, group=f"copy-rdkafka-{number}"
            ),
            "rdkafka-consumer": self._rdkafka("consumer", "rdkafka-consumer", topics=every, rack=near),
            "rdkafka-member": self._rdkafka("member", "rdkafka-member", **member),
        }
        java = [
            {"role": "producer", "client": "java-producer", **idempotent, "compression": "zstd"},
            {
                "role": "copier",
                "client": "java-copier",
                **copier,
                "topic": copied_java,
                "group": f"copy-java-{number}",
            },
            {
                "role": "consumer",
                "client": "java-consumer",
                "isolation": "read_committed",
                "topics": every,
                "rack": near,
            },
            {"role": "member", "client": "java-member", **member},
        ]
        self._java = self._start_java(java)
        options = self._options("watcher", topics=self.topics)
        self._watcher = ClientProcess(
            cluster,
            [sys.executable, "-m", "tests.cluster.watcher", json.dumps(options)],
            directory / "watcher.log",
            [Path(options["file"])],
        )

    def _options(self, client: str, **more: Any) -> dict[str, Any]:
        file = str(self._directory / f"{client}.jsonl")
        return {"client": client, "bootstrap": self._cluster.bootstrap, "file": file, **more}

    def _rdkafka(self, role: str, client: str, **more: Any) -> ClientProcess:
        options = self._options(client, **more)
        command = [sys.executable, "-m", "tests.cluster.rdkafka_clients", role, json.dumps(options)]
        return ClientProcess(self._cluster, command, self._directory / f"{client}.log", [Path(options["file"])])

    def _start_java(self, clients: list[dict[str, Any]]) -> ClientProcess:
        classpath = toolchain.maven_classpath(JAVA_POM, KAFKA_VERSION)
        classes = toolchain.java_classes(JAVA_SOURCES, classpath)
        options = [self._options(**each) for each in clients]
        command = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{classes}:{classpath}"]
        command += ["kafkapy.cluster.Clients", json.dumps(options)]
        files = [Path(each["file"]) for each in options]
        return ClientProcess(self._cluster, command, self._directory / "java.log", files)

    def _say(self, client: str, what: str) -> None:
        if client in self._processes:
            self._processes[client].say(what)
        else:
            self._java.say(f"{client} {what}")

    def wait_until_used(self, timeout: float = 120) -> None:
        """Wait until records have been written to all topics."""
        deadline = time.monotonic() + timeout
        while unused := [topic for topic, ends in self._ends().items() if not any(ends)]:
            assert time.monotonic() < deadline, f"not used after {timeout:.0f} s: {', '.join(unused)}"
            time.sleep(0.3)

    def _ends(self, timeout: float = 60) -> dict[str, list[int]]:
        """Return the high watermarks of all partitions by topic. Wait until the leaders know them."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                view = self._cluster.stored_view()
                return {topic: [self._end(view, topic, each) for each in range(PARTITIONS)] for topic in self.topics}
            except (NoNodeError, NotYetKnown):  # a topic is being created, or a leader was just elected
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.3)

    def _end(self, view: View, topic: str, partition: int) -> int:
        """Return the high watermark of a partition. Raise NotYetKnown if the partition has no leader, or if the leader
        was just elected and waits for LeaderAndIsr or for its followers' fetches."""
        topics = apis.LIST_OFFSETS.Request.Topics
        one = topics.Partitions(partition_index=partition, current_leader_epoch=-1, timestamp=-1)
        leader = view[topic, partition].leader
        if leader < 0:  # a busy machine can make sessions expire when nothing else is done
            raise NotYetKnown(f"{topic}-{partition} has no leader")
        with Wire(self._cluster[leader].address, 10) as wire:
            answer = wire.call(
                apis.LIST_OFFSETS,
                5,
                replica_id=-1,
                isolation_level=0,
                topics=[topics(name=topic, partitions=[one])],
            )
        (found,) = answer.topics[0].partitions
        if found.error_code in (Errors.OFFSET_NOT_AVAILABLE, Errors.NOT_LEADER_OR_FOLLOWER):
            raise NotYetKnown(f"{topic}-{partition}: {name_of(found.error_code)}")
        assert found.error_code == Errors.NONE, found
        return int(found.offset)

    def finish(self) -> None:
        """Stop the producers, let all other clients read to the end, and wait until all clients have ended."""
        for client in ("rdkafka-producer", "rdkafka-fast", "java-producer"):
            self._say(client, "stop")
        self._wait_for("rdkafka-producer", "rdkafka-fast", "java-producer")
        source = json.dumps({self.acked: self._ends()[self.acked]})
        for client in ("rdkafka-copier", "java-copier", "rdkafka-member", "java-member"):
            self._say(client, f"finish {source}")
        self._wait_for("rdkafka-copier", "java-copier", "rdkafka-member", "java-member")
        everything = json.dumps(self._ends())
        for client in ("rdkafka-consumer", "java-consumer"):
            self._say(client, f"finish {everything}")
        self._wait_for("rdkafka-consumer", "java-consumer")
        self.close()

    def _wait_for(self, *clients: str) -> None:
        """Wait at most FINISH_S seconds until the histories of these clients are complete. The checker finds the
        incomplete ones."""
        deadline = time.monotonic() + FINISH_S
        for client in clients:
            file = self._directory / f"{client}.jsonl"
            while time.monotonic() < deadline and not _is_complete(file):
                time.sleep(0.1)

    def close(self) -> None:
        """Stop the processes that still run."""
        for process in (*self._processes.values(), self._java, self._watcher):
            process.close()
        for process in (*self._processes.values(), self._java, self._watcher):
            process.wait(20)

    def histories(self) -> list[history.History]:
        """Return the histories of all clients."""
        files = [file for each in (*self._processes.values(), self._java, self._watcher) for file in each.files]
        return [history.read(file) for file in files]


def _is_complete(file: Path) -> bool:
    if not file.exists() or file.stat().st_size < 64:
        return False
    with file.open("rb") as data:
        data.seek(-64, 2)
        return b'"done"' in data.read()


Step = Callable[[Cluster, random.Random], nemesis.Done]


def run_history(
    cluster: Cluster,
    directory: Path,
    number: int,
    rng: random.Random,
    steps: Sequence[Step],
    rate: int = 60,
    *,
    operated: bool = False,
) -> list[str]:
    """Run one history in which the steps are done to the cluster one after the other. Return the problems.

    With `operated`, an operator works meanwhile. Then no step may wait for a quiet cluster."""
    directory.mkdir(parents=True, exist_ok=True)
    clients = Clients(cluster, directory, number, rate)
    operator = Operator(cluster, number, random.Random(rng.random()), clients.topics)
    try:
        clients.wait_until_used()
        if operated:
            operator.start()
        for step in steps:
            what, seconds = step(cluster, rng)
            _say(f"{what}, for {seconds:.1f} s")
            time.sleep(seconds)
            cluster.heal()
            time.sleep(rng.choice((0.5, 2, 5)))
        if operated:
            operator.finish()
            _say(f"the operator did {operator.done}")
        _wait_until_quiet(cluster)
        _say("all is quiet")
        clients.finish()
        _say("the clients have ended")
    finally:
        operator.end()
        clients.close()
    view = cluster.wait_until_quiet()
    problems = wait_until_equal(cluster, view)
    end, more = read_end(cluster, view, clients.topics)
    problems += more + check(clients.histories(), end, clients.copies) + operator.check()
    writes = tree_log.read_directories(server.transaction_logs for server in cluster.zookeeper.servers.values())
    problems += tree_log.check_tree(writes) + _exceptions(cluster)
    terms = tree_log.controllers(writes)
    _say(f"{sum(map(len, end.values()))} records, {len(terms)} controllers so far, {len(problems)} problems")
    if not problems:
        for topic in clients.topics:
            cluster.delete_topic(topic)
        operator.remove()
    return problems


def check_history(
    cluster: Cluster,
    directory: Path,
    number: int,
    rng: random.Random,
    steps: Sequence[Step],
    *,
    operated: bool = False,
) -> None:
    """Run one history. Raise Violation if there are problems."""
    problems = run_history(cluster, directory, number, rng, steps, operated=operated)
    if problems:
        raise Violation("\n".join(problems))


def _exceptions(cluster: Cluster) -> list[str]:
    """Return a sentence for each log of a kafkapy broker with a traceback."""
    logs = [log for member in cluster.members.values() for log in sorted(member.directory.glob("*-kafkapy.log"))]
    return [f"{log} has a traceback" for log in logs if "Traceback" in log.read_text(errors="replace")]


def _wait_until_quiet(cluster: Cluster) -> None:
    """Wait until the cluster is quiet. If it is not after 60 s because of a known fault of Kafka's controller, have
    another one elected, as an operator would: when ZooKeeper's response to a write is lost, the controller does not
    know the ISR that it wrote, and refuses all further changes."""
    deadline = time.monotonic() + 60
    while (why := cluster.why_not_quiet()) and time.monotonic() < deadline:
        time.sleep(0.2)
    if ", ZooKeeper PartitionView" in why:
        _say(f"another controller is to be elected: {why}")
        cluster.tree.delete("/controller")
    cluster.wait_until_quiet()


def _say(what: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {what}", flush=True)


def _step(suitable: Sequence[str], rng: random.Random, two_at_once: float) -> Step:
    first = rng.choice(suitable)
    second = [name for name in suitable if nemesis.may_be_together(first, name)]
    if not second or rng.random() >= two_at_once:
        return nemesis.FAULTS[first]
    return nemesis.together(nemesis.FAULTS[first], nemesis.FAULTS[rng.choice(second)])


def kinds(text: str) -> list[str]:
    """Return the kind of each broker; "kafka,kafkapy*2" stands for "kafka,kafkapy,kafkapy"."""
    found: list[str] = []
    for part in text.split(","):
        kind, _, count = part.partition("*")
        found += [kind] * int(count or 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="kafka*3", help="of brokers 1 to N, such as kafka,kafkapy*2")
    parser.add_argument("--zookeepers", type=int, default=1, help="servers of ZooKeeper")
    parser.add_argument("--log-dirs", type=int, default=1, help="log directories of each broker")
    parser.add_argument("--heap-mb", type=int, default=320, help="of each Apache Kafka")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rounds-per-history", type=int, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--faults", default=",".join(nemesis.FAULTS), help="choose among these only")
    parser.add_argument("--operated", choices=("never", "every-second", "always"), default="every-second")
    parser.add_argument("--two-at-once", type=float, default=0, help="how often (0 to 1) a second fault comes on top")
    parser.add_argument("--rate", type=int, default=60, help="records a second of each producer")
    parser.add_argument("--directory", type=Path, default=Path("/tmp/kafkapy-histories"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `with cluster` ends all processes
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # do not warn while ZooKeeper's leader is away
    rng = random.Random(options.seed)
    choices = options.faults.split(",")
    shutil.rmtree(options.directory, ignore_errors=True)
    print(f"{options.kinds}, {options.rounds} rounds, seed {options.seed}, in {options.directory}", flush=True)
    cluster = Cluster(
        options.directory / "cluster",
        kinds(options.kinds),
        heap_mb=options.heap_mb,
        zookeepers=options.zookeepers,
        log_dirs=options.log_dirs,
    )
    with cluster:
        for number in range(-(-options.rounds // options.rounds_per_history)):
            print(f"history {number}", flush=True)
            left = min(options.rounds_per_history, options.rounds - number * options.rounds_per_history)
            directory = options.directory / f"history-{number}"
            operated = {"never": False, "every-second": number % 2 == 1, "always": True}[options.operated]
            suitable = [name for name in nemesis.suitable(cluster, quiet=not operated) if name in choices]
            steps = [_step(suitable, rng, options.two_at_once) for _ in range(left)]
            problems = run_history(cluster, directory, number, rng, steps, options.rate, operated=operated)
            if problems:
                print("\n".join(problems))
                return 1
            shutil.rmtree(directory)
    print("all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
