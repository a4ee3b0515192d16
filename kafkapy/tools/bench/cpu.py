"""CPU time of a process tree, from /proc.

Linux scales utime and stime to the scheduler's exact run time, so the figures are exact except for the rounding to
clock ticks of 10 ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
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


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name (which may contain spaces); None if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
