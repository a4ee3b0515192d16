"""Shows where the broker's time goes in each timed part of a measurement (`python -m perf NAME ... --profile DIR`).

It needs `perf` of Linux, and root. Each part (a `with used(...)` of a measurement) is recorded with `perf record`, and
becomes a text file with the shares of threads, programs and functions; or, with `--waits`, with `perf sched record`,
and becomes a table: how often each thread ran, for how long at a time, and how long it waited for a core before. Both
slow the broker down, so the figures of the run itself do not count.
"""

from __future__ import annotations

import shutil
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
PARTS = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


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
            recording.send_signal(2)
            recording.wait()
        if not data.exists():
            raise SystemExit(
                f"perf: nothing was recorded: {self._directory / 'perf.log'} says why (--waits needs tracefs: "
                "mount -t tracefs nodev /sys/kernel/tracing)"
            )
        text = _waits(data, members) if self._waits else _shares(data)
        (self._directory / f"{self._count}.txt").write_text(text)
        data.unlink(missing_ok=True)
        print(f"profile {self._count}: {self._directory / f'{self._count}.txt'}", file=sys.stderr, flush=True)


def _shares(data: Path) -> str:
    """Return the shares of threads and of functions, the largest first."""
    text = ""
    for keys in ("pid", "pid,dso", "pid,dso,symbol"):  # "pid" is the id of the thread
        command = ["perf", "report", "-i", data, "--stdio", "--no-children", "-q", "--sort", keys]
        text += _output([*command, "--percent-limit", str(LEAST)]) + "\n"
    return text


def _waits(data: Path, members: list[int]) -> str:
    return table_of_waits(_output(["perf", "sched", "timehist", "-i", data, "-p", ",".join(map(str, members))]))


def table_of_waits(timehist: str) -> str:
    """Return a table of the threads in the output of `perf sched timehist`: how often each ran, and percentiles of how
    long at a time and of how long it waited for a core before, in ms."""
    delays: dict[str, list[float]] = defaultdict(list)
    lengths: dict[str, list[float]] = defaultdict(list)
    for line in timehist.splitlines():
        words = line.rsplit(maxsplit=3)  # ... thread, time between runs, delay after the wake-up, length of the run
        if len(words) == 4 and words[3].replace(".", "").isdigit():
            thread = words[0].partition("]")[2].strip()
            delays[thread].append(float(words[2]))
            lengths[thread].append(float(words[3]))
    text = f"{'thread':<34} {'runs':>9} {'sum, ms':>9}" + "".join(f" {f'ran {part}':>10}" for part in PARTS)
    text += "".join(f" {f'wait {part}':>10}" for part in PARTS) + f" {'longest':>9}\n"
    for thread, runs in sorted(lengths.items(), key=lambda found: -sum(found[1])):
        waited = sorted(delays[thread])
        text += f"{thread:<34} {len(runs):>9,} {sum(runs):>9,.0f}"
        for figures in (sorted(runs), waited):
            text += "".join(f" {percentile(figures, share):>10.3f}" for share in PARTS.values())
        text += f" {waited[-1]:>9.3f}\n"
    return text


def _output(command: list[object]) -> str:
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return done.stdout.decode(errors="replace")
