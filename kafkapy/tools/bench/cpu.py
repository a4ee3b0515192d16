"""CPU time of a process tree, from the CPU clocks of its processes.

These clocks have the scheduler's exact run time. Only what /proc says is rounded to clock ticks of 10 ms: the time of
children that have ended, and the part in the kernel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of Linux: all threads of a process, also those that have ended


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
    cpu, _ = _times(pid)
    return cpu


def _times(*pids: int) -> tuple[float, float]:
    """Return the CPU seconds of the trees of all `pids`, and the part of them in the kernel."""
    cpu = system = 0.0
    for member in (member for pid in pids for member in tree(pid)):
        fields = _stat(member)
        if fields:
            utime, stime, cutime, cstime = map(int, fields[11:15])
            try:
                cpu += time.clock_gettime(~member << 3 | _CPU_CLOCK)  # as clock_getcpuclockid makes the id
            except OSError:  # it is gone, or this kernel has no such clock
                cpu += (utime + stime) * TICK
            cpu += (cutime + cstime) * TICK
            system += (stime + cstime) * TICK
    return cpu, system


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
    (cpu, system), wall = _times(*pids), time.perf_counter()
    yield usage
    usage.wall = time.perf_counter() - wall
    cpu_after, system_after = _times(*pids)
    usage.cpu = cpu_after - cpu
    usage.system = system_after - system


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name (which may contain spaces); None if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
