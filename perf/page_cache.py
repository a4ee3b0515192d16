"""How much came from disk, and a broker that has less memory for files than its log is long."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perf.machine import memory_info
from perf.processes import Child

# Reads a file without blocks over and over: its pages push others out of memory.
HOG = "import sys\nwhile True:\n with open(sys.argv[1], 'rb', 0) as file:\n  while file.read(1 << 20): pass"


def read_from_disk() -> int:
    """Bytes that the machine has read from block devices since it runs, read-ahead included."""
    found = re.search(r"^pgpgin (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


@contextmanager
def little_memory(pid: int, size: int, directory: Path) -> Iterator[str]:
    """What `pid` reads of files from now on has `size` bytes of memory; yields how that is done.

    By a memory cgroup (version 2 or 1), which is charged for what is read from then on, not for what the process has.
    Where none can be made, a process that reads a file as large as the memory pushes everybody's pages out.
    """
    if group := _cgroup(pid, size):
        path, before = group
        try:
            yield f"a memory cgroup of {size >> 20} MiB around the broker"
        finally:
            (before / "cgroup.procs").write_text(str(pid))
            path.rmdir()
        return
    sparse = directory / "hog"
    with sparse.open("wb") as file:
        file.truncate(memory_info()["MemTotal"])
    hog = Child([sys.executable, "-c", HOG, str(sparse)], directory / "hog.out")
    try:
        yield "a page-cache hog beside the broker (no memory cgroup could be made)"
    finally:
        hog.stop()
        sparse.unlink()


def _cgroup(pid: int, size: int) -> tuple[Path, Path] | None:
    """A new cgroup with `pid` in it, and the one it was in; None where that is not possible."""
    for mount, is_v2 in _mounts():
        path = mount / f"kafkapy-perf-{os.getpid()}"
        try:
            if is_v2:
                (mount / "cgroup.subtree_control").write_text("+memory")
            path.mkdir()
        except OSError:
            continue
        try:
            before = mount / _place(pid, is_v2)
            (path / ("memory.max" if is_v2 else "memory.limit_in_bytes")).write_text(str(size))
            (path / "cgroup.procs").write_text(str(pid))
        except OSError:
            path.rmdir()
            continue
        return path, before
    return None


def _mounts() -> Iterator[tuple[Path, bool]]:
    """Where the memory controller is, and whether that is version 2."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        mount = Path(where)
        if kind == "cgroup2":
            controllers = mount / "cgroup.controllers"
            if controllers.exists() and "memory" in controllers.read_text().split():
                yield mount, True
        elif kind == "cgroup" and "memory" in options.split(","):
            yield mount, False


def _place(pid: int, is_v2: bool) -> str:
    """The path of its cgroup below the mount."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") if not is_v2 else not controllers:
            return path.lstrip("/")
    return ""
