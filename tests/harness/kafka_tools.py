"""Apache Kafka 3.9.1's tools: the tool for segment files, and those that talk to brokers; and the tools of Kafka 2.8.2,
the last version whose tools write to ZooKeeper."""

import base64
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.harness import brokers, toolchain

# Lines that Kafka's tool prints only for faulty files.
COMPLAINTS = re.compile(
    r"isvalid: false|[Mm]ismatch|Non-consecutive|out of order|invalid bytes|[Cc]orrupt|Exception|is not found|unable to"
)

OLD_VERSION = "2.8.2"
SOURCES = Path(__file__).parents[1] / "interop" / "kafka" / "java"


class Said(NamedTuple):
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str


class KafkaTools:
    """Kafka's command line tools, by class name as for kafka-run-class, in one JVM that runs until `close`."""

    def __init__(self) -> None:
        classpath = toolchain.maven_classpath(brokers.KAFKA_POM, brokers.KAFKA_VERSION)
        classes = toolchain.java_classes(SOURCES, classpath)
        java = [toolchain.find("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        self._child = subprocess.Popen(
            [*java, "-cp", f"{classes}:{classpath}", "kafkapy.interop.Tools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def run(self, tool: str, *args: object) -> Said:
        """Run one tool to its end."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write("\t".join([tool, *map(str, args)]) + "\n")
        self._child.stdin.flush()
        code, out, err, _ = self._child.stdout.readline().split(" ")
        return Said(int(code), base64.b64decode(out).decode(), base64.b64decode(err).decode())

    def close(self) -> None:
        """End the JVM."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait(30)
        self._child.stdout.close()


def run_old_tool(tool: str, *words: object) -> str:
    """Run a tool of Kafka 2.8.2, which accepts --zookeeper, and return its output. The tool must succeed."""
    classpath = toolchain.maven_classpath(brokers.KAFKA_POM, OLD_VERSION)
    java = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath]
    command = [*java, tool, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kafka_dump(data: Path, paths: Sequence[Path], *options: str) -> str:
    """Return the output of Kafka's tool for the files, with paths relative to the data directory."""
    classpath = toolchain.maven_classpath(brokers.KAFKA_POM, brokers.KAFKA_VERSION)
    java = [toolchain.find("java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", classpath]
    command = [*java, "kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, paths))]
    done = subprocess.run(command, cwd=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, check=False)
    output = "".join(
        line for line in done.stdout.decode(errors="replace").splitlines(True) if not line.startswith("log4j:")
    )
    assert done.returncode == 0, output[-4000:]
    return output


def complaints(output: str) -> str:
    """Return the first error that the tool reports, "" if there is none."""
    found = COMPLAINTS.search(output)
    return output[max(0, found.start() - 300) : found.start() + 700] if found else ""
