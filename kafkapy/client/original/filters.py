"""Which topics a consumer takes whose subscription is a regular expression.

Source: Kafka 0.8.2's TopicFilter. The expressions are Java's in the znodes and Python's here; they agree in what topic
names can have.
"""

from __future__ import annotations

import re
from typing import ClassVar

# Topics that Kafka keeps for itself.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class TopicFilter:
    """`regex` is what goes into the znode. Raises ValueError for what is no regular expression."""

    pattern: ClassVar[str]  # the word for it in a registration of Kafka 0.8 and later
    marker: ClassVar[str]  # the same in one of Kafka 0.7

    def __init__(self, raw: str) -> None:
        # Lists with commas are taken too, and property files may bring quotes.
        self.regex = raw.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            self._matches = re.compile(self.regex, re.ASCII).fullmatch
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{raw!r} is no regular expression: {error}") from None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, TopicFilter) and other.regex == self.regex

    def __hash__(self) -> int:
        return hash((self.pattern, self.regex))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"

    def allows(self, topic: str, *, exclude_internal: bool = True) -> bool:
        if exclude_internal and topic in INTERNAL_TOPICS:
            return False
        return self._wants(self._matches(topic) is not None)

    def _wants(self, matches: bool) -> bool:
        raise NotImplementedError


class Whitelist(TopicFilter):
    """The topics whose whole name matches."""

    pattern = "white_list"
    marker = "*"

    def _wants(self, matches: bool) -> bool:
        return matches


class Blacklist(TopicFilter):
    """All topics but those whose whole name matches."""

    pattern = "black_list"
    marker = "!"

    def _wants(self, matches: bool) -> bool:
        return not matches
