"""Runs measurements in turn (A-B-A-B) within a bounded time and collects every figure."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from perf.measurement import BARE, KAFKAPY, OTHER, Bench, Figures, Measurement

# In the whole suite no step may hold up the others: what one side has measured of a curve by then is kept.
STEP_SECONDS = 150.0
GRACE_SECONDS = 90.0  # that the last step may take when time is up


class TooLong(BaseException):
    """A step has not ended in time; no measurement may take it for a failure of its own."""


@dataclass
class Collected:
    """`figures`: row key -> side -> one figure a run. `seconds`: measurement -> side -> what each run took.
    `failures`: what did not work, in sentences."""

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # never measured, or not to its end

    def add(self, side: str, figures: Figures) -> None:
        for key, figure in figures.items():
            self.figures.setdefault(key, {}).setdefault(side, []).append(figure)

    def took(self, name: str, *sides: str) -> float:
        """Seconds of the longest run of each side, or of those given, together."""
        return sum(max(runs) for side, runs in self.seconds.get(name, {}).items() if side in sides or not sides)


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
    slower or faster meanwhile does so for all of them. All is measured once before anything is measured again; then,
    in the same order, what by its runs so far will end within `seconds`. In the `whole` suite a step that takes over
    STEP_SECONDS is ended, and not tried again. `into` is filled as figures come, so that an interrupted run has what it
    measured.
    """
    end = time.monotonic() + seconds
    for number in range(1, runs + 1):
        for measurement in measurements:
            if time.monotonic() + into.took(measurement.name) > end:
                if number == 1:
                    into.left_out.append(measurement.name)
                continue
            for side in (*sides, BARE):
                if into.took(measurement.name, side) >= STEP_SECONDS and whole:
                    continue
                most = max(0.001, min(STEP_SECONDS, end + GRACE_SECONDS - time.monotonic())) if whole else 0.0
                _step(bench, measurement, side, number, most, into)
        bench.close()  # what was kept is no load beside the next run


def _step(bench: Bench, measurement: Measurement, side: str, number: int, most: float, into: Collected) -> None:
    began = time.monotonic()
    try:
        with _within(most):
            into.add(side, _measure(bench, measurement, side))
    except TooLong:
        into.left_out.append(f"{measurement.name} of {side}, run {number} (not done after {most:.0f} s)")
    except Exception as error:
        into.failures.append(f"{measurement.name} of {side}, run {number}: {type(error).__name__}: {error}")
        _say(into.failures[-1])
    took = time.monotonic() - began
    into.seconds.setdefault(measurement.name, {}).setdefault(side, []).append(round(took, 1))
    if took > 0.1:
        _say(f"run {number}  {measurement.name:<19} {side:<8} {took:6.1f} s")


def _measure(bench: Bench, measurement: Measurement, side: str) -> Figures:
    if side == BARE:
        return measurement.limit(bench)
    if side == OTHER:
        with bench.with_other_checkout():
            return measurement.run(bench, KAFKAPY)
    return measurement.run(bench, side)


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


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
