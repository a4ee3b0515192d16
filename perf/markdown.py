"""Tables as the documents have them."""

from __future__ import annotations

from collections.abc import Sequence


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The first column is words, the others are figures."""
    rule = ["---", *["--:"] * (len(heads) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, rule, *lines))
