"""Runs measurements in turn (A-B-A-B) within a time limit and collects the figures."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from perf.machine import stolen_seconds
from perf.measurement import BARE, KAFKA_4, KAFKAPY, OTHER, Bench, Figures, Measurement

# In the whole suite a step that takes longer is ended; the points of its curves measured so far are kept.
STEP_SECONDS = 300.0
GRACE_SECONDS = 90.0  # for the last step after the time limit
SHOWN = 0.01  # the least part of the CPU time, taken by the host, that is worth a sentence


class TooLong(BaseException):
    """A step took too long. A BaseException, so that no measurement handles it as an error of its own."""


@dataclass
class Collected:
    """`figures`: row key -> side -> one figure per run. `seconds`: measurement -> side -> the duration of each run.
    `stolen`: the same for the part of all CPU time that the host of a virtual machine took. `failures`: messages."""

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    stolen: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # not measured, or not completely

    def add(self, side: str, figures: Figures) -> None:
        for key, figure in figures.items():
            self.figures.setdefault(key, {}).setdefault(side, []).append(figure)

    def took(self, name: str, *sides: str) -> float:
        """Return the sum of the longest run of each side (all, or the given ones), in seconds."""
        return sum(max(runs) for side, runs in self.seconds.get(name, {}).items() if side in sides or not sides)

    def most_stolen(self) -> str | None:
        """Return a sentence about the run in which the host took most of the CPU time, None if it never took 1 %."""
        found = [
            (share, f"{name} of {side}, run {number}")
            for name, sides in self.stolen.items()
            for side, shares in sides.items()
            for number, share in enumerate(shares, 1)
        ]
        share, where = max(found, default=(0.0, ""))
        if share < SHOWN:
            return None
        return (
            f"the host of this virtual machine took up to {share:.0%} of the CPU time ({where}): it stops a CPU for "
            "milliseconds at a time, which the longest latencies include"
        )


def run(
    bench: Bench,
    measurements: Sequence[Measurement],
    sides: Sequence[str],
    runs: int,
    seconds: float,
    into: Collected,
    *,
    whole: bool = True,
) -> None:
    """Run all measurements `runs` times, with one side after the other in each, and in reverse order in every second
    run, so that a machine that gets slower or faster affects all sides. Everything is measured once before anything is
    measured again. Further runs begin with what takes the least time, and leave out a measurement that, judged by its
    earlier runs, would not end within `seconds`. In the `whole` suite a step that takes over STEP_SECONDS is ended and
    not repeated. Figures are added to `into` as they come, so that they are there if the run is interrupted.
    """
    end = time.monotonic() + seconds
    for number in range(1, runs + 1):
        for measurement in sorted(measurements, key=lambda each: into.took(each.name)):  # the first time as given
            if time.monotonic() + into.took(measurement.name) > end:
                if number == 1:
                    into.left_out.append(measurement.name)
                continue
            order = (*sides, BARE)
            for side in order if number % 2 else reversed(order):
                if side == KAFKA_4 and not measurement.kafka_4:
                    continue
                if into.took(measurement.name, side) >= STEP_SECONDS and whole:
                    continue
                most = max(0.001, min(STEP_SECONDS, end + GRACE_SECONDS - time.monotonic())) if whole else 0.0
                _step(bench, measurement, side, number, most, into)
        bench.close()  # kept objects must not be load for the next run


def _step(bench: Bench, measurement: Measurement, side: str, number: int, most: float, into: Collected) -> None:
    began, stolen = time.monotonic(), stolen_seconds()
    try:
        with _within(most):
            into.add(side, _measure(bench, measurement, side))
    except TooLong:
        into.left_out.append(f"{measurement.name} of {side}, run {number} (not finished after {most:.0f} s)")
    except Exception as error:
        into.failures.append(f"{measurement.name} of {side}, run {number}: {type(error).__name__}: {error}")
        _report(into.failures[-1])
    took = time.monotonic() - began
    share = (stolen_seconds() - stolen) / (took * (os.cpu_count() or 1)) if took else 0.0
    into.seconds.setdefault(measurement.name, {}).setdefault(side, []).append(round(took, 1))
    into.stolen.setdefault(measurement.name, {}).setdefault(side, []).append(round(share, 4))
    if took > 0.1:
        by_host = f", the host took {share:.0%} of the CPU time" if share >= SHOWN else ""
        _report(f"run {number}  {measurement.name:<19} {side:<8} {took:6.1f} s{by_host}")


def _measure(bench: Bench, measurement: Measurement, side: str) -> Figures:
    if side == BARE:
        return measurement.limit(bench)
    if side == OTHER:
        with bench.with_other_checkout():
            return measurement.run(bench, KAFKAPY)
    return measurement.run(bench, side)


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TooLong in the block if it takes longer than this; 0: no limit."""

    def ring(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
