"""`python -m perf.compare_copies`: compares fetches with sendfile and with read and send on this machine and this disk.

Runs the measurement `zero_copy` (python -m perf --help), prints the tables of docs/performance.md, and draws its two
plots. scripts/compare-copies first installs what this needs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from perf import __main__ as suite
from perf import plots, tables
from perf.machine import ROOT
from perf.measurement import KAFKAPY
from perf.newest import load

MADE = (
    "Each cell: MB/s · CPU seconds of the sender per GiB and, if the log was not in memory, the share of the bytes "
    "sent that came from disk. The bare loop is not a broker: it only sends parts of one file."
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("scripts/compare-copies", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the data, less exact: under a minute")
    parser.add_argument("--runs", type=int, help="runs of each measurement (2, with --quick 1)")
    parser.add_argument(
        "--data", default="/var/tmp", metavar="DIR", help="a directory on the disk to measure (%(default)s)"
    )
    parser.add_argument(
        "--brokers", default=KAFKAPY, metavar="LIST", help="kafka,kafkapy: also Apache Kafka (needs Java, Maven)"
    )
    parser.add_argument("--congestion", metavar="NAME", help=suite.CONGESTION)
    default = ROOT / "perf" / "results" / time.strftime("copies-%Y-%m-%d-%H%M%S")
    parser.add_argument(
        "--results", type=Path, default=default, metavar="DIR", help="directory for plots and figures (%(default)s)"
    )
    options = parser.parse_args(arguments)
    file = options.results / "copies.json"
    words = ["zero_copy", "--json", str(file), "--data", options.data, "--brokers", options.brokers]
    for name in ("runs", "congestion"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name}", str(value)]
    code = suite.main([*words, "--quick"] if options.quick else words, show=_nothing)
    found = load([file])
    console = Console(highlight=False, width=None if Console().is_terminal else 140)
    console.print()
    console.print(Markdown(tables.block(found, "copies")))
    for text in (MADE, *found.notes):
        console.print(f"- {text}", markup=False, soft_wrap=True)
    for plot in plots.draw_all(found, options.results):
        console.print(f"- plot: {plot}", markup=False, soft_wrap=True)
    return code


def _nothing(*_: object) -> None:
    """Print nothing: `main` prints its own tables, with one line per load, instead of the suite's, one per figure."""


if __name__ == "__main__":
    raise SystemExit(main())
