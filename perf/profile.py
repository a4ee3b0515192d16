"""Shows where the broker's time goes in each timed part of a measurement (`python -m perf NAME ... --profile DIR`).

It needs `perf` of Linux, and root. Each part (a `with used(...)` of a measurement) is recorded with `perf record`, and
becomes a text file with the shares of threads, programs and functions; or, with `--waits`, with `perf sched record`,
and becomes a table: how often each thread ran, for how long at a time, how long it waited for a core, and how long it
was blocked in the kernel. Both slow the broker down, so the figures of the run itself do not count.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkapy.tools.bench.cpu import Usage, tree, used
from perf.stats import percentile

RATE = 997  # samples a second
LEAST = 0.4  # % of the samples: functions with less are not listed
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


class Profiler:
    """Records the parts of one run into files `NUMBER.txt` of a directory, in the order of time."""

    def __init__(self, directory: Path, *, waits: bool) -> None:
        if shutil.which("perf") is None:
            raise SystemExit("perf: --profile needs the program perf (Debian: apt-get install linux-perf)")
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._waits = waits
        self._count = 0

    @contextmanager
    def used(self, *pids: int) -> Iterator[Usage]:
        """Yield the CPU time of these processes in the block, as `kafkapy.tools.bench.cpu.used` does; record them."""
        self._count += 1
        data = self._directory / f"{self._count}.data"
        members = [member for pid in pids for member in tree(pid)]
        what = ["sched", "record"] if self._waits else ["record", "-F", str(RATE), "-p", ",".join(map(str, members))]
        with (self._directory / "perf.log").open("ab") as log:
            recording = subprocess.Popen(["perf", *what, "-o", data], stdout=log, stderr=log)
        try:
            with used(*pids) as usage:
                yield usage
        finally:
            recording.send_signal(signal.SIGINT)
            recording.wait()
        if not data.exists():
            raise SystemExit(
                f"perf: nothing was recorded: {self._directory / 'perf.log'} says why (--waits needs tracefs: "
                "mount -t tracefs nodev /sys/kernel/tracing)"
            )
        text = _waits(data, members) if self._waits else _shares(data)
        (self._directory / f"{self._count}.txt").write_text(text)
        data.unlink()
        print(f"profile {self._count}: {self._directory / f'{self._count}.txt'}", file=sys.stderr, flush=True)


def _shares(data: Path) -> str:
    """Return the shares of threads and of functions, the largest first."""
    text = ""
    for keys in ("pid", "pid,dso", "pid,dso,symbol"):  # "pid" is the id of the thread
        command = ["perf", "report", "-i", data, "--stdio", "--no-children", "-q", "--sort", keys]
        text += _output([*command, "--percent-limit", str(LEAST)]) + "\n"
    return text


def _waits(data: Path, members: list[int]) -> str:
    command = ["perf", "sched", "timehist", "--state", "-i", data, "-p", ",".join(map(str, members))]
    return table_of_waits(_output(command))


class _Thread:
    """What one thread did; times in ms."""

    def __init__(self) -> None:
        self.runs: list[float] = []
        self.waits: list[float] = []  # for a core: after a wake-up, or after it was preempted
        self.blocked: list[float] = []  # in the kernel, such as for a disk or a lock of a file
        self._state = "S"  # in which the last run ended

    def add(self, away: float, delay: float, run: float, state: str) -> None:
        self.runs.append(run)
        self.waits.append(delay + (away if self._state == "R" else 0.0))
        if self._state == "D":
            self.blocked.append(away)
        self._state = state


def table_of_waits(timehist: str) -> str:
    """Return a table of the threads in the output of `perf sched timehist --state`, in ms: how often each ran and how
    long at a time, how long it waited for a core, and how long it was blocked in the kernel."""
    threads: dict[str, _Thread] = defaultdict(_Thread)
    for line in timehist.splitlines():
        words = line.rsplit(maxsplit=4)  # time, core and thread; time away, delay after the wake-up, run, state
        if len(words) == 5 and words[3].replace(".", "").isdigit():
            thread = words[0].partition("]")[2].strip()
            threads[thread].add(float(words[1]), float(words[2]), float(words[3]), words[4][0])
    heads = [f"{what} {part}" for what in ("ran", "waited") for part in (*SHARES, "max")]
    text = f"{'thread':<30}{'runs':>8}{'sum':>8}" + "".join(f"{head:>14}" for head in heads)
    text += f"{'blocked':>9}{'sum':>8}{'max':>9}\n"
    for name, thread in sorted(threads.items(), key=lambda found: -sum(found[1].runs)):
        text += f"{name:<30}{len(thread.runs):>8}{sum(thread.runs):>8.0f}"
        for figures in (sorted(thread.runs), sorted(thread.waits)):
            text += "".join(f"{percentile(figures, share):>14.3f}" for share in (*SHARES.values(), 1.0))
        text += f"{len(thread.blocked):>9}{sum(thread.blocked):>8.0f}{max(thread.blocked, default=0.0):>9.3f}\n"
    return text


def _output(command: list[object]) -> str:
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return done.stdout.decode(errors="replace")
