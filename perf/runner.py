"""Runs measurements in turn (A-B-A-B) within a bounded time and collects every figure."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from perf.measurement import BARE, Bench, Figures, Measurement

# In the whole suite no step may hold up the others: what one side has measured of a curve by then is kept.
STEP_SECONDS = 150.0
GRACE_SECONDS = 90.0  # that the last step may take when time is up


class TooLong(BaseException):
    """A step has not ended in time; no measurement may take it for a failure of its own."""


@dataclass
class Collected:
    """`figures`: row key -> side -> one figure a run. `failures`: what did not work, in sentences."""

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, side: str, figures: Figures) -> None:
        for key, figure in figures.items():
            self.figures.setdefault(key, {}).setdefault(side, []).append(figure)


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
    """Each run takes every measurement, each measurement every side one after the other, so that a machine that gets
    slower or faster meanwhile does so for all of them. In the `whole` suite some are measured once only (`most_runs`),
    when all runs of the others are done. A step that would end after `seconds` (by what it took the last time) is left
    out, and of the whole suite one that takes over STEP_SECONDS. `into` is filled as figures come, so that an
    interrupted run has what it measured.
    """
    end = time.monotonic() + seconds
    took: dict[tuple[str, str], float] = {}
    for number, measurement in _turns(measurements, runs, whole):
        for side in (*sides, BARE):
            step = (measurement.name, side)
            began = time.monotonic()
            if began + took.get(step, 0.0) > end:
                into.left_out.append(f"{measurement.name} of {side}, run {number}")
                continue
            most = max(0.001, min(STEP_SECONDS, end + GRACE_SECONDS - began)) if whole else 0.0
            try:
                with _within(most):
                    into.add(side, measurement.limit(bench) if side == BARE else measurement.run(bench, side))
            except TooLong:
                into.left_out.append(f"{measurement.name} of {side}, run {number} (not done after {most:.0f} s)")
            except Exception as error:
                into.failures.append(f"{measurement.name} of {side}, run {number}: {type(error).__name__}: {error}")
                _say(into.failures[-1])
            took[step] = time.monotonic() - began
            if took[step] > 0.1:
                _say(f"run {number}  {measurement.name:<19} {side:<8} {took[step]:6.1f} s")


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raises TooLong in the block when it takes longer; 0: it may take as long as it likes."""

    def ring(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _turns(measurements: Sequence[Measurement], runs: int, whole: bool) -> Iterator[tuple[int, Measurement]]:
    once = [each for each in measurements if whole and each.most_runs == 1]
    for number in range(1, runs + 1):
        yield from ((number, each) for each in measurements if each not in once)
    yield from ((1, each) for each in once)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
