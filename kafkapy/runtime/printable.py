"""Other people's text for terminals and log lines.

Names and messages may contain what a client has sent. Shown as they are, control characters could forge a line or
control the terminal (ESC, and U+009B, which some terminals take for ESC and a bracket).
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with unprintable characters (control characters, bidirectional marks and the like) as Python
    escapes such as `\\x1b`. Backslashes are doubled if there are any."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(letter: str) -> str:
    if letter.isprintable() and letter != "\\":
        return letter
    return letter.encode("unicode_escape").decode("ascii")
