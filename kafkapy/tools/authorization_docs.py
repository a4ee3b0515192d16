"""Writes the table of what each API checks into docs/security.md:
`python -m kafkapy.tools.authorization_docs docs/security.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kafkapy.security.acls.bindings import display_name
from kafkapy.server import handlers
from kafkapy.server.api_table import TABLE
from kafkapy.server.checks import Checks, NoCheck, Right

__all__ = ["handlers", "table", "updated"]

_BEGIN = "<!-- written by `python -m kafkapy.tools.authorization_docs docs/security.md` -->\n"
_END = "<!-- end -->\n"
_RESOURCES = {
    "TOPIC": "topic",
    "GROUP": "group",
    "CLUSTER": "cluster",
    "TRANSACTIONAL_ID": "transactional id",
    "USER": "user",
}


def table() -> str:
    """Return the table in Markdown: a row for each check of each API that the broker serves."""
    lines = ["| API | right | what a client without it gets |", "|---|---|---|"]
    for key in sorted(TABLE.versions()):
        served = TABLE.find(key)
        assert served is not None
        name = f"{served.api.name} ({key})"
        for right, denial in _rows(served.checks):
            lines.append(f"| {name} | {right} | {denial} |")
            name = ""
    return "\n".join(lines) + "\n"


def _rows(checks: Checks) -> Iterator[tuple[str, str]]:
    if isinstance(checks, NoCheck):
        yield "none", checks.reason
        return
    for check in checks:
        right = _text(check.right)
        if check.unless is not None:
            right += f", or {_text(check.unless)}"
        if check.only:
            right += f" ({check.only})"
        yield right, check.denial


def _text(right: Right) -> str:
    return f"{display_name(right.operation)} on the {_RESOURCES[right.resource_type]}"


def updated(page: str) -> str:
    """Return the text of docs/security.md with the present table."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {_BEGIN!r} and {_END!r}")
    return before + begin + table() + end + after


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text()))
