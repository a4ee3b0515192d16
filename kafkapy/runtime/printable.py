"""Makes text from clients safe for terminals and log lines.

Names and messages may contain text that a client has sent. Shown unchanged, control characters in it could forge a line
or control the terminal (ESC, and U+009B, which some terminals take for ESC and a bracket).
"""

from __future__ import annotations

import json


def one_word(text: str) -> str:
    """Return `text`, in quotes if it has spaces or quotes, so that it cannot be taken for more of the line that it is
    part of."""
    return text if " " not in text and '"' not in text else json.dumps(text, ensure_ascii=False)


def printable(text: str) -> str:
    """Return `text` with unprintable characters (control characters, bidirectional marks and the like) as Python
    escapes such as `\\x1b`. If there are such characters, backslashes are doubled too."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(letter: str) -> str:
    if letter.isprintable() and letter != "\\":
        return letter
    return letter.encode("unicode_escape").decode("ascii")
