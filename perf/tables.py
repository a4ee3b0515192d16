"""Fills the tables of docs/performance.md and README.md from the newest results (`python -m perf.publish`).

The text between a line `<!-- perf: NAME -->` and the next `<!-- /perf -->` is replaced. NAME is `machine`, `headline`
(the rows of the README), `copies` (zero_copy), `steps`, `soak`, `threads`, `missed` (rows that miss their goal),
`growth PREFIX` (the sentences of curves), `plots KEY ...` (images) or a prefix of row keys. For each row, the last
named file that has it counts. A text for which no file has figures stays unchanged. Below each table is the revision
that was measured; if its rows have several, each row has its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from perf import markdown, plots, steps
from perf.measurement import BARE, CLIENT_LIMIT, KAFKA, KAFKA_4, KAFKAPY, PEERS
from perf.measurements import threads, zero_copy
from perf.newest import Newest, made_by
from perf.report import CLIENT_IS_LIMIT, NO_DIFFERENCE, ONE_RUN, TITLES, how_many

BLOCK = re.compile(r"(<!-- perf: (?P<name>[^>]+?) -->\n).*?(<!-- /perf -->)", re.DOTALL)
CLIENT_BOUND = "†"  # beside a figure of kafkapy in the README
NOTHING: dict[str, Any] = {"medians": {}, "figures": {}}
SIDES = (*PEERS, KAFKAPY, BARE)
MACHINE = ("machine", "kernel", "file system", "TCP", "Apache Kafka", "Apache Kafka 4", "Python")
RUN = ("kafkapy", "date", "command", "runs")  # the heads of the table of runs

# The rows of the README: the label, and the keys whose figures the row has.
HEADLINE = (
    ("produce 1 KiB records, acks=1 / all, MB/s", ("produce.1k.acks1", "produce.1k.acksall")),
    ("produce 100 B records, acks=1 / all, MB/s", ("produce.100b.acks1", "produce.100b.acksall")),
    ("broker CPU per GiB produced, 1 KiB / 100 B, s", ("produce.1k.cpu", "produce.100b.cpu")),
    (
        "the same, compressed: gzip / snappy / lz4 / zstd, s",
        ("codecs.gzip.cpu", "codecs.snappy.cpu", "codecs.lz4.cpu", "codecs.zstd.cpu"),
    ),
    ("produce 1 KiB records, acks=1, librdkafka / Java, MB/s", ("librdkafka.1k.acks1", "java.1k.acks1")),
    ("produce 100 B records, acks=1, librdkafka / Java, MB/s", ("librdkafka.100b.acks1", "java.100b.acks1")),
    ("consume 1 KiB records, hot, MB/s", ("consume.1k",)),
    ("broker CPU per GiB consumed, s", ("consume.1k.cpu",)),
    ("one record per request, pipelined, requests/s", ("requests.rate",)),
    ("broker CPU per 100,000 such requests, s", ("requests.cpu",)),
    (
        "produce to ack at 1,000/s, p50 / p99 / p99.9, ms",
        ("latency.pinned.p50", "latency.pinned.p99", "latency.pinned.p99.9"),
    ),
    (
        "produce to ack at 1,000/s beside a cold reader, memory full, p99 / p99.9, ms",
        ("cold_readers.full.p99", "cold_readers.full.p99.9"),
    ),
    ("the cold reader, memory free / full, MB/s", ("cold_readers.free.rate", "cold_readers.full.rate")),
    ("process start to first acknowledged record, s", ("start.seconds",)),
    ("resident memory, fresh / after load, MiB", ("start.memory", "memory.loaded")),
    ("recovery of an unclean 1 GiB segment, s", ("recovery.load",)),
    ("clean start with 10,000 partitions, s", ("partitions.start",)),
    (
        "rows read through Spark, compared with Spark's own source 4.0.0, 100 B / 1 KiB, M/s",
        ("spark.read.100b.oldest", "spark.read.1k.oldest"),
    ),
)


def figure(number: float | None) -> str:
    """Format a number with three or four significant digits."""
    if number is None:
        return ""
    size = abs(number)
    return f"{number:,.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 or not size else 3}f}"


def block(found: Newest, name: str) -> str:
    """Return the text for a place `<!-- perf: NAME -->`; empty if no file has its figures."""
    kind, _, rest = name.partition(" ")
    make = BLOCKS.get(kind)
    return make(found, rest) if make else _rows(found.those(name))


def _table(heads: list[str], lines: list[list[str]], parts: Sequence[dict[str, Any]]) -> str:
    """Return a table with the measured kafkapy below; empty without lines."""
    if not lines:
        return ""
    by = made_by(parts)
    return markdown.table(heads, lines) + (f"\n*kafkapy {by}*\n" if by else "")


def _rows(rows: list[dict[str, Any]]) -> str:
    has = [side for side in SIDES if any(side in row["medians"] for row in rows)]
    lines = []
    for row in rows:
        cells = [_with_spread(row, side) for side in has]
        ratios = [_ratio(row, peer) for peer in _compared(has)]
        lines.append([_label(row), how_many(_runs(row)), *cells, *ratios])
    return _table_of_rows(["figure", "runs", *_titles(has), *_ratio_titles(has)], lines, rows, _goal)


def _table_of_rows(
    heads: list[str],
    lines: list[list[str]],
    rows: Sequence[dict[str, Any]],
    goal: Callable[[dict[str, Any]], str],
) -> str:
    """Return a table with a line for each row, which ends with its goal. Before the goal stands the ratio to the bare
    loop, if that is the goal of a row; after it the revision that was measured, if not all rows have the same."""
    columns = {
        "ratio to bare": [_to_bare(row) for row in rows],
        "goal": [goal(row) for row in rows],
        "revision": [row.get("by", "").rpartition(" at ")[2] for row in rows],
    }
    if not any(columns["ratio to bare"]):
        del columns["ratio to bare"]
    if len({row.get("by") for row in rows}) < 2:
        del columns["revision"]
    ends = zip(*columns.values(), strict=True)
    return _table([*heads, *columns], [[*line, *end] for line, end in zip(lines, ends, strict=True)], rows)


def _to_bare(row: dict[str, Any]) -> str:
    """Return the ratio to the bare loop in words; empty unless it is the goal."""
    kafkapy, bare = (row["medians"].get(side) for side in (KAFKAPY, BARE))
    return f"{kafkapy / bare:.2f} ×" if kafkapy and bare and str(row["goal"]).endswith(" bare") else ""


def _compared(sides: Sequence[str]) -> list[str]:
    """Return the peers that have a column of ratios: those that were measured."""
    return [peer for peer in PEERS if peer in sides]


def _titles(sides: Sequence[str]) -> list[str]:
    """Return the heads of the sides' columns; Apache Kafka has a version only where it needs one."""
    return ["Apache Kafka 3.9.1" if side == KAFKA and KAFKA_4 in sides else TITLES[side] for side in sides]


def _ratio_titles(sides: Sequence[str]) -> list[str]:
    return ["ratio to 4.4.0" if peer == KAFKA_4 else "ratio" for peer in _compared(sides)]


def _label(row: dict[str, Any]) -> str:
    return f"{row['label']}, {row['unit']}".rstrip(", ")


def _runs(row: dict[str, Any]) -> list[int]:
    return [len(figures) for figures in row["figures"].values()]


def _with_spread(row: dict[str, Any], side: str) -> str:
    runs = row["figures"].get(side, [])
    text = figure(row["medians"].get(side))
    return text if len(runs) < 2 else f"{text} ({figure(min(runs))}–{figure(max(runs))})"


def _ratio(row: dict[str, Any], peer: str = KAFKA) -> str:
    """Return the ratio in words; empty for shares without a goal, such as that of an idle thread."""
    ratio = "" if row["unit"].startswith("%") and not row["goal"] else _times(row, peer)
    return ratio and f"{ratio} ×" + (f" ({NO_DIFFERENCE})" if _no_difference(row, peer) else "")


def _times(row: dict[str, Any], peer: str) -> str:
    ratio = row["ratios"].get(peer)
    return "" if ratio is None else f"{ratio:.2f}"


def _no_difference(row: dict[str, Any], peer: str) -> bool:
    """Return True if the medians differ by less than the runs of one side do."""
    return peer in row["no_difference"]


def _goal(row: dict[str, Any]) -> str:
    reached = f" ✓ {ONE_RUN}" if row["in_one_run"] else " ✓"
    return _with_limit(row) + {None: "", "reached": reached}.get(row["verdict"], f" {row['verdict']}")


def _with_limit(row: dict[str, Any]) -> str:
    """Return the goal, and that the client limits the figure if it does."""
    limit = f"({CLIENT_IS_LIMIT})" if row["client_is_limit"] else ""
    return f"{row['goal'] or ''} {limit}".strip()


def _headline(found: Newest, _: str) -> str:
    lines = []
    parts: list[dict[str, Any]] = []
    shown = {key for _, keys in HEADLINE for key in keys}
    with_4 = any(KAFKA_4 in row["medians"] for key, row in found.rows.items() if key in shown)
    sides = [KAFKA, *([KAFKA_4] if with_4 else []), KAFKAPY]
    for words, keys in HEADLINE:
        rows = [found.rows[key] for key in keys if key in found.rows]
        if not rows:
            continue
        parts += rows
        medians = [_joined([_headline_figure(found, key, side) for key in keys]) for side in sides]
        ratios = [_headline_ratio([found.rows.get(key) for key in keys], peer) for peer in _compared(sides)]
        lines.append([words, *medians, *ratios])
    if not lines:
        return ""
    runs = how_many([number for row in parts for number in _runs(row)])
    places = dict.fromkeys(_place(*found.origins[row["run"]]) for row in parts)
    words = f"Medians of {runs} run{'s' if runs != '1' else ''} on {'; and on '.join(places)}:"
    if any(NO_DIFFERENCE in cell for line in lines for cell in line):
        words += f"\n(“{NO_DIFFERENCE}”: the medians differ by less than the runs of one side do.)"
    if any(CLIENT_BOUND in cell for line in lines for cell in line):
        words += (
            f"\n({CLIENT_BOUND}: {CLIENT_IS_LIMIT}; its busiest thread uses {CLIENT_LIMIT:.0f} % of a core or more.)"
        )
    titles = ["Apache Kafka 3.9.1", *_titles(sides[1:])]
    return words + "\n\n" + _table(["figure", *titles, *_ratio_titles(sides)], lines, parts)


def _place(machine: dict[str, str], run: dict[str, Any]) -> str:
    """Return where and when a run was made, in words."""
    words = [machine["machine"], machine["kernel"], machine["file system"].partition(",")[0]]
    words += [f"TCP {machine.get('TCP', 'unknown')}", run.get("date", "")]
    return ", ".join(filter(None, words))


def _headline_figure(found: Newest, key: str, side: str) -> str:
    bound = side == KAFKAPY and key in found.rows and found.rows[key]["client_is_limit"]
    return figure(found.median(key, side)) + (CLIENT_BOUND if bound else "")


def _headline_ratio(rows: Sequence[dict[str, Any] | None], peer: str) -> str:
    ratios = ["" if row is None else NO_DIFFERENCE if _no_difference(row, peer) else _times(row, peer) for row in rows]
    if NO_DIFFERENCE in ratios:
        return _joined([times if times in ("", NO_DIFFERENCE) else f"{times} ×" for times in ratios])
    times = _joined(ratios)
    return f"{times} ×" if times else ""


def _joined(texts: Sequence[str]) -> str:
    """Return the figures of a line in one cell; a dash stands for a figure that is missing, if others are there."""
    return " / ".join(text or "–" for text in texts) if any(texts) else ""


def _machine(found: Newest, _: str) -> str:
    """Describe the machines, and list the runs whose figures are shown: each with the kafkapy that was measured."""
    shown = {part["run"] for part in (*found.rows.values(), *found.curves.values())}
    lines: list[list[str]] = []
    machines: list[dict[str, str]] = []
    for number, (machine, run) in enumerate(found.origins):
        if number not in shown:
            continue
        revision = machine.get("kafkapy", "").rpartition(" at ")[2]
        often = "once" if run["runs"] == 1 else f"up to {run['runs']} runs"
        how = f"{run['scale']}, {often}, {run['seconds']:.0f} s"
        lines.append([revision, run.get("date", ""), f"`{run.get('command', 'python -m perf')}`", how])
        _add_machine(machines, machine)
    if not lines:
        return ""
    texts = ("".join(f"{name:<14} {each[name]}\n" for name in MACHINE if name in each) for each in machines)
    return "".join(f"```\n{text}```\n" for text in texts) + "\n" + markdown.table(RUN, lines)


def _add_machine(machines: list[dict[str, str]], machine: dict[str, str]) -> None:
    """Add a machine, or complete the texts about a known machine that it does not contradict."""
    described = {name: text for name, text in machine.items() if name in MACHINE}
    described["file system"] = described.get("file system", "").partition(",")[0]  # without how much was free
    for known in machines:
        if all(known.get(name, text) == text for name, text in described.items()):
            known |= described
            return
    machines.append(described)


def _copies(found: Newest, _: str) -> str:
    """Return three tables: MB/s and CPU seconds per GiB, with a line per load; the ratios of sendfile and copy; the
    latencies of a producer at the same time."""
    rows = found.those("zero-copy.")
    sides = [side for side in (BARE, *PEERS, KAFKAPY) if any(side in row["medians"] for row in rows)]
    columns = [(side, mode) for mode in zero_copy.MODES for side in sides if mode == "sendfile" or side not in PEERS]
    lines, compared = [], []
    for words, key in zero_copy.loads_in_words():
        cells = []
        for side, mode in columns:
            of = key.format(mode=mode)
            rate, cpu = (found.median(f"{of}.{what}", side) for what in ("rate", "cpu"))
            missed = found.median(f"{of}.missed", side)
            disk = "" if missed is None else f" · {missed:.0f} %"
            cells.append("" if rate is None or cpu is None else f"{rate:,.0f} · {cpu:.2f}{disk}")
        times = [_sendfile_to_copy(found, key, what, side) for side in (BARE, KAFKAPY) for what in ("rate", "cpu")]
        if any(cells):
            lines.append([words, *cells])
        if any(times):
            compared.append([words, *times])
    table = _table(["responses", *(f"{TITLES[side]}, {mode}" for side, mode in columns)], lines, rows)
    heads = [f"{TITLES[side]}, {what}" for side in (BARE, KAFKAPY) for what in ("rate", "CPU per GiB")]
    ratios = _table(["sendfile / copy", *heads], compared, rows)
    return "\n".join(text for text in (table, ratios, _rows(found.those("zero-copy.beside"))) if text)


def _sendfile_to_copy(found: Newest, key: str, what: str, side: str) -> str:
    sendfile, copy = (found.median(f"{key.format(mode=mode)}.{what}", side) for mode in zero_copy.MODES)
    return f"{sendfile / copy:.2f} ×" if sendfile and copy else ""


def _threads(found: Newest, _: str) -> str:
    """Return a table with a line per setting, and a sentence with the best setting of each column."""
    columns = {"rate": "requests/s", "cpu": "CPU per request, µs", "p99": "p99 of a request, ms"}
    columns |= {"fetched": "8 consumers, MB/s", "beside": "p99 of produce at the same time, ms"}
    settings = {
        f"{count} network thread{'s' if count > 1 else ''}, {interval:g} ms": (count, interval)
        for count, interval in itertools.product(threads.THREADS, threads.INTERVALS_MS)
    }
    rows = found.those("threads.")
    if not rows:
        return ""
    lines = [
        [words, *(_with_spread(found.rows.get(threads.key_of(*setting, what), NOTHING), KAFKAPY) for what in columns)]
        for words, setting in settings.items()
    ]
    best = []
    for what, words in columns.items():
        measured = {
            setting: median
            for setting in settings
            if (median := found.median(threads.key_of(*settings[setting], what), KAFKAPY)) is not None
        }
        choose = max if what in ("rate", "fetched") else min
        best.append(f"{words}: {choose(measured, key=measured.__getitem__)}" if measured else "")
    sentence = f"The best of each column: {'; '.join(filter(None, best))}.\n"
    return f"{_table(['setting', *columns.values()], lines, rows)}\n{sentence}"


def _missed(found: Newest, _: str) -> str:
    rows = [row for row in found.rows.values() if row["verdict"] not in (None, "reached")]
    lines = [[_label(row), figure(row["medians"].get(KAFKAPY)), _ratio(row)] for row in rows]
    return _table_of_rows(["figure", "kafkapy", "ratio to Apache Kafka"], lines, rows, _with_limit)


def _growth(found: Newest, prefix: str) -> str:
    curves = [curve for key, curve in found.curves.items() if key.startswith(prefix)]
    text = ""
    for curve in curves:
        sentences = "; ".join(f"{TITLES[side]} {sentence}" for side, sentence in curve["growth"].items() if sentence)
        text += f"- {curve['label']}: {sentences}\n"
    return text + (f"\n*kafkapy {made_by(curves)}*\n" if made_by(curves) else "")


def _plots(found: Newest, keys: str) -> str:
    titles = plots.titles(found)
    return "".join(f"![{titles[key]}](plots/{key}.png)\n" for key in keys.split() if key in titles)


def _steps(found: Newest, _: str) -> str:
    if found.steps is None:
        return ""
    by = made_by([found.steps])
    return steps.table(found.steps["broker"], found.steps["bare"]) + (f"\n*kafkapy {by}*\n" if by else "")


def _soak(found: Newest, _: str) -> str:
    if found.soak is None:
        return ""
    from perf import soak

    goals, figures = found.soak["goals"], found.soak["figures"]
    minutes = f"{found.soak['samples'][-1]['minute']:.0f} minutes"
    lines = [
        [soak.MEANINGS[name], figure(figures[name]), f"≤ {goal:g}", "reached" if figures[name] <= goal else "missed"]
        for name, goal in goals.items()
    ]
    failures = "".join(f"- failed: {failure}\n" for failure in found.soak["failures"])
    return _table([minutes, "figure", "goal", ""], lines, [found.soak]) + ("\n" + failures if failures else "")


BLOCKS: dict[str, Callable[[Newest, str], str]] = {
    "machine": _machine,
    "headline": _headline,
    "copies": _copies,
    "steps": _steps,
    "soak": _soak,
    "threads": _threads,
    "missed": _missed,
    "growth": _growth,
    "plots": _plots,
}


def fill(page: str, found: Newest) -> str:
    """Return the page with new tables; those without figures in `found` stay unchanged."""

    def made(place: re.Match[str]) -> str:
        text = block(found, place["name"])
        return f"{place[1]}\n{text}\n{place[3]}" if text else place[0]

    return BLOCK.sub(made, page)
