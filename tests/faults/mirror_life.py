"""Two clusters, a writer that always produces to one of them, and mirrors in their own processes."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkapy.client import Admin, Consumer, RecordProducer
from kafkapy.client.errors import ClientError
from kafkapy.client.fetched import Isolation
from kafkapy.errors import KafkaError
from tests.harness.brokers import Broker, KafkaBroker, KafkapyBroker, Process, free_port, kafkapy_command

TOPIC = "t"
PARTITIONS = 3
PATIENCE_S = 120.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
SESSION_MS = 1500
KINDS = {"kafkapy": KafkapyBroker, "kafka": KafkaBroker, "zookeeper": KafkaBroker}


class Side:
    """A broker that can be killed and started again at the same address."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = KINDS[kind]
        self._directory = directory
        self._port = free_port()
        self._keeper: str | None = None
        self.broker: Broker = self._kind(directory, SETTINGS, port=self._port)
        self.address = self.broker.bootstrap

    def kill(self) -> None:
        """Kill the broker and start it again. Apache Kafka's ZooKeeper keeps running."""
        self.broker.process.kill()
        if isinstance(self.broker, KafkaBroker):
            first = self.broker
            _end_session(first.zookeeper)
            self.broker = KafkaBroker(self._directory, SETTINGS, port=self._port, zookeeper=first.zookeeper)
            self.broker._keeper, first._keeper = first._keeper, None
        else:
            self.broker = KafkapyBroker(self._directory, SETTINGS, port=self._port)

    def end(self) -> None:
        self.broker.kill()


def _end_session(zookeeper: str) -> None:
    """Delete the ephemeral nodes of a killed broker, instead of waiting some seconds for its session to expire."""
    keeper = KazooClient(zookeeper)
    keeper.start()
    for path in ("/brokers/ids/0", "/controller"):
        with contextlib.suppress(NoNodeError):
            keeper.delete(path)
    keeper.stop()
    keeper.close()


class Writing:
    """A thread that writes each number once, with or without a key, until stop() is called."""

    def __init__(self, servers: str) -> None:
        self.written = 0
        self.failure: BaseException | None = None
        self._enough = threading.Event()
        self._servers = servers
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._enough.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            with RecordProducer(self._servers, timeout_s=PATIENCE_S, batch_bytes=1000) as producer:
                number = 0
                while not self._enough.is_set():
                    for _ in range(50):
                        key = b"%d" % (number % 7) if number % 3 else None
                        producer.send(TOPIC, b"%d" % number, key)
                        number += 1
                    producer.flush()
                    self.written = number
                    self._enough.wait(0.005)
        except BaseException as error:
            self.failure = error


class MirrorProcess:
    """A process of `kafkapy mirror` or, with `moment`, of dying_mirror.py, which kills itself at that moment."""

    def __init__(self, directory: Path, name: str, words: list[str], moment: str | None = None) -> None:
        command = [*kafkapy_command()]
        if moment is not None:
            command = [sys.executable, str(Path(__file__).with_name("dying_mirror.py")), moment]
        self._command = [*command, "mirror", *words]
        self.log = directory / f"{name}.log"
        self.process = Process(self._command, self.log)

    def wait_until_it_has_begun(self) -> None:
        """Wait until the mirror has reached both clusters. From then on, it waits for a cluster that is away."""
        deadline = time.monotonic() + PATIENCE_S
        while "kafkapy: mirroring" not in self.log.read_text():
            assert self.runs, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @property
    def runs(self) -> bool:
        return self.process.child.poll() is None

    def freeze(self, seconds: float) -> None:
        """Stop the process for `seconds`, so that it loses its session."""
        self.process.freeze()
        time.sleep(seconds)
        self.process.thaw()

    def kill(self) -> None:
        self.process.thaw()
        self.process.kill()

    def stop(self) -> int:
        return self.process.stop()


class Life:
    """Both clusters, the writer, and the properties files of the mirrors."""

    def __init__(self, directory: Path, source: str, target: str, *, exactly_once: bool) -> None:
        self.directory = directory
        self.exactly_once = exactly_once
        self.session_s = 6.0 if source == "zookeeper" else SESSION_MS / 1000
        self.source = Side(source, directory / "source")
        self.target = Side(target, directory / "target")
        with Admin(self.source.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        properties = (
            f"bootstrap.servers={self.source.address}\ngroup.id=mirror\nsession.timeout.ms={SESSION_MS}\n"
            "heartbeat.interval.ms=300\nfetch.max.wait.ms=100\n"
        )
        if source == "zookeeper":
            assert isinstance(self.source.broker, KafkaBroker)
            properties = (
                f"zookeeper.connect={self.source.broker.zookeeper}\ngroup.id=mirror\n"
                "zookeeper.session.timeout.ms=6000\nrebalance.max.retries=40\nrebalance.backoff.ms=500\n"
            )
        (directory / "source.properties").write_text(properties)
        (directory / "target.properties").write_text(
            f"bootstrap.servers={self.target.address}\nbatch.size=2000\ntransaction.timeout.ms=20000\n"
        )
        self.writing = Writing(self.source.address)

    def mirror(self, name: str, moment: str | None = None) -> MirrorProcess:
        words = ["--consumer", f"{self.directory}/source.properties", "--producer"]
        words += [f"{self.directory}/target.properties", "--whitelist", TOPIC, "--log-level", "info"]
        words += ["--offset-commit-interval-ms", "150", "--progress", "1"]
        return MirrorProcess(self.directory, name, [*words, *(["--exactly-once"] if self.exactly_once else [])], moment)

    @property
    def isolation(self) -> Isolation:
        return "read_committed" if self.exactly_once else "read_uncommitted"

    def mirrored(self) -> int:
        """Return the sum of the target's end offsets, about the number of records. Wait until the target answers."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with Consumer(self.target.address, isolation=self.isolation) as consumer:
                    consumer.assign_topic(TOPIC)
                    return sum(consumer.end_offsets().values())
            except (ClientError, KafkaError):
                assert time.monotonic() < deadline, "the target has no topic"
                time.sleep(0.05)

    def wait_for_more(self, records: int) -> None:
        """Wait until the target has `records` more records."""
        wanted = self.mirrored() + records
        deadline = time.monotonic() + PATIENCE_S
        while (now := self.mirrored()) < wanted:
            assert time.monotonic() < deadline, f"nothing comes any more: {now} of {wanted}"
            assert self.writing.failure is None, self.writing.failure
            time.sleep(0.02)

    def counted(self) -> Counter[int]:
        """Wait until all numbers are in the target. Return how often each number is there."""
        self.writing.stop()
        found: Counter[int] = Counter()
        deadline = time.monotonic() + PATIENCE_S
        with Consumer(self.target.address, isolation=self.isolation) as consumer:
            consumer.assign_topic(TOPIC)
            while len(found) < self.writing.written:
                for record in consumer.poll():
                    found[int(record.value or b"-1")] += 1
                missing = self.writing.written - len(found)
                assert time.monotonic() < deadline, f"{missing} of {self.writing.written} records never come"
            for record in consumer.records(until=consumer.end_offsets()):
                found[int(record.value or b"-1")] += 1
        assert set(found) == set(range(self.writing.written))
        return found

    def end(self) -> None:
        self.source.end()
        self.target.end()
