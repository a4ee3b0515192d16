"""Apache Kafka 3.9.1's own tool for segment files."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness import brokers, toolchain

# What the tool prints only of files that are not as they should be.
COMPLAINTS = re.compile(
    r"isvalid: false|[Mm]ismatch|Non-consecutive|out of order|invalid bytes|[Cc]orrupt|Exception|is not found|unable to"
)


def kafka_dump(data: Path, paths: Sequence[Path], *options: str) -> str:
    """What Kafka's tool prints for the files, with paths relative to the data directory."""
    classpath = toolchain.maven_classpath(brokers.KAFKA_POM, brokers.KAFKA_VERSION)
    java = [toolchain.find("java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", classpath]
    command = [*java, "kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, paths))]
    done = subprocess.run(command, cwd=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, check=False)
    said = "".join(
        line for line in done.stdout.decode(errors="replace").splitlines(True) if not line.startswith("log4j:")
    )
    assert done.returncode == 0, said[-4000:]
    return said


def complaints(said: str) -> str:
    """The first thing that the tool found wrong and what it says about it; empty if all is well."""
    found = COMPLAINTS.search(said)
    return said[max(0, found.start() - 300) : found.start() + 700] if found else ""
