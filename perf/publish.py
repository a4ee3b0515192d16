"""`python -m perf.publish [RESULT.json ...]`: updates the tables in docs/performance.md and README.md, and the plots.

Name the result files of perf, perf.soak and perf.steps with the newest last: for each row, the last file that has it
counts. Rows that are in none of them stay as they were published before (perf/published.json), with the revision at
which they were measured; so do tables and plots of which no figure is known. Without files everything is written again,
as after a change of the tables' form.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perf import plots, tables
from perf.machine import ROOT
from perf.measurements import ALL
from perf.newest import load

DOCS = ROOT / "docs"
PUBLISHED = ROOT / "perf" / "published.json"
PAGES = (DOCS / "performance.md", ROOT / "README.md")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m perf.publish", description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="*", help="JSON files of perf, perf.soak and perf.steps")
    parser.add_argument(
        "--pages", type=Path, nargs="*", default=PAGES, help="pages to update (performance.md, README.md)"
    )
    parser.add_argument(
        "--plots", type=Path, default=DOCS / "plots", metavar="DIR", help="directory for plots (docs/plots)"
    )
    parser.add_argument(
        "--published",
        type=Path,
        default=PUBLISHED,
        metavar="FILE",
        help="the newest figures of every row, updated too (perf/published.json)",
    )
    options = parser.parse_args(arguments)
    found = load([*([options.published] if options.published.exists() else []), *options.results])
    # in the order of the tables, without rows that have become something else since
    found.rows = {row.key: found.rows[row.key] for each in ALL for row in each.rows if row.key in found.rows}
    for page in options.pages:
        page.write_text(tables.fill(page.read_text(), found))
        print(page)
    for file in plots.draw_all(found, options.plots):
        print(file)
    found.save(options.published)
    return 0


if __name__ == "__main__":
    sys.exit(main())
