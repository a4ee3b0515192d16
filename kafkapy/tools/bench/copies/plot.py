"""Draws the picture of `kafkapy bench copies --plot`."""

from __future__ import annotations

import textwrap
from typing import Any, BinaryIO

from kafkapy.tools.bench.copies.loads import MODES, Figures
from kafkapy.tools.bench.copies.verdict import Measured
from kafkapy.tools.common.pictures import plotting, today

COLOURS = {"sendfile": "tab:blue", "copy": "tab:orange"}
_WIDTH = 0.38


def draw(measured: Measured, title: str, sentence: str, out: BinaryIO, kind: str) -> None:
    """Draw rates and CPU of both ways, as bars from the median and lines from the lowest to the highest round."""
    figure = plotting().Figure(figsize=(12, 6), layout="constrained")
    figure.suptitle(f"{title} ({today()})\n{textwrap.fill(sentence, 130)}", fontsize="medium")
    rates, cpu = figure.subplots(1, 2)
    _draw(rates, measured, "rates", "MB/s")
    _draw(cpu, measured, "cpu", "CPU seconds of the broker per GiB")
    rates.legend(frameon=False)
    figure.savefig(out, format=kind, dpi=110)


def _draw(axes: Any, measured: Measured, what: str, unit: str) -> None:
    axes.set_title(unit, loc="left")
    for shift, mode in zip((-_WIDTH / 2, _WIDTH / 2), MODES, strict=True):
        each = [_medians(ways[mode], what) for ways in measured.values()]
        axes.bar(
            [place + shift for place in range(len(each))],
            [middle for middle, _, _ in each],
            _WIDTH,
            yerr=[[middle - low for middle, low, _ in each], [high - middle for middle, _, high in each]],
            capsize=3,
            label=mode,
            color=COLOURS[mode],
        )
    axes.set_xticks(range(len(measured)), [str(load).replace(", ", "\n") for load in measured])
    axes.grid(visible=True, axis="y", alpha=0.3)


def _medians(figures: Figures, what: str) -> tuple[float, float, float]:
    """Return (median, lowest, highest)."""
    values = getattr(figures, what)
    return (figures.rate if what == "rates" else figures.cpu_per_gib), min(values), max(values)
