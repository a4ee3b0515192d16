"""Topic filters: subscriptions by regular expression.

Source: Kafka 0.8.2's TopicFilter. Znodes contain Java regular expressions, and Python evaluates them here. Python and
Java agree for the characters that topic names can have.
"""

from __future__ import annotations

import re
from typing import ClassVar

# Kafka's internal topics.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class TopicFilter:
    """A regular expression for topic names; `regex` is its text in ZooKeeper. Raises ValueError if it is invalid."""

    pattern: ClassVar[str]  # the filter's kind in a registration of Kafka 0.8 and later
    marker: ClassVar[str]  # the filter's kind in a registration of Kafka 0.7

    def __init__(self, raw: str) -> None:
        # Like Kafka, accept lists with commas, and quotes from property files.
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
        """Return True if the filter selects the topic.

        With `exclude_internal`, Kafka's internal topics are never selected.
        """
        if exclude_internal and topic in INTERNAL_TOPICS:
            return False
        return self._wants(self._matches(topic) is not None)

    def _wants(self, matches: bool) -> bool:
        raise NotImplementedError


class Whitelist(TopicFilter):
    """A filter that selects the topics whose whole name matches the regular expression."""

    pattern = "white_list"
    marker = "*"

    def _wants(self, matches: bool) -> bool:
        return matches


class Blacklist(TopicFilter):
    """A filter that selects the topics whose whole name does not match the regular expression."""

    pattern = "black_list"
    marker = "!"

    def _wants(self, matches: bool) -> bool:
        return not matches
