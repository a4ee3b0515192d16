"""Prints results: tables for people, JSON for programs, progress bars on a terminal."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafkapy.runtime.printable import printable

QUIET_S = 0.5  # after this long without a printed line the bar is shown again


def utf_8(text: str) -> bytes:
    """Return a line of output encoded as UTF-8. Lone surrogates, as of a file name that is not UTF-8 or of an escape in
    JSON, become escapes, which JSON reads back as the same string."""
    return text.encode("utf-8", "backslashreplace")


def counted(number: int, what: str) -> str:
    """Return a number with its noun, such as `1 batch` or `2,000 batches`. `what` is the singular; the plural has s, or
    es after ch and s."""
    plural = f"{what}es" if what.endswith(("ch", "s")) else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def print_json(value: Any) -> None:
    """Print `value` as one JSON document on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table: framed on a terminal, elsewhere as plain columns that are never folded, so that `grep` works.

    Columns whose name ends in `>` are numbers, aligned to the right. Cells may contain text from clients: unprintable
    characters in them are escaped.
    """
    names = [name.rstrip(">") for name in columns]
    to_right = [name.endswith(">") for name in columns]
    cells = [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    title = None if title is None else printable(title)
    if sys.stdout.isatty():
        _print_framed(names, to_right, cells, title)
    else:
        _print_plain(names, to_right, cells, title)


def _print_plain(names: list[str], to_right: list[bool], cells: list[list[str]], title: str | None) -> None:
    from rich.cells import cell_len

    lines = [names, *cells]
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


class Progress:
    """A callable that shows progress; call it with the amount of work done so far. This class shows nothing; its
    subclass `_Bar` shows a bar."""

    def __call__(self, done: int) -> None:
        """Show that `done` of the total is done. `done` counts from the start, not from the last call."""

    def hide(self) -> None:
        """Hide the progress bar before a line of output is printed. The bar comes back when no line was printed for
        QUIET_S seconds."""


class _Bar(Progress):
    def __init__(self, bar: Any, what: str, total: int) -> None:
        self._bar = bar
        self._task = bar.add_task(what, total=total)
        self._hidden: float | None = None  # when it was hidden (time.monotonic)

    def __call__(self, done: int) -> None:
        if self._hidden is not None and time.monotonic() - self._hidden > QUIET_S:
            self._hidden = None
            self._bar.start()
        self._bar.update(self._task, completed=done)

    def hide(self) -> None:
        if self._hidden is None:
            self._bar.stop()
        self._hidden = time.monotonic()


@contextmanager
def progress(what: str, total: int | None, *, unit: str = "bytes", prints_lines: bool = True) -> Iterator[Progress]:
    """Context manager that shows a progress bar on standard error, and yields the function to call with the amount done
    so far.

    The bar is shown only if standard error is a terminal. With `prints_lines`, for a command that prints lines all the
    time, no bar is shown if standard output is a terminal too. A command that prints a line only now and then calls
    `hide` before each line.
    """
    if not sys.stderr.isatty() or (prints_lines and sys.stdout.isatty()) or not total:
        yield Progress()
        return
    from rich import progress as bars
    from rich.console import Console

    count = bars.TextColumn(f"{{task.completed}}/{{task.total}} {unit}") if unit != "bytes" else bars.DownloadColumn()
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), count, bars.TimeRemainingColumn())
    console = Console(stderr=True)
    with bars.Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as shown:
        yield _Bar(shown, what, total)
