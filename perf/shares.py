"""Measures the shares of a core that the threads of a client and of a broker use, to see which side limits a rate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perf.cpu import tree
from perf.measurement import Figures, Row

Threads = dict[int, tuple[int, int]]  # thread id -> nanoseconds on a core, and waiting for one


@dataclass(frozen=True)
class Look:
    """What the threads of both processes have used until `at`."""

    at: float
    client: Threads
    broker: Threads


@dataclass
class Share:
    """What a thread used, in % of a core; 0 until it is known."""

    percent: float = 0.0


@contextmanager
def this_thread() -> Iterator[Share]:
    """Measure the calling thread, which is the whole client, while the block runs."""
    share = Share()
    began, used = time.perf_counter(), time.thread_time()
    yield share
    share.percent = 100 * (time.thread_time() - used) / (time.perf_counter() - began)


def look(client: int, broker: int) -> Look:
    """Look at the process `client` and the process tree `broker`."""
    return Look(
        time.perf_counter(),
        _threads(client),
        {tid: used for pid in tree(broker) for tid, used in _threads(pid).items()},
    )


def shares(key: str, *looks: Look) -> Figures:
    """Return the figures of `rows(key, ...)` for the time from the first look to the last one. The CPU time of a thread
    between the last look at it and its end is lost."""
    wall = max(looks[-1].at - looks[0].at, 1e-9) * 1e9
    client = _used([look.client for look in looks])
    broker = _used([look.broker for look in looks])
    return {
        f"{key}.busiest": 100 * max((run for run, _ in client), default=0) / wall,
        f"{key}.client": 100 * sum(run for run, _ in client) / wall,
        f"{key}.idle": max(0.0, 100 - 100 * max((run + wait for run, wait in broker), default=0) / wall),
    }


def rows(key: str, label: str) -> tuple[Row, ...]:
    """Return the rows for the figure `key`: the busiest thread of the client and all of them, and for how much of the
    time the busiest thread of the broker neither runs nor waits for a core."""
    return (
        busiest(key, label),
        Row(f"{key}.client", f"{label}: the client's CPU", "% of a core", "lower"),
        Row(f"{key}.idle", f"{label}: the broker's busiest thread is idle", "%", "higher"),
    )


def busiest(key: str, label: str) -> Row:
    """Return the row for the figure `key` that its `Row.client` names: the busiest thread of the client."""
    return Row(f"{key}.busiest", f"{label}: the client's busiest thread", "% of a core", "lower")


def _used(looks: Sequence[Threads]) -> list[tuple[int, int]]:
    """Return what each thread used between the first and the last look."""
    totals: dict[int, tuple[int, int]] = {}
    for before, after in itertools.pairwise(looks):
        for tid, (run, wait) in after.items():
            (run_before, wait_before), (run_in_all, wait_in_all) = before.get(tid, (0, 0)), totals.get(tid, (0, 0))
            totals[tid] = run_in_all + run - run_before, wait_in_all + wait - wait_before
    return list(totals.values())


def _threads(pid: int) -> Threads:
    """Return the times of the threads of a process; nothing if it has ended."""
    found = {}
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            run, wait, _ = file.read_text().split()
        except OSError:  # the thread has ended meanwhile
            continue
        found[int(file.parent.name)] = int(run), int(wait)
    return found
