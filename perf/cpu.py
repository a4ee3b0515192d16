"""Processor time and memory of a process tree, from /proc, and where its threads may run.

The figures are the broker's own: the client's are never in them. Linux scales utime and stime to the
scheduler's exact run time, so what remains of the clock tick is only the rounding to 10 ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """`pid` and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _stat(int(entry))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry))
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, ()))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system seconds of the tree of `pid` so far, children that have ended included."""
    return sum(_times(pid))


def _times(pid: int) -> tuple[float, float]:
    user = system = 0
    for member in tree(pid):
        fields = _stat(member)
        if fields:
            utime, stime, cutime, cstime = map(int, fields[11:15])
            user += utime + cutime
            system += stime + cstime
    return user * TICK, system * TICK


def resident_bytes(pid: int) -> int:
    """Resident memory (VmRSS: anonymous, file and shared pages) of the tree of `pid`."""
    total = 0
    for member in tree(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


@dataclass
class Usage:
    """What a stretch of work took: `wall` and `cpu` in seconds, `system` of it in the kernel; `used` fills it."""

    wall: float = 0.0
    cpu: float = 0.0
    system: float = 0.0


@contextmanager
def used(pid: int) -> Iterator[Usage]:
    """Measures the tree of `pid` while the block runs."""
    usage = Usage()
    (user, system), wall = _times(pid), time.perf_counter()
    yield usage
    usage.wall = time.perf_counter() - wall
    user_after, system_after = _times(pid)
    usage.system = system_after - system
    usage.cpu = user_after - user + usage.system


@contextmanager
def pinned(pid: int, broker: Iterable[int], client: Iterable[int]) -> Iterator[None]:
    """All threads of the tree of `pid` on the cores `broker`, the calling thread on `client`, until the block ends.

    Done after the start, so that a JVM still sizes itself for the whole machine.
    """
    everywhere = os.sched_getaffinity(0)
    _place(pid, broker)
    os.sched_setaffinity(0, client)
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)
        _place(pid, everywhere)


def _place(pid: int, cores: Iterable[int]) -> None:
    for member in tree(pid):
        for task in os.listdir(f"/proc/{member}/task"):
            try:
                os.sched_setaffinity(int(task), cores)
            except ProcessLookupError:  # the thread ended meanwhile
                continue


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on (the name before it may hold spaces); None if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
