"""Access to the options that Spark passes: names in any case, values as text. Each error message is one sentence."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

# Spark's JavaUtils.timeStringAs
_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

W = TypeVar("W", bound=str)

LARGEST_LONG = (1 << 63) - 1


class BadOption(ValueError):
    """The error for an option whose name or value is invalid. The message has both, and says what is valid."""


class Options:
    """The options that the user has given to a source or sink. Names may be written in any case.

    Args:
        given: The values by name.
        known: The valid names, spelled as messages should spell them. Names with the prefix `kafka.` are not checked.
        of: The source or sink, for messages.
    Raises:
        BadOption: A name is unknown.
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
        """Return the values of the options `kafka.*` by name, without that prefix."""
        return {name[6:]: value for name, value in self._given.items() if name.startswith("kafka.")}

    def text(self, name: str) -> str | None:
        """Return an option's value without surrounding spaces, or None if the option is not given."""
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        """Return an option's value as a boolean, or `default` if the option is not given.

        Raises BadOption if the value is neither true nor false.
        """
        word = self.text(name)
        return default if word is None else as_boolean(name, word)

    def integer(self, name: str, default: int | None = None, *, least: int = 0) -> int | None:
        """Return an option's value as an integer, or `default` if the option is not given.

        Raises BadOption if the value is no integer, or less than `least`.
        """
        word = self.text(name)
        return default if word is None else as_integer(name, word, least=least)

    def word(self, name: str, words: Sequence[W], default: W) -> W:
        """Return an option's value in lower case, or `default` if the option is not given.

        Raises BadOption if `words`, the valid values in lower case, does not contain the value.
        """
        word = self.text(name)
        return default if word is None else as_word(name, word, words)

    def names(self, name: str) -> list[str] | None:
        """Return the names in a comma-separated option, or None if the option is not given.

        Empty names are left out.
        """
        word = self.text(name)
        return None if word is None else [one for one in map(str.strip, word.split(",")) if one]

    def milliseconds(self, name: str, default: int) -> int:
        """Return an option's value, a time such as 30s, 15m or 1h, in ms, or `default` if the option is not given.

        A number without a unit is in ms. Raises BadOption for an invalid value.
        """
        word = self.text(name)
        if word is None:
            return default
        found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", word.lower())
        if not found or (found[2] or "ms") not in _UNITS_MS:
            raise BadOption(f"{name} is {word!r}: write a number and a unit ({', '.join(_UNITS_MS)}), as in 30s or 15m")
        return int(int(found[1]) * _UNITS_MS[found[2] or "ms"])


def as_boolean(name: str, word: str) -> bool:
    """Return True for "true" and False for "false". Raise BadOption for other words."""
    if word.lower() not in ("true", "false"):
        raise BadOption(f"{name} is {word!r}: write true or false")
    return word.lower() == "true"


def as_integer(name: str, word: str, *, least: int = 0) -> int:
    """Return an option's value as an integer. Raise BadOption if it is no integer between `least` and 2^63 - 1."""
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", word) or not least <= int(word) <= LARGEST_LONG:
        raise BadOption(f"{name} is {word!r}: write a whole number, {least} or more")
    return int(word)


def as_timestamp(name: str, word: str) -> int:
    """Return an option's value as a timestamp in ms since 1970. Raise BadOption if it is no integer of 0 or more."""
    try:
        return as_integer(name, word)
    except BadOption:
        raise BadOption(f"{name} is {word!r}: write milliseconds since 1970, as in 1718000000000") from None


def as_word(name: str, word: str, words: Sequence[W]) -> W:
    """Return an option's value `word` in lower case.

    Raise BadOption if `words`, the valid values, does not contain it.
    """
    for one in words:
        if one == word.lower():
            return one
    raise BadOption(f"{name} is {word!r}: write {', '.join(words[:-1])} or {words[-1]}")


def guess(name: str, among: Iterable[str]) -> str | None:
    """Return the name in `among` that is most similar to `name`, or None if no name is similar."""
    return next(iter(difflib.get_close_matches(name, list(among), n=1, cutoff=0.7)), None)
