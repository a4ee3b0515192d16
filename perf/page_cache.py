"""Limits a broker's page cache to less than its log."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perf.machine import memory_info
from perf.processes import Child

# Reads a sparse file over and over, so that its pages push others out of the page cache.
HOG = "import sys\nwhile True:\n with open(sys.argv[1], 'rb', 0) as file:\n  while file.read(1 << 20): pass"


@contextmanager
def little_memory(pid: int, size: int, directory: Path) -> Iterator[str]:
    """Limit the page cache of files that `pid` reads in the block to `size` bytes; yield a description of how.

    This uses a memory cgroup (version 2 or 1), which counts only memory that the process takes from now on. If that is
    not possible, another process reads a file as large as the memory, which evicts the pages of all processes.
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
        yield "another process fills the page cache (no memory cgroup could be created)"
    finally:
        hog.stop()
        sparse.unlink()


def _cgroup(pid: int, size: int) -> tuple[Path, Path] | None:
    """Move `pid` into a new cgroup; return it and the previous one, or None if that is not possible."""
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
    """Yield the mount points of the memory controller, each with True if it is cgroup version 2."""
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
    """Return the path of the process's cgroup, relative to the mount point."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") if not is_v2 else not controllers:
            return path.lstrip("/")
    return ""
