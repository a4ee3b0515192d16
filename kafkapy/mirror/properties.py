"""Properties of Kafka's clients as a mirror reads them: each is honoured, refused with a reason, or has no effect.

What is wrong is said in one sentence, which begins with the name of the file that it is about.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Mapping
from typing import TypeVar

from kafkapy.client.cluster import parse_addresses

log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST = (1 << 31) - 1


class BadProperty(ValueError):
    """A property, or its value, cannot be used; the text names the file, both, and what can."""


class Properties:
    """What is given for one client.

    Args:
        file: how messages call what they come from.
        given: texts by name.
    """

    def __init__(self, file: str, given: Mapping[str, str]) -> None:
        self.file = file
        self._given = {name: value.strip() for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def bad(self, text: str) -> BadProperty:
        return BadProperty(f"{self.file}: {text}")

    def check_names(
        self,
        *,
        honoured: Collection[str],
        refused: Mapping[str, str],
        without_effect: Collection[str],
        client: str,
    ) -> None:
        """Raises BadProperty for a name that is `refused` (name to reason) or unknown, warns of what is
        `without_effect`. `client`: whose properties they are, for messages."""
        for name in self._given:
            if name in refused:
                raise self.bad(f"{name} cannot be set for a mirror: {refused[name]}")
            if name in honoured:
                continue
            if name.startswith(("ssl.", "sasl.")) or name in without_effect:
                log.warning("%s: %s has no effect on a mirror", self.file, name)
                continue
            near = difflib.get_close_matches(name, [*honoured, *without_effect], n=1, cutoff=0.7)
            raise self.bad(f"{name} is no property of {client}{f'; did you mean {near[0]}?' if near else ''}")

    def text(self, name: str, default: str = "") -> str:
        return self._given.get(name) or default

    def needed(self, name: str, example: str) -> str:
        value = self._given.get(name, "")
        if not value:
            raise self.bad(f"{name} is missing; add it, as in {name}={example}")
        return value

    def servers(self, name: str) -> str:
        """Addresses of brokers."""
        value = self.needed(name, "127.0.0.1:9092")
        try:
            parse_addresses(value)
        except ValueError as error:
            raise self.bad(f"{name} is {value!r}: {error}") from None
        return value

    def number(self, name: str, default: int, *, least: int = 1, most: int = LONGEST) -> int:
        value = self._given.get(name)
        if not value:
            return default
        digits = value[1:] if value[0] in "+-" else value
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or not least <= int(value) <= most:
            raise self.bad(f"{name} is {value!r}; it is a whole number from {least} to {most}")
        return int(value)

    def seconds(self, name: str, default_ms: int, *, least: int = 1) -> float:
        """Of a time in milliseconds."""
        return self.number(name, default_ms, least=least) / 1000

    def word(self, name: str, words: Mapping[str, T], default: str) -> T:
        """What one of some words, in any case, stands for."""
        value = (self._given.get(name) or default).lower()
        if value not in words:
            raise self.bad(f"{name} is {self._given[name]!r}; it can be {', '.join(words)}")
        return words[value]

    def check_security(self) -> None:
        """Raises BadProperty for all but PLAINTEXT."""
        protocol = self.text("security.protocol", "PLAINTEXT")
        if protocol.upper() != "PLAINTEXT":
            raise self.bad(
                f"security.protocol is {protocol!r}: kafkapy's client speaks PLAINTEXT only; name a listener of the "
                "broker that does"
            )
