"""Runs the clients of a benchmark, shows the progress, and prints the result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from kafkapy.tools.bench import workers
from kafkapy.tools.bench.board import Board
from kafkapy.tools.bench.figures import (
    MB,
    History,
    Measure,
    Result,
    Sample,
    is_complete,
    limit_sentence,
    result_of,
)
from kafkapy.tools.bench.jobs import Job
from kafkapy.tools.common.output import counted, print_json, print_table
from kafkapy.tools.common.output_file import ResultFile
from kafkapy.tools.common.pictures import picture_file, save

INTERRUPTED = 130


@dataclass(frozen=True)
class Output:
    """The options for the output of a benchmark."""

    as_json: bool = False
    plot: Path | None = None
    force: bool = False
    metrics: bool = False
    interval_s: float = 5.0

    def picture(self) -> ResultFile | None:
        """Return the file for --plot, or None without --plot. Raises CallError if the file cannot be written."""
        return None if self.plot is None else picture_file(self.plot, force=self.force)


def measure(jobs: Sequence[Job], seconds: float | None, what: Measure, output: Output) -> Result:
    """Run the jobs for `seconds` (None: to their end), and print the result. After Ctrl-C, print the result so far and
    exit with code 130; if a client fails, print the result so far and raise its ToolError."""
    picture = output.picture()
    live = Live(output.interval_s, what.unit)
    history = History(live.show)
    board, interrupted, error = workers.run(jobs, seconds, history)
    live.hide()
    if error is not None and not is_complete(board):
        raise error
    result = result_of(board, history, interrupted)
    if output.as_json:
        failed = {} if error is None else {"error": str(error)}
        print_json({"command": what.command} | what.settings | result.document() | failed)
    else:
        _print(result, what, output)
    if picture is not None:
        from kafkapy.tools.bench.plot import draw

        save(picture, partial(draw, result, what))
    if error is not None:
        raise error
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    return result


class Live:
    """Shows figures while the benchmark runs, on standard error: a line that changes each second on a terminal, else a
    line every `interval_s` seconds."""

    def __init__(self, interval_s: float, unit: str) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._interval_s = interval_s
        self._unit = unit
        self._since: list[Sample] = []
        self._shown = False

    def show(self, sample: Sample, board: Board) -> None:
        self._since.append(sample)
        seconds = sum(each.seconds for each in self._since)
        if not self._on_terminal and seconds < self._interval_s - 0.1:
            return
        records = sum(each.records for each in self._since)
        size = sum(each.bytes for each in self._since)
        text = f"{sample.end:6.0f} s  {records / seconds:12,.0f} {self._unit}s/s"
        if size:
            text += f"  {size / MB / seconds:9,.1f} MB/s"
        if any(each.longest for each in self._since):
            p50, p99 = (max(getattr(each, name) for each in self._since) * 1e3 for name in ("p50", "p99"))
            text += f"  p50 {p50:.2f} ms  p99 {p99:.2f} ms"
        self._since.clear()
        sys.stderr.write(f"\r\x1b[2K{text}" if self._on_terminal else f"{text}\n")
        sys.stderr.flush()
        self._shown = True

    def hide(self) -> None:
        if self._shown and self._on_terminal:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def _print(result: Result, what: Measure, output: Output) -> None:
    seconds = result.seconds
    rates = [f"{result.records_a_second:,.0f} {what.unit}s/s", f"{result.requests / seconds:,.0f} requests/s"]
    if result.bytes:
        rates.insert(1, f"{result.bytes / MB / seconds:,.1f} MB/s")
    rows: list[Sequence[object]] = [(what.unit + "s", f"{result.records:,}")]
    if result.bytes:
        rows.append(("bytes", f"{result.bytes:,}"))
    rows += [
        ("time", f"{seconds:.2f} s"),
        *(("rate", rate) for rate in rates),
        ("client", f"{counted(len(result.clients), 'process')}, the busiest used {result.busiest:.0%} of a CPU"),
        ("this machine", f"its CPUs were busy {result.machine:.0%} of the time"),
    ]
    print_table(("figure", "value"), rows, title=what.title)
    if sum(result.latency.counts):
        columns = [(what.first, result.latency)]
        if result.acknowledged is not None:
            columns.append((what.second, result.acknowledged))
        each = [latency.document() for _, latency in columns]
        print()
        print_table(
            ("latency, ms", *(f"{name}>" for name, _ in columns)),
            [(name, *(f"{document[name]:,.3f}" for document in each)) for name in each[0]],
        )
    if output.metrics:
        print()
        print_table(
            ("client>", "requests>", "requests/s>", "CPU>"),
            [
                (number, f"{requests:,}", f"{requests / seconds:,.0f}", f"{share:.0%}")
                for number, (share, requests) in enumerate(result.clients)
            ],
        )
    sentences = [limit_sentence(result, what.asked)]
    if result.timed_out:
        sentences.append("The benchmark ended early: no new records came before the --timeout.")
    if result.interrupted:
        sentences.append("Interrupted: these are the figures so far.")
    if any(sentences):
        print()
    for sentence in filter(None, sentences):
        print(sentence)
