"""Translates regular expressions of Java to those of Python's `re`, for the mapping rules of Kafka.

Syntax that `re` reads differently is rewritten, or refused where that is impossible: a rule must never give another
name than in Kafka. All patterns are compiled with re.ASCII, since \\w, \\d and \\s of Java mean ASCII.
"""

import re
import sys
from collections.abc import Iterator

_TERMINATORS = "\\n\\r\\x85\\u2028\\u2029"
_ANY = f"[^{_TERMINATORS}]"
# The end, or before a line terminator at the end; \r\n is one terminator.
_END = r"(?:\Z|(?=(?:\r\n|[\r\x85\u2028\u2029])\Z)|(?<!\r)(?=\n\Z))"
_KEPT_ESCAPES = "dDwWsStnrfa"
_ESCAPES = {"A": r"\A", "b": r"\b", "B": r"\B", "Z": _END, "z": r"\Z", "e": r"\x1b"}
_GROUPS = re.compile(r"\(\?(?::|=|!|<=|<!|>|<([A-Za-z][A-Za-z0-9]*)>)")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})([?+]?)")
_CODE = re.compile(r"\\x[0-9A-Fa-f]{2}|\\u(?![Dd][89A-Fa-f])[0-9A-Fa-f]{4}")  # no surrogates: they come in pairs
_POSSESSIVE = sys.version_info >= (3, 11)  # possessive quantifiers and atomic groups


class PatternError(ValueError):
    """Raised for a pattern that is invalid, or that Python's `re` cannot express."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the Python pattern that matches the same texts as a Java pattern. Raises PatternError."""
    try:
        return re.compile("".join(_translated(pattern)), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"{pattern!r} is invalid: {error}") from None


def _translated(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            piece, at = _escape(pattern, at)
        elif character == "[":
            piece, at = _character_class(pattern, at)
        elif character == "(":
            piece, at = _group(pattern, at)
        elif character in "*+?{":
            piece, at = _quantifier(pattern, at)
        else:
            piece, at = {".": _ANY, "$": _END, "]": r"\]", "}": r"\}"}.get(character, character), at + 1
        yield piece


def _escape(pattern: str, at: int) -> tuple[str, int]:
    """Return the escape at `at` outside of a character class, for Python, and the position after it."""
    following = pattern[at + 1 : at + 2]
    if following in _ESCAPES and following:
        return _ESCAPES[following], at + 2
    if following in "123456789" and following:
        if pattern[at + 2 : at + 3].isdigit():
            raise PatternError(f"{pattern!r}: put the digit after \\{following} in brackets, as in \\1[0]")
        return f"\\{following}", at + 2
    return _simple_escape(pattern, at)


def _simple_escape(pattern: str, at: int) -> tuple[str, int]:
    """Return an escape that means the same inside and outside of a character class."""
    following = pattern[at + 1 : at + 2]
    if code := _CODE.match(pattern, at):
        return code[0], code.end()
    if following and (following in _KEPT_ESCAPES or not (following.isascii() and following.isalnum())):
        return f"\\{following}" if following.isascii() else re.escape(following), at + 2
    raise PatternError(f"{pattern!r}: \\{following} is not supported")


def _group(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at + 1 : at + 2] != "?":
        return "(", at + 1
    found = _GROUPS.match(pattern, at)
    if found is None:
        raise PatternError(
            f"{pattern!r}: {pattern[at : at + 4]!r} is not supported (for lower case, end the rule in /L)"
        )
    if found[0] == "(?>" and not _POSSESSIVE:
        raise PatternError(f"{pattern!r}: (?> needs Python 3.11")
    return (f"(?P<{found[1]}>" if found[1] else found[0]), found.end()


def _quantifier(pattern: str, at: int) -> tuple[str, int]:
    found = _QUANTIFIER.match(pattern, at)
    if found is None:
        raise PatternError(f"{pattern!r}: {{ must be written \\{{, or be a repetition such as {{2,3}}")
    if found[1] == "+" and not _POSSESSIVE:
        raise PatternError(f"{pattern!r}: the possessive quantifier {found[0]} needs Python 3.11")
    return found[0], found.end()


def _character_class(pattern: str, at: int) -> tuple[str, int]:
    end = at + 1
    pieces = ["["]
    if pattern[end : end + 1] == "^":
        pieces.append("^")
        end += 1
    first = end
    while end < len(pattern):
        character = pattern[end]
        if character == "]" and end > first:
            return "".join((*pieces, "]")), end + 1
        if character in "[]" or pattern.startswith(("&&", "--"), end):
            raise PatternError(f"{pattern!r}: write {character} in a character class as \\{character}")
        if character == "\\":
            piece, end = _simple_escape(pattern, end)
        else:
            piece, end = f"\\{character}" if character in "~|&^" else character, end + 1
        pieces.append(piece)
    raise PatternError(f"{pattern!r}: a character class has no end")
