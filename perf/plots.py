"""Draws the PNG files of docs/performance.md (`python -m perf.publish`).

There is one for each curve (a cost against a size), two that compare copying with sendfile, and two of the soak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.measurement import BARE, KAFKA, KAFKA_4, KAFKAPY, OTHER, PEERS
from perf.measurements import zero_copy
from perf.newest import Newest, made_by
from perf.report import TITLES

COLOURS = {KAFKA: "#b0533a", KAFKA_4: "#d39a4a", OTHER: "#7a6a9a", KAFKAPY: "#2f6f8f", BARE: "#8a8a8a"}
DASHES = {"sendfile": "-", "copy": "--"}
COPIES = {
    "zero_copy.rate": ("one consumer, hot: throughput", "MB/s"),
    "zero_copy.cpu": ("one consumer, hot: CPU of the sender", "s per GiB"),
}
SOAK = {"soak.rss_mib": ("soak: resident memory", "MiB"), "soak.p99_ms": ("soak: p99 of acks", "ms")}
NARROW = 30  # below this ratio of the largest to the smallest value, ticks between powers of ten also get numbers
Line = tuple[str, Sequence[tuple[float, float]], str, str]  # label, points, colour, style


@dataclass(frozen=True)
class Plot:
    """One plot; `by` is the kafkapy that was measured."""

    title: str
    x: str
    y: str
    lines: list[Line]
    by: str
    scale: str = "log"


def titles(found: Newest) -> dict[str, str]:
    """Return the title of each plot by its file name without suffix."""
    return {name: plot.title for name, plot in _all(found).items()}


def draw_all(found: Newest, directory: Path) -> list[Path]:
    """Draw all plots into the directory and return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    plots = {directory / f"{name}.png": plot for name, plot in _all(found).items()}
    for file, plot in plots.items():
        draw(file, plot)
    return list(plots)


def draw(file: Path, plot: Plot) -> None:
    """Draw one plot. A logarithmic one leaves out points that are not positive."""
    from matplotlib.figure import Figure  # in the extra `perf`, and not needed for measuring

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    every: list[tuple[float, float]] = []
    for label, points, colour, style in plot.lines:
        shown = [point for point in points if point[1] > 0 or plot.scale != "log"]
        if shown:
            axes.plot(*zip(*shown, strict=True), style, marker="o", markersize=4, label=label, color=colour)
            every += shown
    if plot.scale == "log" and every:
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis, places in zip((axes.xaxis, axes.yaxis), zip(*every, strict=True), strict=True):
            _plain_numbers(axis, places)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    axes.set_title(plot.title, loc="left")
    axes.grid(visible=True, which="major", alpha=0.3)
    if len(axes.lines) > 1:
        axes.legend(frameon=False)
    if plot.by:
        figure.supxlabel(f"kafkapy {plot.by}", fontsize="xx-small", color="#8a8a8a", ha="right", x=0.99)
    figure.savefig(file, dpi=120)


def _plain_numbers(axis: Any, places: Sequence[float]) -> None:
    """Label the ticks of a logarithmic axis with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    plain = FuncFormatter(lambda place, _: f"{place:,.0f}" if place >= 1 else f"{place:g}")
    axis.set_major_formatter(plain)
    axis.set_minor_locator(LogLocator(subs=(2, 3, 5) if max(places) < NARROW * min(places) else (2, 5)))
    axis.set_minor_formatter(plain if max(places) < NARROW * min(places) else NullFormatter())


def _all(found: Newest) -> dict[str, Plot]:
    plots = {}
    for key, curve in found.curves.items():
        lines = [(TITLES[side], points, COLOURS[side], "-") for side, points in curve["points"].items()]
        plots[key] = Plot(curve["label"], curve["of"], curve["unit"], lines, made_by([curve]))
    for key, (title, unit) in COPIES.items():
        copies = _copies(found, key.rpartition(".")[2])
        if copies:
            plots[key] = Plot(title, "bytes per response", unit, copies, made_by(found.those("zero-copy.")))
    if found.soak is not None:
        for key, (title, unit) in SOAK.items():
            points = [(one["minute"], one[key.rpartition(".")[2]]) for one in found.soak["samples"]]
            lines = [("", points, COLOURS[KAFKAPY], "-")]
            plots[key] = Plot(title, "minutes", unit, lines, made_by([found.soak]), "linear")
    return plots


def _copies(found: Newest, what: str) -> list[Line]:
    lines: list[Line] = []
    for side in (BARE, *PEERS, KAFKAPY):
        for mode in zero_copy.MODES:
            keys = [(size, f"zero-copy.{mode}.{zero_copy.ONE}.{size}.{what}") for size in zero_copy.SIZES]
            medians = [(size, found.median(key, side)) for size, key in keys]
            points = [(size, median) for size, median in medians if median is not None]
            if points:
                lines.append((f"{TITLES[side]}, {mode}", points, COLOURS[side], DASHES[mode]))
    return lines
