"""How results are shown: tables for people, JSON for programs, progress on a terminal."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table with a frame on a terminal; elsewhere plain columns that are never folded, so that `grep` works.

    Columns whose name ends in `>` are numbers, aligned to the right.
    """
    on_terminal = sys.stdout.isatty()
    console = Console() if on_terminal else Console(width=1 << 16)
    table = Table(title=title, box=SIMPLE_HEAD if on_terminal else None, title_justify="left", pad_edge=False)
    for column in columns:
        name = column.rstrip(">")
        table.add_column(name, justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    with console.capture() as captured:
        console.print(table, markup=False, highlight=False)
    text = captured.get()
    if not on_terminal:
        text = "".join(line.rstrip() + "\n" for line in text.splitlines())
    sys.stdout.write(text)


@contextmanager
def progress(
    what: str, total: int | None, *, unit: str = "bytes", beside_lines: bool = True
) -> Iterator[Callable[[int], None]]:
    """A bar of what is done, on standard error; gives the function to call with the number done so far.

    Shown only where a person watches; `beside_lines` says that lines of a result come meanwhile, so that it must not
    be shown when they go to a terminal too.
    """
    if not sys.stderr.isatty() or (beside_lines and sys.stdout.isatty()) or not total:
        yield lambda done: None
        return
    done_of_all = DownloadColumn() if unit == "bytes" else TextColumn(f"{{task.completed}}/{{task.total}} {unit}")
    columns = (TextColumn("{task.description}"), BarColumn(), done_of_all, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
