"""Prints the table and writes the JSON file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from perf.curves import Curve
from perf.measurement import BARE, KAFKA, KAFKA_4, KAFKAPY, OTHER, PEERS
from perf.stats import Comparison, Summary

TITLES = {
    KAFKA: "Apache Kafka",
    KAFKA_4: "Apache Kafka 4.4.0",
    OTHER: "other checkout",
    KAFKAPY: "kafkapy",
    BARE: "bare loop",
}
NO_DIFFERENCE = "no difference"
CLIENT_IS_LIMIT = "the client is the limit"
ONE_RUN = "(one run)"  # beside a goal that is reached


def head(machine: Mapping[str, str]) -> str:
    width = max(map(len, machine))
    return "\n".join(f"{name:<{width}}  {text}" for name, text in machine.items())


def table(comparisons: Sequence[Comparison]) -> Table:
    """Return the table of medians, with the lowest and highest figure of the runs in brackets."""
    table = Table(title="medians (lowest–highest of the runs)", title_justify="left")
    table.add_column("figure")
    table.add_column("runs", justify="right")
    measured = {side for each in comparisons for side in each.sides}
    brokers = [side for side in (*PEERS, OTHER, KAFKAPY) if side in measured or side == KAFKAPY]
    for side in brokers:
        table.add_column(TITLES[side], justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    if KAFKA_4 in measured:
        table.add_column("to 4.4.0", justify="right", no_wrap=True)
    table.add_column("goal", justify="right", no_wrap=True)
    table.add_column("verdict")
    table.add_column(TITLES[BARE], justify="right", no_wrap=True)
    for each in comparisons:
        cells = [_cell(each, side) for side in brokers]
        ratios = [_times(each.ratio), *([_times(each.ratio_to(KAFKA_4))] if KAFKA_4 in measured else [])]
        goal = each.row.goal.text(each.row) if each.row.goal else ""
        runs = how_many([found.runs for found in each.sides.values()])
        table.add_row(
            f"{each.row.label}, {each.row.unit}", runs, *cells, *ratios, goal, verdict(each), _cell(each, BARE)
        )
    return table


def how_many(runs: Collection[int]) -> str:
    """Return the number of runs as text: one number if it is the same for all sides, else a range."""
    return f"{min(runs)} to {max(runs)}" if len(set(runs)) > 1 else str(max(runs, default=0))


def verdict(each: Comparison) -> str:
    """Return words that say whether the goal is reached, and remarks about the difference."""
    words: list[str] = [each.verdict] if each.verdict else []
    if words == ["reached"] and each.in_one_run:
        words = [f"reached {ONE_RUN}"]
    if each.within_spread and NO_DIFFERENCE not in words:
        words.append(NO_DIFFERENCE)
    if each.client_bound:
        words.append(CLIENT_IS_LIMIT)
    return "; ".join(words)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f} ×"


def curve_table(curve: Curve) -> Table:
    """Return a table with the cost for each size."""
    table = Table(title=f"{curve.label}, {curve.unit}", title_justify="left")
    table.add_column(curve.of, justify="right")
    points = {side: dict(curve.points(side)) for side in curve.costs}
    for side in points:
        table.add_column(TITLES[side], justify="right")
    for size in curve.sizes():
        table.add_row(f"{size:,}", *(f"{at[size]:,.4g}" if size in at else "" for at in points.values()))
    return table


def show(
    machine: Mapping[str, str],
    comparisons: Sequence[Comparison],
    notes: Mapping[str, str],
    curves: Mapping[str, Curve],
) -> None:
    """Print everything on standard output, wide enough for all figures if that is a file."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=260)
    if comparisons:
        console.print(table(comparisons))
    for curve in curves.values():
        console.print(curve_table(curve))
        for side in curve.costs:
            console.print(f"  {TITLES[side]}: {curve.sentence(side)}", markup=False, soft_wrap=True)
    for text in notes.values():
        console.print(f"- {text}", markup=False, soft_wrap=True)


def write_json(
    path: Path,
    machine: Mapping[str, str],
    comparisons: Sequence[Comparison],
    measured: Mapping[str, Mapping[str, Sequence[float]]],
    notes: Mapping[str, str],
    run: Mapping[str, Any],
    curves: Mapping[str, Curve] | None = None,
) -> None:
    """Write the JSON file. `run` describes the run (scale, runs, seconds); rows have all figures, not only medians."""
    rows = [
        {
            "key": each.row.key,
            "label": each.row.label,
            "unit": each.row.unit,
            "better": each.row.better,
            "goal": each.row.goal.text(each.row) if each.row.goal else None,
            "verdict": each.verdict,
            "reached": None if each.verdict is None else each.verdict == "reached",
            "ratio": each.ratio,
            "spread_larger_than_difference": each.within_spread,
            "ratios": {side: each.ratio_to(side) for side in PEERS if side in each.sides},
            "no_difference": [side for side in PEERS if each.no_difference(side)],
            "client_is_limit": each.client_bound,
            "in_one_run": each.in_one_run,
            "medians": {side: found.median for side, found in each.sides.items()},
            "figures": {side: list(figures) for side, figures in measured[each.row.key].items()},
        }
        for each in comparisons
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = [curve.as_json(key) for key, curve in (curves or {}).items()]
    found = {"machine": machine, "run": run, "rows": rows, "curves": drawn, "notes": list(notes.values())}
    text = json.dumps(found, indent=1)
    path.write_text(text + "\n")


def _cell(each: Comparison, side: str) -> str:
    found: Summary | None = each.sides.get(side)
    if found is None:
        return ""
    median = each.row.show(found.median)
    return median if found.runs == 1 else f"{median} ({each.row.show(found.low)}–{each.row.show(found.high)})"
