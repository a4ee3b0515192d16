"""Options as Spark hands them over: names in any case, values always text. What is wrong is said in one sentence."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

# Spark's JavaUtils.timeStringAs
_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

W = TypeVar("W", bound=str)

LARGEST_LONG = (1 << 63) - 1


class BadOption(ValueError):
    """An option's name or value cannot be used; the text names both and says what can."""


class Options:
    """The options of one source or sink.

    Args:
        given: what the user wrote.
        known: the names there are, in the spelling that messages use; `kafka.*` is left to the caller.
        of: who takes them, for messages.
    Raises:
        BadOption: a name that is not known.
    """

    def __init__(self, given: Mapping[str, str], known: Iterable[str], of: str) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}
        spelling = {name.lower(): name for name in known}
        for name in self._given:
            if name not in spelling and not name.startswith("kafka."):
                near = guess(name, spelling)
                raise BadOption(
                    f"{of} has no option {name!r}{f'; did you mean {spelling[near]!r}?' if near else '.'} "
                    f"It has {', '.join(sorted(spelling.values(), key=str.lower))}, and kafka.*."
                )

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def kafka(self) -> dict[str, str]:
        """The options `kafka.*`, without that prefix."""
        return {name[6:]: value for name, value in self._given.items() if name.startswith("kafka.")}

    def text(self, name: str) -> str | None:
        """Without the spaces around it; None if it is not given."""
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        word = self.text(name)
        return default if word is None else as_boolean(name, word)

    def integer(self, name: str, default: int | None = None, *, least: int = 0) -> int | None:
        word = self.text(name)
        return default if word is None else as_integer(name, word, least=least)

    def word(self, name: str, words: Sequence[W], default: W) -> W:
        """One of some words, in any case; they are given in lower case."""
        word = self.text(name)
        return default if word is None else as_word(name, word, words)

    def names(self, name: str) -> list[str] | None:
        """Words separated by commas."""
        word = self.text(name)
        return None if word is None else [one for one in map(str.strip, word.split(",")) if one]

    def milliseconds(self, name: str, default: int) -> int:
        """A time such as 30s, 15m or 1h; a bare number is milliseconds."""
        word = self.text(name)
        if word is None:
            return default
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", word.lower())
        if not found or (found[2] or "ms") not in _UNITS_MS:
            raise BadOption(f"{name} is {word!r}: write a number and a unit ({', '.join(_UNITS_MS)}), as in 30s or 15m")
        return int(int(found[1]) * _UNITS_MS[found[2] or "ms"])


def as_boolean(name: str, word: str) -> bool:
    if word.lower() not in ("true", "false"):
        raise BadOption(f"{name} is {word!r}: write true or false")
    return word.lower() == "true"


def as_integer(name: str, word: str, *, least: int = 0) -> int:
    """Raises BadOption for what is no number from `least` to the largest long."""
    if not re.fullmatch(r"[+-]?[0-9]+", word) or not least <= int(word) <= LARGEST_LONG:
        raise BadOption(f"{name} is {word!r}: write a whole number, {least} or more")
    return int(word)


def as_timestamp(name: str, word: str) -> int:
    """Milliseconds since 1970."""
    try:
        return as_integer(name, word)
    except BadOption:
        raise BadOption(f"{name} is {word!r}: write milliseconds since 1970, as in 1718000000000") from None


def as_word(name: str, word: str, words: Sequence[W]) -> W:
    for one in words:
        if one == word.lower():
            return one
    raise BadOption(f"{name} is {word!r}: write {', '.join(words[:-1])} or {words[-1]}")


def guess(name: str, among: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    return next(iter(difflib.get_close_matches(name, list(among), n=1, cutoff=0.7)), None)
