"""CPU time and memory of a process tree, from /proc, and the CPU affinity of its threads.

The figures are those of the broker, without the client. Linux scales utime and stime to the scheduler's exact run time,
so they are exact except for the rounding to clock ticks of 10 ms.
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
    """Return `pid` and all its living descendants."""
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
    """Return the user and system time of the tree of `pid` so far, in seconds, including children that have ended."""
    return sum(_times(pid))


def _times(*pids: int) -> tuple[float, float]:
    user = system = 0
    for member in (member for pid in pids for member in tree(pid)):
        fields = _stat(member)
        if fields:
            utime, stime, cutime, cstime = map(int, fields[11:15])
            user += utime + cutime
            system += stime + cstime
    return user * TICK, system * TICK


def resident_bytes(pid: int) -> int:
    """Return the resident memory of the tree of `pid` (VmRSS: anonymous, file and shared pages)."""
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
    """The wall and CPU seconds of a block of code, and the part of the CPU seconds in the kernel; `used` sets them."""

    wall: float = 0.0
    cpu: float = 0.0
    system: float = 0.0


@contextmanager
def used(*pids: int) -> Iterator[Usage]:
    """Measure the trees of all `pids` together while the block runs."""
    usage = Usage()
    (user, system), wall = _times(*pids), time.perf_counter()
    yield usage
    usage.wall = time.perf_counter() - wall
    user_after, system_after = _times(*pids)
    usage.system = system_after - system
    usage.cpu = user_after - user + usage.system


@contextmanager
def pinned(pid: int, broker: Iterable[int], client: Iterable[int]) -> Iterator[None]:
    """Pin all threads of the tree of `pid` to the cores `broker`, and the calling thread to `client`, in the block.

    Call this after the start, so that a JVM sizes itself for the whole machine.
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
    """Return the fields of /proc/PID/stat after the name (which may contain spaces); None if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
