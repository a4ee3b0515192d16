"""Kafka client properties of a mirror: each is honoured, refused with a reason, or without effect.

An error is one sentence that begins with the name of the properties file.
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
    """A property or its value cannot be used. The message has the file, the property, the value and what is valid."""


class Properties:
    """The properties of one client.

    Args:
        file: The name of the properties file, for messages.
        given: Values by name.
    """

    def __init__(self, file: str, given: Mapping[str, str]) -> None:
        self.file = file
        self._given = {name: value.strip() for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def bad(self, text: str) -> BadProperty:
        """Return a BadProperty that names the file."""
        return BadProperty(f"{self.file}: {text}")

    def check_names(
        self,
        *,
        honoured: Collection[str],
        refused: Mapping[str, str],
        without_effect: Collection[str],
        client: str,
    ) -> None:
        """Raise BadProperty for names that are `refused` (name to reason) or unknown. Warn of those `without_effect`.

        `client` is the client whose properties these are, for messages.
        """
        for name in self._given:
            if name in refused:
                raise self.bad(f"{name} cannot be set for a mirror: {refused[name]}")
            if name in honoured:
                continue
            if name.startswith(("ssl.", "sasl.")) or name in without_effect:
                log.warning("%s: %s has no effect on a mirror", self.file, name)
                continue
            near = difflib.get_close_matches(name, [*honoured, *without_effect], n=1, cutoff=0.7)
            raise self.bad(f"{name} is not a property of {client}{f'; did you mean {near[0]}?' if near else ''}")

    def text(self, name: str, default: str = "") -> str:
        """Return a property's value."""
        return self._given.get(name) or default

    def needed(self, name: str, example: str) -> str:
        """Return a property's value. Raise BadProperty if it is missing."""
        value = self._given.get(name, "")
        if not value:
            raise self.bad(f"{name} is missing; add it, as in {name}={example}")
        return value

    def servers(self, name: str) -> str:
        """Return a property with broker addresses, checked."""
        value = self.needed(name, "127.0.0.1:9092")
        try:
            parse_addresses(value)
        except ValueError as error:
            raise self.bad(f"{name} is {value!r}: {error}") from None
        return value

    def number(self, name: str, default: int, *, least: int = 1, most: int = LONGEST) -> int:
        """Return a property as a number. Raise BadProperty if it is not between `least` and `most`."""
        value = self._given.get(name)
        if not value:
            return default
        digits = value[1:] if value[0] in "+-" else value
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or not least <= int(value) <= most:
            raise self.bad(f"{name} is {value!r}; it must be a whole number from {least} to {most}")
        return int(value)

    def seconds(self, name: str, default_ms: int, *, least: int = 1) -> float:
        """Return a property in milliseconds as seconds."""
        return self.number(name, default_ms, least=least) / 1000

    def word(self, name: str, words: Mapping[str, T], default: str) -> T:
        """Return the value that `words` has for a property. The case does not matter."""
        value = (self._given.get(name) or default).lower()
        if value not in words:
            raise self.bad(f"{name} is {self._given[name]!r}; it can be {', '.join(words)}")
        return words[value]

    def check_security(self) -> None:
        """Raise BadProperty for a security protocol other than PLAINTEXT."""
        protocol = self.text("security.protocol", "PLAINTEXT")
        if protocol.upper() != "PLAINTEXT":
            raise self.bad(
                f"security.protocol is {protocol!r}: kafkapy's client supports PLAINTEXT only; name a PLAINTEXT "
                "listener of the broker"
            )
