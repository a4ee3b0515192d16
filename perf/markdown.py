"""Markdown tables for the documents."""

from __future__ import annotations

from collections.abc import Sequence


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose other columns are figures."""
    rule = ["---", *["--:"] * (len(heads) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, rule, *lines))
