"""Decides from the measured figures whether sendfile or copying is better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from kafkapy.tools.bench.copies.loads import SETTING, Figures, Load

EITHER = "either"
CLOSE = 1.05  # a smaller ratio of all loads together is no reason to choose
Measured = Mapping[Load, Mapping[str, Figures]]  # by load and by way, a key of loads.MODES


def ratio(ways: Mapping[str, Figures]) -> float:
    """Return how many times faster sendfile is than copying."""
    return ways["sendfile"].rate / ways["copy"].rate


def better(ways: Mapping[str, Figures]) -> str:
    """Return the way with the higher rate, or EITHER if the rounds of one way differ by more than the medians do."""
    sendfile, copy = ways["sendfile"], ways["copy"]
    if not _differ(sendfile.rates, copy.rates):
        return EITHER
    return "sendfile" if sendfile.rate > copy.rate else "copy"


def _differ(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return True if the medians differ by more than the rounds of either do."""
    return abs(median(one) - median(other)) > max(max(one) - min(one), max(other) - min(other))


def choose(measured: Measured) -> tuple[str, str]:
    """Return the way to use, or EITHER, and the sentence that says so.

    That is the way with the higher geometric mean of the rates over all loads or, if the means are close, the way that
    takes less of the broker's CPU. Both ways count as equal in a load whose rounds differ by more than the two ways do.
    """
    rates = _mean(ratio(ways) if better(ways) != EITHER else 1.0 for ways in measured.values())
    cpu = _mean(_saving(ways) for ways in measured.values())
    by_rate = max(rates, 1 / rates) >= CLOSE
    decisive = rates if by_rate else cpu
    if max(decisive, 1 / decisive) < CLOSE:
        return EITHER, f"It makes no difference here: leave {SETTING} at its default, true."
    use = "sendfile" if decisive > 1 else "copy"
    other = "copy" if use == "sendfile" else "sendfile"
    value = "true, the default" if use == "sendfile" else "false"
    why = f"{max(rates, 1 / rates):.2f} × the rate of {other} over all loads"
    if not by_rate:
        why = f"the rates are close, and it takes {min(cpu, 1 / cpu):.2f} × the CPU of {other}"
    against = [
        f"{load} ({max(ratio(ways), 1 / ratio(ways)):.2f} ×)"
        for load, ways in measured.items()
        if better(ways) == other
    ]
    but = f"; {other} was faster with: {'; '.join(against)}" if against else f", and {other} was faster nowhere"
    return use, f"Use {use} ({SETTING}={value}): {why}{but}."


def _saving(ways: Mapping[str, Figures]) -> float:
    """Return the CPU time of copying divided by that of sendfile; 1 if they count as equal or are not known."""
    sendfile, copy = ways["sendfile"], ways["copy"]
    if not sendfile.cpu_per_gib or not copy.cpu_per_gib or not _differ(sendfile.cpu, copy.cpu):
        return 1.0
    return copy.cpu_per_gib / sendfile.cpu_per_gib


def _mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean, or 1 if there are no ratios."""
    logs = [math.log(one) for one in ratios]
    return math.exp(fmean(logs)) if logs else 1.0
