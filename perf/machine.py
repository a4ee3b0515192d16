"""Describes the machine of a run: hardware, kernel, file system, and the versions of all software involved."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from kafkapy.version import VERSION
from perf.jars import KAFKA_4_VERSION, KAFKA_VERSION
from perf.network import congestion_control

ROOT = Path(__file__).resolve().parent.parent


def describe(directory: Path, other: Path | None = None, *, kafka_4: bool = False) -> dict[str, str]:
    """Return a description, name -> text, in the order in which it is printed.

    `directory` is the brokers' data directory, `other` the checkout whose broker is also measured.
    `kafka_4`: whether Apache Kafka 4 is measured, too.
    """
    described = {
        "machine": f"{_processor()}, {os.cpu_count()} CPUs, {memory_info()['MemTotal'] / 2**30:.1f} GiB of memory",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": f"{_file_system(directory)} at {directory}, {free_bytes(directory) / 2**30:.0f} GiB free",
        "TCP": f"congestion control {congestion_control()}, loopback",
        "kafkapy": _revision(ROOT),
        "Apache Kafka": f"{KAFKA_VERSION}, its own defaults, 1 GiB heap, ZooKeeper 3.8.4, {_java()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "confluent-kafka": _version("confluent-kafka"),
        "load average": " ".join(f"{figure:.2f}" for figure in os.getloadavg()) + " when the run began",
    }
    if kafka_4:
        described["Apache Kafka 4"] = f"{KAFKA_4_VERSION}, its own defaults, 1 GiB heap, KRaft with one node"
    if other is not None:
        described["other checkout"] = _revision(other)
    return described


def memory_info() -> dict[str, int]:
    """Return the values of /proc/meminfo in bytes."""
    fields = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        fields[name] = int(number) * (1024 if unit == "kB" else 1)
    return fields


def stolen_seconds() -> float:
    """Return for how many seconds, of all CPUs together, the host of this virtual machine has run something else while
    a thread was ready to run (steal)."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """Return the file system type of `directory`: that of its longest parent that is a mount point."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, name, *_ = line.split(" ")
        if directory.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, name
    return kind


def _revision(checkout: Path) -> str:
    revision = _first_line(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"])
    changed = _first_line(["git", "-C", str(checkout), "status", "--porcelain", "--untracked-files=no"])
    return VERSION + (f" at {revision}" if revision else "") + (" with local changes" if changed else "")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def _java() -> str:
    return _first_line(["java", "-version"]) or "no java found"


def _first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr).splitlines() if done.returncode == 0 else []
    return lines[0].strip() if lines else ""
