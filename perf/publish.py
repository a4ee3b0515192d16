"""`python -m perf.publish RESULT.json ...`: updates the tables in docs/performance.md and README.md, and the plots.

Name the result files of perf, perf.soak and perf.steps with the newest last: for each row, the last file that has it
counts. Tables and plots that are in none of them stay unchanged, with the revision at which they were measured. If they
have only some rows of a table, the others are removed: so name files with all measurements, or the descriptions of the
machines and the list of missed goals become incomplete.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perf import plots, tables
from perf.machine import ROOT
from perf.newest import load

DOCS = ROOT / "docs"
PAGES = (DOCS / "performance.md", ROOT / "README.md")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m perf.publish", description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="+", help="JSON files of perf, perf.soak and perf.steps")
    parser.add_argument(
        "--pages", type=Path, nargs="*", default=PAGES, help="pages to update (performance.md, README.md)"
    )
    parser.add_argument(
        "--plots", type=Path, default=DOCS / "plots", metavar="DIR", help="directory for plots (docs/plots)"
    )
    options = parser.parse_args(arguments)
    found = load(options.results)
    for page in options.pages:
        page.write_text(tables.fill(page.read_text(), found))
        print(page)
    for file in plots.draw_all(found, options.plots):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
