"""CPU time and memory of a process tree, from /proc, and the CPU affinity of its threads.

The figures are those of the broker, without the client.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.tools.bench import cpu
from kafkapy.tools.bench.cpu import Usage, cpu_seconds, tree

if TYPE_CHECKING:
    from perf.profile import Profiler

__all__ = ["Usage", "cpu_seconds", "profile_with", "tree", "used"]

_profiler: Profiler | None = None


def profile_with(profiler: Profiler) -> None:
    """Have all timed parts recorded from now on (--profile)."""
    global _profiler  # one for the run, as measurements are many
    _profiler = profiler


def used(*pids: int) -> AbstractContextManager[Usage]:
    """Measure the trees of all `pids` together while the block runs: a timed part of a measurement."""
    return _profiler.used(*pids) if _profiler else cpu.used(*pids)


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
