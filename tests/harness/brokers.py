"""Brokers as users start them: `kafkapy start ...`, and Apache Kafka 3.9.1 with its ZooKeeper as the reference.

The same tests run with both: `KAFKAPY_INTEROP_BROKER=kafka` chooses Apache Kafka, which shows that a test requires
Kafka's behaviour and not an accidental behaviour of kafkapy.
"""

import os
import re
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.harness import toolchain
from tests.harness.raw import METADATA, Connection, array

KAFKA_POM = Path(__file__).parents[1] / "interop" / "kafka" / "pom.xml"
KAFKA_VERSION = "3.9.1"
READY = re.compile(r"^kafkapy (?P<version>\S+) ready: (?P<addresses>.+) data=(?P<data>.+) pid=(?P<pid>\d+)$")
# Settings that shorten waits of Apache Kafka in tests of groups and transactions.
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
_handed_out: set[int] = set()  # by free_port
LOG4J = """\
log4j.rootLogger=WARN, stdout
log4j.logger.kafka.server.KafkaServer=INFO
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class StartFailed(RuntimeError):
    """Raised if a broker did not start. The message has its output."""

    def __init__(self, command: list[str], code: int | None, output: str) -> None:
        self.code = code
        self.output = output
        super().__init__(f"{' '.join(command)[:400]} ended with {code}:\n{output[-4000:]}")


class Process:
    """A child process whose output goes to a file, and can be awaited line by line."""

    def __init__(self, command: list[str], log: Path, *, env: dict[str, str] | None = None) -> None:
        self.command = command
        self.log = log
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._lines: list[str] = []
        self._news = threading.Condition()
        with log.open("ab") as err:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                env={**os.environ, **(env or {})},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            with self._news:
                self._lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def lines(self) -> list[str]:
        """Return the lines on standard output so far."""
        with self._news:
            return list(self._lines)

    @property
    def output(self) -> str:
        """Return all of standard output so far, then all of standard error."""
        return "\n".join([*self._lines, self.log.read_text(errors="replace")])

    def wait_for_line(self, pattern: re.Pattern[str], timeout: float) -> re.Match[str]:
        """Return the first line of output that matches. Raise StartFailed if the child ends, or after `timeout` s."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._news:
            while True:
                while seen < len(self._lines):
                    match = pattern.search(self._lines[seen])
                    if match:
                        return match
                    seen += 1
                if not self._reader.is_alive() or time.monotonic() > deadline:
                    break
                self._news.wait(0.5)
        code = None
        if self._reader.is_alive():
            self.kill()
        else:
            code = self.child.wait(30)
        raise StartFailed(self.command, code, self.output)

    def stop(self, timeout: float = 60) -> int:
        """Send SIGTERM, and return the exit code."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float) -> int:
        """Wait until the child ends after SIGTERM. Return the exit code."""
        try:
            code = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self.command[0]} did not stop within {timeout:.0f} s of SIGTERM:\n{self.output[-4000:]}"
            ) from None
        self._reader.join(10)
        return code

    def freeze(self) -> None:
        """Stop the execution of the process (SIGSTOP); its sockets stay open."""
        self.child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the execution of the process (SIGCONT)."""
        self.child.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process with SIGKILL, as in a crash."""
        self.child.kill()
        self.child.wait(30)
        self._reader.join(10)


def kafkapy_command() -> list[str]:
    """Return the `kafkapy` command of the environment that runs the tests."""
    script = Path(sys.executable).parent / "kafkapy"
    if not script.exists():
        raise toolchain.MissingTool(f"{script} is missing: the tests need {toolchain.HOW_TO_GET['kafkapy']}")
    return [str(script)]


def add_user_offline(directory: Path, user: str, password: str) -> None:
    """Add a user to the broker with its data in `directory`/data, before its first start."""
    properties = directory / "server.properties"
    properties.write_text(f"log.dirs={directory / 'data'}\n")
    secret = directory / "secret"
    secret.write_text(password)
    words = ["users", "add", user, "--offline", "--password", f"@{secret}", "--command-config", str(properties)]
    subprocess.run([*kafkapy_command(), *words], check=True, timeout=60)


class KafkapyBroker:
    """`kafkapy start -o log.dirs=DIR -o listeners=PLAINTEXT://127.0.0.1:0 ...` in its own process."""

    kind = "kafkapy"

    def __init__(
        self,
        directory: Path,
        overrides: dict[str, str] | None = None,
        *,
        port: int = 0,
        prefix: Sequence[str] = (),
    ) -> None:
        self.data = directory / "data"
        settings = {"log.dirs": str(self.data), "listeners": f"PLAINTEXT://127.0.0.1:{port}", **(overrides or {})}
        command = [
            *prefix,
            *kafkapy_command(),
            "start",
            *(word for k, v in settings.items() for word in ("-o", f"{k}={v}")),
        ]
        self.process = Process(command, directory / "kafkapy.log")
        self.ready = self.process.wait_for_line(READY, 60)
        listener = re.search(r"://([^ ,]+)", self.ready["addresses"])
        assert listener is not None, self.ready[0]
        self.bootstrap = listener[1]
        self.pid = int(self.ready["pid"])

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def stop(self) -> None:
        """Stop the broker with SIGTERM. Check that it ends cleanly."""
        code = self.process.stop()
        assert code == 0, f"kafkapy ended with {code} after SIGTERM:\n{self.process.output[-4000:]}"

    def kill(self) -> None:
        self.process.kill()


class KafkaBroker:
    """A broker of Apache Kafka 3.9.1 in ZooKeeper mode. Only the settings for which a single broker needs other values
    differ from the defaults."""

    kind = "kafka"

    def __init__(
        self, directory: Path, overrides: dict[str, str] | None = None, *, port: int = 0, zookeeper: str | None = None
    ) -> None:
        """Start the broker with the ZooKeeper at `zookeeper` (HOST:PORT and chroot), or with a ZooKeeper of its own."""
        self.data = directory / "data"
        directory.mkdir(parents=True, exist_ok=True)
        classpath = toolchain.maven_classpath(KAFKA_POM, KAFKA_VERSION)
        (directory / "log4j.properties").write_text(LOG4J)
        java = [
            toolchain.find("java"),
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j.configuration=file:{directory}/log4j.properties",
        ]
        java += ["-Dzookeeper.admin.enableServer=false", "-Dzookeeper.forceSync=no", "-cp", classpath]
        self._keeper: Process | None = None
        if zookeeper is None:
            keeper_port = free_port()
            zookeeper = f"127.0.0.1:{keeper_port}"
            main = "org.apache.zookeeper.server.ZooKeeperServerMain"
            keeper = [*java, main, str(keeper_port), str(directory / "zookeeper")]
            self._keeper = Process(keeper, directory / "zookeeper.log")
        self.zookeeper = zookeeper
        port = port or free_port()
        settings = {
            "broker.id": "0",
            "zookeeper.connect": self.zookeeper,
            "log.dirs": str(self.data),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            **(overrides or {}),
        }
        properties = directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        try:
            self.process = Process([*java, "kafka.Kafka", str(properties)], directory / "kafka.log")
            self.process.wait_for_line(re.compile(r" started \(kafka\.server\.KafkaServer\)"), 90)
        except BaseException:
            self._kill_keeper()
            raise
        self.bootstrap = f"127.0.0.1:{port}"
        self.port = port
        self.pid = self.process.child.pid
        self._wait_until_it_knows_itself()

    def _wait_until_it_knows_itself(self) -> None:
        """Wait until topics can be created. The broker listens before the controller has sent it the live brokers."""
        deadline = time.monotonic() + 30
        with Connection(self.bootstrap) as connection:
            while True:
                (brokers,) = struct.unpack_from(">i", connection.ask(METADATA, 1, array([])))
                if brokers:
                    return
                assert time.monotonic() < deadline, "Kafka knows of no broker after 30 s"
                time.sleep(0.05)

    def stop(self) -> None:
        try:
            self.stop_broker()
        finally:
            self._kill_keeper()

    def stop_broker(self) -> None:
        """Stop only the broker. ZooKeeper runs until `stop`."""
        code = self.process.stop()
        assert code in (0, 143), (
            f"Kafka ended with {code}"
        )  # a JVM that ran its shutdown hooks still reports the signal

    def kill(self) -> None:
        self.process.kill()
        self._kill_keeper()

    def _kill_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.kill()


Broker = KafkapyBroker | KafkaBroker


def start(directory: Path, overrides: dict[str, str] | None = None, *, port: int = 0) -> Broker:
    """Start a broker with its data below `directory`, of the kind that KAFKAPY_INTEROP_BROKER names."""
    kind = os.environ.get("KAFKAPY_INTEROP_BROKER", "kafkapy")
    if kind not in ("kafkapy", "kafka"):
        raise ValueError(f"KAFKAPY_INTEROP_BROKER is {kind!r}; it must be kafkapy or kafka")
    return (KafkapyBroker if kind == "kafkapy" else KafkaBroker)(directory, overrides, port=port)


def free_port() -> int:
    """Return a port for programs that cannot use port 0, or that are restarted on the same port.

    It is outside of the range of ephemeral ports: another process could get such a port before it is used. No other
    call returns it, neither in this process nor in another one of pytest-xdist: programs bind it seconds or minutes
    later.
    """
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while True:
        port = secrets.choice(range(10_000 + worker, max(ephemeral, 20_000), workers))
        if port in _handed_out:
            continue
        _handed_out.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
