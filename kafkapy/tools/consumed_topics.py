"""Which topics `kafkapy consume` is to read: one by its name, or all that a white list or a black list allows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import typer

from kafkapy.client.original.filters import Blacklist, TopicFilter, Whitelist
from kafkapy.tools.errors import CallError, ToolError

WhitelistOption = Annotated[
    str | None, typer.Option("--whitelist", metavar="REGEX", help="All topics whose whole name matches, not TOPIC.")
]
BlacklistOption = Annotated[
    str | None, typer.Option("--blacklist", metavar="REGEX", help="All topics whose name does not match, not TOPIC.")
]


def wanted_topics(topic: str | None, whitelist: str | None, blacklist: str | None) -> str | TopicFilter:
    """The one of them that was given. Raises CallError for none, several, and what is no regular expression."""
    given = [one for one in (topic, whitelist, blacklist) if one is not None]
    if len(given) != 1 or not given[0]:
        raise CallError("say which topics: one of TOPIC, --whitelist REGEX and --blacklist REGEX")
    if topic is not None:
        return topic
    option, kind = ("--whitelist", Whitelist) if whitelist is not None else ("--blacklist", Blacklist)
    try:
        found = kind(given[0])
        pattern_of(found)
    except ValueError as error:
        raise CallError(f"{option}: {error}") from None
    return found


def matching(wanted: TopicFilter, topics: Iterable[str]) -> list[str]:
    """Those of the cluster's topics that are wanted, sorted. Raises ToolError where none is."""
    found = sorted(topic for topic in topics if wanted.allows(topic))
    if not found:
        raise ToolError(f"no topic is allowed by the {wanted.pattern.replace('_', ' ')} {wanted.regex!r}")
    return found


def pattern_of(wanted: TopicFilter) -> re.Pattern[str]:
    """What is found in the names that are wanted, and in no others. Raises ValueError."""
    whole = rf"(?:{wanted.regex})\Z"
    try:
        return re.compile(rf"\A(?!{whole})" if isinstance(wanted, Blacklist) else rf"\A{whole}", re.ASCII)
    except re.error as error:
        raise ValueError(f"{wanted.regex!r} is no regular expression: {error}") from None
