"""Reads Java .properties text, the format of Apache Kafka's server.properties, like java.util.Properties.

One difference: Java reads a file as Latin-1; here it is read as UTF-8 if it is valid UTF-8, so that a path with an
umlaut is read as it looks in an editor. The escape \\uXXXX works either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """Raised for a .properties text that cannot be parsed; the message names the line."""


def load_properties(path: Path) -> dict[str, str]:
    """Return the settings in the .properties file at `path`, by name. Raise OSError if the file cannot be read,
    PropertiesError if it cannot be parsed."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return parse_properties(text)
    except PropertiesError as error:
        raise PropertiesError(f"{path}: {error}") from None


def parse_properties(text: str) -> dict[str, str]:
    """Return the settings in a .properties text, by name. If a name occurs twice, the last value is returned. Raise
    PropertiesError for a malformed escape."""
    settings = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        settings[_unescape(key, number)] = _unescape(value, number)
    return settings


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of each logical line, without comments and blank lines. Continuation lines are joined,
    and leading blanks are removed."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    number = 0
    while number < len(lines):
        first = number + 1
        line = lines[number].lstrip(_BLANKS)
        number += 1
        if not line or line[0] in "#!":
            continue
        while _ends_in_backslash(line):
            following = lines[number].lstrip(_BLANKS) if number < len(lines) else ""
            line = line[:-1] + following
            number += 1
        yield first, line


def _ends_in_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Return the key and the value of a logical line, both still escaped. The key ends at the first =, : or blank that
    is not escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" and line[end] not in _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char == "u":
                digits = text[position : position + 4]
                if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                    raise PropertiesError(f"line {number}: \\u{digits} must have four hexadecimal digits")
                char = chr(int(digits, 16))
                position += 4
            else:
                char = _ESCAPES.get(char, char)
        elif char == "\\":
            break
        parts.append(char)
    # Java characters are UTF-16 code units, so two escapes may form a surrogate pair: one character.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
