"""The choice of the topics that `kafkapy consume` reads: one topic by name, or all topics that a whitelist or blacklist
allows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import typer

from kafkapy.client.original.filters import Blacklist, TopicFilter, Whitelist
from kafkapy.tools.common.errors import CallError, ToolError

WhitelistOption = Annotated[
    str | None,
    typer.Option("--whitelist", metavar="REGEX", help="All topics whose whole name matches, instead of TOPIC."),
]
BlacklistOption = Annotated[
    str | None,
    typer.Option("--blacklist", metavar="REGEX", help="All topics whose name does not match, instead of TOPIC."),
]


def wanted_topics(topic: str | None, whitelist: str | None, blacklist: str | None) -> str | TopicFilter:
    """Return the topic name, or the filter of --whitelist or --blacklist. Raises CallError unless the user gave exactly
    one of the three, and the regular expression is valid."""
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
    """Return the names in `topics` that the filter allows, sorted. Raises ToolError if there are none."""
    found = sorted(topic for topic in topics if wanted.allows(topic))
    if not found:
        raise ToolError(f"no topic is allowed by the {wanted.pattern.replace('_', ' ')} {wanted.regex!r}")
    return found


def pattern_of(wanted: TopicFilter) -> re.Pattern[str]:
    """Return a compiled pattern whose `search` finds exactly the topic names that the filter allows. Raises ValueError
    for an invalid regular expression."""
    whole = rf"(?:{wanted.regex})\Z"
    try:
        return re.compile(rf"\A(?!{whole})" if isinstance(wanted, Blacklist) else rf"\A{whole}", re.ASCII)
    except re.error as error:
        raise ValueError(f"{wanted.regex!r} is no regular expression: {error}") from None
