"""How results are shown: tables for people, JSON for programs, progress on a terminal."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table with a frame on a terminal; elsewhere plain columns that are never folded, so that `grep` works.

    Columns whose name ends in `>` are numbers, aligned to the right.
    """
    names = [name.rstrip(">") for name in columns]
    to_right = [name.endswith(">") for name in columns]
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_framed(names, to_right, cells, title)
    else:
        _print_plain(names, to_right, cells, title)


# What would move the cursor about is left out, as on a terminal.
_IN_ONE_LINE = {ord("\n"): " ", **dict.fromkeys(map(ord, "\a\b\v\f\r"))}


def _print_plain(names: list[str], to_right: list[bool], cells: list[list[str]], title: str | None) -> None:
    from rich.cells import cell_len

    lines = [names, *([cell.translate(_IN_ONE_LINE) for cell in row] for row in cells)]
    widths = [[cell_len(cell) for cell in line] for line in lines]
    full = [max(column) for column in zip(*widths, strict=True)]
    if title is not None:
        sys.stdout.write(title + "\n")
    for line, width in zip(lines, widths, strict=True):
        padded = (
            " " * (room - has) + cell if right else cell + " " * (room - has)
            for cell, has, room, right in zip(line, width, full, to_right, strict=True)
        )
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def _print_framed(names: list[str], to_right: list[bool], cells: list[list[str]], title: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name, right in zip(names, to_right, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console = Console(markup=False, emoji=False)
    with console.capture() as captured:
        console.print(table, highlight=False)
    sys.stdout.write(captured.get())


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
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    done_of_all = DownloadColumn() if unit == "bytes" else TextColumn(f"{{task.completed}}/{{task.total}} {unit}")
    columns = (TextColumn("{task.description}"), BarColumn(), done_of_all, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
