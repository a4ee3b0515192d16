"""`python -m perf.tables RESULT.json ...`: the tables of docs/performance.md and README.md, from the newest results.

What stands between a line `<!-- perf: NAME -->` and the next `<!-- /perf -->` is made anew. NAME is `machine`,
`headline` (the rows of the README), `copies` (zero_copy), `steps`, `soak`, `growth PREFIX` (what curves say) or the
beginning of rows' keys. Of each row the file counts that is named last; rows in no file leave their place empty.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from perf import steps
from perf.machine import ROOT
from perf.measurement import BARE, KAFKA, KAFKAPY
from perf.measurements import zero_copy
from perf.newest import Newest, load
from perf.report import TITLES

PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")
BLOCK = re.compile(r"(<!-- perf: (?P<name>[^>]+?) -->\n).*?(<!-- /perf -->)", re.DOTALL)
SIDES = (KAFKA, KAFKAPY, BARE)
MACHINE = ("machine", "kernel", "file system", "TCP", "kafkapy", "Apache Kafka", "Python")

# The rows of the README: what they say, and the keys whose figures stand side by side.
HEADLINE = (
    ("produce 1 KiB records, acks=1 / all, MB/s", ("produce.1k.acks1", "produce.1k.acksall")),
    ("produce 100 B records, acks=1 / all, MB/s", ("produce.100b.acks1", "produce.100b.acksall")),
    ("broker CPU a GiB produced, 1 KiB / 100 B, s", ("produce.1k.cpu", "produce.100b.cpu")),
    (
        "the same, compressed: gzip / snappy / lz4 / zstd, s",
        ("codecs.gzip.cpu", "codecs.snappy.cpu", "codecs.lz4.cpu", "codecs.zstd.cpu"),
    ),
    ("consume 1 KiB records, hot, MB/s", ("consume.1k",)),
    ("broker CPU a GiB consumed, s", ("consume.1k.cpu",)),
    ("one record a request, pipelined, requests/s", ("requests.rate",)),
    ("its broker CPU a 100,000, s", ("requests.cpu",)),
    (
        "produce to ack at 1,000/s, p50 / p99 / p99.9, ms",
        ("latency.pinned.p50", "latency.pinned.p99", "latency.pinned.p99.9"),
    ),
    (
        "at 500/s beside a reader of what is on disk, p99 / p99.9, ms",
        ("cold_readers.1.beside.p99", "cold_readers.1.beside.p99.9"),
    ),
    ("that reader, MB/s", ("cold_readers.1.rate",)),
    ("process start to first acknowledged record, s", ("start.seconds",)),
    ("resident memory, fresh / after load, MiB", ("start.memory", "memory.loaded")),
    ("recovery of an unclean 1 GiB segment, s", ("recovery.load",)),
    ("clean start with 10,000 partitions, s", ("partitions.start",)),
    (
        "rows read through Spark, beside its own source 4.0.0, 100 B / 1 KiB, M/s",
        ("spark.read.100b.oldest", "spark.read.1k.oldest"),
    ),
)


def figure(number: float | None) -> str:
    """Three or four digits that count."""
    if number is None:
        return ""
    size = abs(number)
    return f"{number:,.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 or not size else 3}f}"


def block(found: Newest, name: str) -> str:
    """What belongs between the marks; empty where no file has it."""
    kind, _, rest = name.partition(" ")
    if kind == "machine":
        return _machine(found)
    if kind == "headline":
        return _headline(found)
    if kind == "copies":
        return _copies(found)
    if kind == "steps":
        return "" if found.steps is None else steps.table(found.steps["broker"], found.steps["bare"]) + "\n"
    if kind == "soak":
        return _soak(found)
    if kind == "growth":
        return _growth(found, rest)
    return _rows(found.those(name))


def _table(heads: list[str], lines: list[list[str]]) -> str:
    """Markdown; the first column is words, the others are figures."""
    rule = ["---", *["--:"] * (len(heads) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, rule, *lines))


def _rows(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    has = [side for side in SIDES if any(side in row["medians"] for row in rows)]
    lines = []
    for row in rows:
        goal = row["goal"] or ""
        if goal and row["reached"] is not None:
            goal += " ✓" if row["reached"] else " missed"
        cells = [_with_spread(row, side) for side in has]
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f} ×"
        if ratio and row["spread_larger_than_difference"]:
            ratio += " (spread is larger)"
        lines.append([f"{row['label']}, {row['unit']}".rstrip(", "), *cells, ratio, goal])
    return _table(["figure", *(TITLES[side] for side in has), "ratio", "goal"], lines)


def _with_spread(row: dict[str, Any], side: str) -> str:
    runs = row["figures"].get(side, [])
    text = figure(row["medians"].get(side))
    return text if len(runs) < 2 else f"{text} ({figure(min(runs))}–{figure(max(runs))})"


def _headline(found: Newest) -> str:
    lines = []
    for words, keys in HEADLINE:
        if not any(key in found.rows for key in keys):
            continue
        both = [" / ".join(figure(found.median(key, side)) for key in keys).strip(" /") for side in (KAFKA, KAFKAPY)]
        ratios = [found.rows.get(key, {}).get("ratio") for key in keys]
        times = " / ".join("" if ratio is None else f"{ratio:.2f}" for ratio in ratios).strip(" /")
        lines.append([words, *both, f"{times} ×" if times else ""])
    if not lines:
        return ""
    machine, run = max(found.said, key=lambda one: int(one[1]["runs"]))
    words = f"Medians of {run['runs']} run{'s' if run['runs'] > 1 else ''} on {machine['machine']}, {machine['kernel']}"
    where = f"{words}, {machine['file system'].partition(',')[0]}, TCP {machine.get('TCP', 'unknown')}:"
    return where + "\n\n" + _table(["figure", "Apache Kafka 3.9.1", "kafkapy", "ratio"], lines)


def _machine(found: Newest) -> str:
    text = ""
    for machine, run in found.said:
        command = run.get("command", "python -m perf")
        text += f"```\n{command}    # {run['scale']}, {run['runs']} runs, {run['seconds']:.0f} s\n"
        text += "".join(f"{name:<14} {machine[name]}\n" for name in MACHINE if name in machine) + "```\n"
    return text


def _copies(found: Newest) -> str:
    """A load a line: MB/s and seconds of CPU a GiB, of each that answers."""
    columns = [
        (side, mode) for mode in zero_copy.MODES for side in (BARE, KAFKA, KAFKAPY) if (side, mode) != (KAFKA, "copy")
    ]
    lines = []
    for words, key in zero_copy.loads_in_words():
        cells = []
        for side, mode in columns:
            of = key.format(mode=mode)
            rate, cpu = (found.median(f"{of}.{what}", side) for what in ("rate", "cpu"))
            missed = found.median(f"{of}.missed", side)
            disk = "" if missed is None else f" · {missed:.0f} %"
            cells.append("" if rate is None or cpu is None else f"{rate:,.0f} · {cpu:.2f}{disk}")
        if any(cells):
            lines.append([words, *cells])
    if not lines:
        return ""
    beside = found.those("zero-copy.beside")
    return _table(["answers", *(f"{TITLES[side]}, {mode}" for side, mode in columns)], lines) + "\n" + _rows(beside)


def _growth(found: Newest, prefix: str) -> str:
    text = ""
    for key, curve in found.curves.items():
        if key.startswith(prefix):
            told = "; ".join(f"{TITLES[side]} {sentence}" for side, sentence in curve["growth"].items() if sentence)
            text += f"- {curve['label']}: {told}\n"
    return text


def _soak(found: Newest) -> str:
    if found.soak is None:
        return ""
    goals, figures = found.soak["goals"], found.soak["figures"]
    minutes = f"{found.soak['samples'][-1]['minute']:.0f} minutes"
    lines = [[name, figure(figures[name]), f"≤ {goal:g}", "reached" if figures[name] <= goal else "missed"]
             for name, goal in goals.items()]  # fmt: skip
    failures = "".join(f"- failed: {failure}\n" for failure in found.soak["failures"])
    return _table([minutes, "figure", "goal", ""], lines) + ("\n" + failures if failures else "")


def fill(page: str, found: Newest) -> str:
    """The page with its tables made anew; a place for which there is nothing stays as it is."""

    def made(place: re.Match[str]) -> str:
        text = block(found, place["name"])
        return f"{place[1]}\n{text}\n{place[3]}" if text else place[0]

    return BLOCK.sub(made, page)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m perf.tables", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "results", type=Path, nargs="+", help="JSON files of perf, perf.soak and perf.steps, the newest last"
    )
    parser.add_argument(
        "--pages", type=Path, nargs="+", default=PAGES, help="what is filled (docs/performance.md, README.md)"
    )
    options = parser.parse_args(arguments)
    found = load(options.results)
    for page in options.pages:
        page.write_text(fill(page.read_text(), found))
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
