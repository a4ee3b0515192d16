"""`python -m perf.plots RESULT.json DIRECTORY`: the curves of a run as PNG files, one a cost."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

TITLES = {"kafka": "Apache Kafka", "kafkapy": "kafkapy"}
COLOURS = {"kafka": "#b0533a", "kafkapy": "#2f6f8f"}


def draw(curve: dict[str, Any], file: Path) -> None:
    """One curve of the JSON, size and cost both in powers of ten."""
    from matplotlib.figure import Figure  # in the extra `perf`, and not needed for measuring

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for side, points in curve["points"].items():
        shown = [(size, cost) for size, cost in points if cost > 0]
        if shown:
            axes.plot(*zip(*shown, strict=True), marker="o", label=TITLES.get(side, side), color=COLOURS.get(side))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(curve["of"])
    axes.set_ylabel(curve["unit"])
    axes.set_title(curve["label"], loc="left")
    axes.grid(visible=True, which="major", alpha=0.3)
    if len(curve["points"]) > 1:
        axes.legend(frameon=False)
    figure.savefig(file, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m perf.plots", description=__doc__)
    parser.add_argument("result", type=Path, help="a JSON file that python -m perf has written")
    parser.add_argument("directory", type=Path, help="where the PNG files go")
    options = parser.parse_args(arguments)
    try:
        curves = json.loads(options.result.read_text()).get("curves", [])
    except (OSError, ValueError) as error:
        parser.error(f"{options.result} cannot be read: {error}")
    if not curves:
        parser.error(f"{options.result} holds no curve: run a measurement over sizes, such as partitions")
    options.directory.mkdir(parents=True, exist_ok=True)
    for curve in curves:
        file = options.directory / f"{curve['key']}.png"
        draw(curve, file)
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
