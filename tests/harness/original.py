"""Members of groups in ZooKeeper, each a process that prints its records: the high-level consumers of Kafka 0.8.2.2 and
0.10.2.2, and kafkapy's."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.harness import toolchain
from tests.harness.brokers import Process

JAVA = Path(__file__).parents[1] / "zookeeper" / "java"
OLD = Path(__file__).parents[1] / "interop" / "old"
OWN = "own"
QUICK = {
    "zookeeper.session.timeout.ms": "2000",
    "rebalance.backoff.ms": "300",
    "rebalance.max.retries": "40",
    "auto.commit.interval.ms": "200",
    "auto.offset.reset": "smallest",
    "offsets.channel.backoff.ms": "100",
}
Place = tuple[str, int, int]  # topic, partition, offset


class Member:
    """A member in its own process. `kind` is a version of Kafka, or OWN. A topic that begins with ^ is a white list."""

    def __init__(
        self, kind: str, directory: Path, connect: str, group: str, name: str, topic: str, streams: int = 1, **more: str
    ) -> None:
        settings = {"zookeeper.connect": connect, "group.id": group, "consumer.id": name, **QUICK, **more}
        words = [topic, str(streams), *(f"{key}={value}" for key, value in settings.items())]
        self.kind = kind
        self.consumer_id = f"{group}_{name}"
        self.process = Process([*_program(kind), *words], directory / f"{name}.log")

    def wait_until_ready(self) -> None:
        """Wait until the member has created its streams."""
        self.process.wait_for_line(re.compile("^ready$"), 60)

    @property
    def seen(self) -> Counter[Place]:
        """Return how often the member got each record."""
        found: Counter[Place] = Counter()
        for line in self.process.lines:
            if line != "ready":
                topic, partition, offset = line.split()
                found[topic, int(partition), int(offset)] += 1
        return found

    def leave(self) -> None:
        """Shut the member down, so that it leaves the group."""
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()


def kafka(version: str, tool: str, *words: object) -> str:
    """Return the output of a tool of that version of Kafka."""
    classpath = toolchain.maven_classpath(OLD / f"pom-{version}.xml", version)
    command = [*_java(classpath), tool, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _program(kind: str) -> list[str]:
    if kind == OWN:
        return [sys.executable, str(Path(__file__).with_name("original_child.py"))]
    classpath = toolchain.maven_classpath(OLD / f"pom-{kind}.xml", kind)
    classes = toolchain.java_classes(JAVA, classpath)
    return [*_java(f"{classes}:{classpath}"), "GroupMember"]


def _java(classpath: str) -> list[str]:
    quick = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    quiet = f"-Dlog4j.configuration=file:{OLD / 'log4j.properties'}"
    return [toolchain.find("java"), *quick, quiet, "-cp", classpath]
