"""Starts kafkapy and Apache Kafka (3.9.1 with ZooKeeper, 4.4.0 without) as a user does, each on its own data
directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from perf import jars
from perf.processes import Child, accepts, free_port, wait_until

# The options of bin/kafka-run-class.sh and bin/kafka-server-start.sh in Kafka's distribution.
HEAP = "1G"
KAFKA_JVM = ["-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true"]
KAFKA_JVM += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"]

LOG4J = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
LOG4J2 = """rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
"""
CLUSTER_ID = "kafkapy-perf-cluster-A"  # 22 characters of Base64, as Kafka's own ids have


class Broker(ABC):
    """A running broker. `pid` is its process (ZooKeeper is a separate process and not included in figures), `port` the
    port on which it listens, `began` the perf_counter just before the process was started."""

    kind: str
    child: Child
    port: int

    def __init__(self, data: Path) -> None:
        self.data = data

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def began(self) -> float:
        return self.child.started

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_directory(self) -> Path:
        """The directory that contains the partitions' directories."""
        return self.data / "logs"

    def stop(self) -> None:
        self.child.stop()

    @abstractmethod
    def recovery_seconds(self) -> float | None:
        """Return the time to load all partitions according to the broker's log; None if the log does not say it."""


class Kafkapy(Broker):
    kind = "kafkapy"

    def __init__(
        self,
        data: Path,
        settings: Mapping[str, str],
        launch: Sequence[str] = ("kafkapy",),
        checkout: Path | None = None,
    ) -> None:
        """`launch`: the module to run, and its arguments before the command `start`.

        `checkout`: a built checkout whose kafkapy is started instead of the installed one.
        """
        super().__init__(data)
        options = {"log.dirs": str(self.log_directory), "listeners": "PLAINTEXT://127.0.0.1:0", **settings}
        command = [sys.executable, "-m", *launch, "start"]
        for key, value in options.items():
            command += ["-o", f"{key}={value}"]
        env = {**os.environ, "PYTHONPATH": str(checkout)} if checkout else {**os.environ}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling all modules at each start would count as time of the start
        self.child = Child(command, data / "kafkapy.out", keep_stdout=True, env=env, directory=checkout)
        try:
            self.port = self._port_of_ready_line()
        except BaseException:
            self.child.stop()
            raise

    def _port_of_ready_line(self) -> int:
        """Wait for `kafkapy 0.1.0 ready: PLAINTEXT://127.0.0.1:41873 data=/path pid=123` and return the port."""
        stdout = self.child.process.stdout
        assert stdout is not None
        watchdog = threading.Timer(60, self.child.process.kill)  # readline has no time-out
        watchdog.start()
        try:
            for line in stdout:
                found = re.search(rb" ready: \w+://[^ ]*:(\d+)", line)
                if found:
                    return int(found[1])
        finally:
            watchdog.cancel()
        self.child.process.wait()
        raise self.child.failure("kafkapy printed no ready line")

    def recovery_seconds(self) -> float | None:
        """Return the sum of the times in the lines 'recovered ... in 190 ms', one for each log."""
        times = re.findall(r"\brecovered\b.* in ([\d.]+) ?ms", self.child.output())
        return sum(map(float, times)) / 1000 if times else None


class Kafka(Broker):
    """Apache Kafka 3.9.1, whose metadata are in ZooKeeper."""

    kind = "kafka"
    version = jars.KAFKA_VERSION

    def __init__(self, data: Path, settings: Mapping[str, str], zookeeper: str, heap: str = HEAP) -> None:
        super().__init__(data)
        self.port = free_port()
        options = {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "zookeeper.connect": zookeeper,
            "offsets.topic.replication.factor": "1",
            **settings,
        }
        options["listeners"] = re.sub(r":0$", f":{self.port}", options["listeners"])
        self._start(self._write(options), heap)

    def _write(self, options: Mapping[str, str]) -> str:
        """Write the properties file, with `log.dirs` added, and return its path."""
        properties = self.data / "server.properties"
        lines = {"log.dirs": str(self.log_directory), **options}
        properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return str(properties)

    def _start(self, properties: str, heap: str) -> None:
        jvm = [f"-Xmx{heap}", f"-Xms{heap}", *KAFKA_JVM]
        command = java(self.data, "kafka.Kafka", properties, options=jvm, version=self.version)
        self.child = Child(command, self.data / "kafka.out")
        try:
            wait_until(lambda: accepts(self.port), self.child, "Apache Kafka")
        except BaseException:
            self.child.stop()
            raise

    def recovery_seconds(self) -> float | None:
        """Return the sum of the times in 'Completed load of log with 1 segments ... in 190ms', one for each log."""
        times = re.findall(r"Completed load of .* in (\d+)ms", self.child.output())
        return sum(map(float, times)) / 1000 if times else None


class Kafka4(Kafka):
    """Apache Kafka 4.4.0: one node that is broker and controller (KRaft).

    Its log directory is formatted before the first start. That is not part of the time of the start.
    """

    kind = "kafka-4"
    version = jars.KAFKA_4_VERSION

    def __init__(self, data: Path, settings: Mapping[str, str], heap: str = HEAP) -> None:
        Broker.__init__(self, data)
        self.port = free_port()
        controller = f"127.0.0.1:{free_port()}"
        options = {
            "process.roles": "broker,controller",
            "node.id": "0",
            "controller.quorum.voters": f"0@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
        }
        for internal in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            options[f"{internal}.replication.factor"] = "1"
        for internal in ("transaction.state.log", "share.coordinator.state.topic"):
            options[f"{internal}.min.isr"] = "1"
        properties = self._write(options | settings)
        if not (self.log_directory / "meta.properties").exists():
            words = ("format", "--cluster-id", CLUSTER_ID, "--config", properties)
            command = java(data, "kafka.tools.StorageTool", *words, version=self.version)
            subprocess.run(command, check=True, capture_output=True, text=True)
        self._start(properties, heap)


class Fleet:
    """Starts brokers. One ZooKeeper serves all Apache Kafka brokers of a run, each under its own chroot."""

    def __init__(self, directory: Path, other: Path | None = None) -> None:
        """`other`: another checkout of kafkapy; its broker is started while `start_other` is True."""
        self._directory = directory
        self._other = other
        self.start_other = False
        self._zookeeper: Child | None = None
        self._zookeeper_port = 0

    @contextmanager
    def running(
        self, kind: str, data: Path, settings: Mapping[str, str] | None = None, heap: str = HEAP
    ) -> Iterator[Broker]:
        """Run a broker on `data` (created if missing, kept afterwards) in the block; then stop it cleanly.

        `heap`: the size of the heap of a JVM.
        """
        data.mkdir(parents=True, exist_ok=True)
        broker: Broker
        if kind == Kafkapy.kind:
            broker = Kafkapy(data, settings or {}, checkout=self._other if self.start_other else None)
        elif kind == Kafka4.kind:
            broker = Kafka4(data, settings or {}, heap)
        else:
            broker = Kafka(data, settings or {}, self.zookeeper(data.name), heap)
        try:
            yield broker
        finally:
            broker.stop()

    def zookeeper(self, root: str) -> str:
        """Return zookeeper.connect with the chroot `root`; start ZooKeeper if it does not run yet."""
        if self._zookeeper is None:
            port = free_port()
            home = self._directory / "zookeeper"
            home.mkdir()
            lines = [f"dataDir={home}/data", f"clientPort={port}", "clientPortAddress=127.0.0.1"]
            # Sessions end at the next tick, so it is short. The limits of the time-out, which depend on it, are set.
            lines += ["tickTime=500", "minSessionTimeout=2000", "maxSessionTimeout=60000"]
            (home / "zoo.cfg").write_text("\n".join([*lines, "maxClientCnxns=0", "admin.enableServer=false", ""]))
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            command = java(home, main, str(home / "zoo.cfg"), options=["-Xmx512M"])
            self._zookeeper = Child(command, home / "zookeeper.out")
            self._zookeeper_port = port
            wait_until(lambda: accepts(port), self._zookeeper, "ZooKeeper")
        return f"127.0.0.1:{self._zookeeper_port}/{root}"

    def close(self) -> None:
        if self._zookeeper is not None:
            self._zookeeper.stop()


def java(
    directory: Path, main: str, *arguments: str, options: list[str] | None = None, version: str = jars.KAFKA_VERSION
) -> list[str]:
    """Return the command line of a Java program in the jars of a Kafka version. Write the settings of its log into
    `directory`."""
    is_4 = version == jars.KAFKA_4_VERSION
    log4j = directory / ("log4j2.properties" if is_4 else "log4j.properties")
    log4j.write_text(LOG4J2 if is_4 else LOG4J)
    named = f"-Dlog4j{'2.configurationFile' if is_4 else '.configuration'}=file:{log4j}"
    return ["java", *(options or []), named, "-cp", jars.class_path(version), main, *arguments]
