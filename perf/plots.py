"""`python -m perf.plots RESULT.json ...`: PNG files for docs/performance.md, in docs/plots.

One for each cost that was measured against a size, two of copying against sendfile, and two of the soak.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from perf.machine import ROOT
from perf.measurement import BARE, KAFKA, KAFKAPY
from perf.measurements import zero_copy
from perf.newest import Newest, load
from perf.report import TITLES

COLOURS = {KAFKA: "#b0533a", KAFKAPY: "#2f6f8f", BARE: "#8a8a8a"}
DASHES = {"sendfile": "-", "copy": "--"}
Line = tuple[str, Sequence[tuple[float, float]], str, str]  # label, points, colour, style


def draw(
    file: Path, title: str, x: str, y: str, lines: Iterable[Line], scales: tuple[str, str] = ("log", "log")
) -> None:
    """Points that a logarithm cannot show are left out."""
    from matplotlib.figure import Figure  # in the extra `perf`, and not needed for measuring

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale(scales[0])
    axes.set_yscale(scales[1])
    drawn = 0
    for label, points, colour, style in lines:
        shown = [point for point in points if point[1] > 0 or scales[1] != "log"]
        if shown:
            axes.plot(*zip(*shown, strict=True), style, marker="o", markersize=4, label=label, color=colour)
            drawn += 1
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, loc="left")
    axes.grid(visible=True, which="major", alpha=0.3)
    if drawn > 1:
        axes.legend(frameon=False)
    figure.savefig(file, dpi=120)


def draw_all(found: Newest, directory: Path) -> list[Path]:
    """The files that were made."""
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for key, curve in found.curves.items():
        lines = [(TITLES[side], points, COLOURS[side], "-") for side, points in curve["points"].items()]
        made.append(directory / f"{key}.png")
        draw(made[-1], curve["label"], curve["of"], curve["unit"], lines)
    for what, title, unit in (
        ("rate", "one consumer, hot: throughput", "MB/s"),
        ("cpu", "one consumer, hot: CPU of the sender", "s a GiB"),
    ):
        lines = _copies(found, what)
        if lines:
            made.append(directory / f"zero_copy.{what}.png")
            draw(made[-1], title, "bytes an answer", unit, lines)
    if found.soak is not None:
        for name, title, unit in (("rss_mib", "soak: resident memory", "MiB"), ("p99_ms", "soak: p99 of acks", "ms")):
            points = [(one["minute"], one[name]) for one in found.soak["samples"]]
            made.append(directory / f"soak.{name}.png")
            draw(made[-1], title, "minutes", unit, [("", points, COLOURS[KAFKAPY], "-")], ("linear", "linear"))
    return made


def _copies(found: Newest, what: str) -> list[Line]:
    lines: list[Line] = []
    for side in (BARE, KAFKA, KAFKAPY):
        for mode in zero_copy.MODES:
            keys = [(size, f"zero-copy.{mode}.{zero_copy.ONE}.{size}.{what}") for size in zero_copy.SIZES]
            medians = [(size, found.median(key, side)) for size, key in keys]
            points = [(size, median) for size, median in medians if median is not None]
            if points:
                lines.append((f"{TITLES[side]}, {mode}", points, COLOURS[side], DASHES[mode]))
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m perf.plots", description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="+", help="JSON files of perf and perf.soak, the newest last")
    parser.add_argument(
        "--to", type=Path, default=ROOT / "docs" / "plots", metavar="DIR", help="where they go (docs/plots)"
    )
    options = parser.parse_args(arguments)
    made = draw_all(load(options.results), options.to)
    if not made:
        parser.error("these hold nothing to draw: run a measurement over sizes, such as zero_copy or partitions")
    for file in made:
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
