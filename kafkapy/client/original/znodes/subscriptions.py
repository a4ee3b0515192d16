"""A consumer's registration at /consumers/GROUP/ids/CONSUMER: its topics, and the number of streams of each.

Source: Kafka's TopicCount, of 0.8.2 (JSON with a version) and of 0.7.2 (bare JSON, or *2*regex and !2!regex).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkapy.client.original.filters import Blacklist, TopicFilter, Whitelist
from kafkapy.client.original.znodes.layouts import Layout

STATIC = "static"
_FILTERS: dict[str, type[TopicFilter]] = {kind.pattern: kind for kind in (Whitelist, Blacklist)}
# Invalid topic names: they cannot be part of a ZooKeeper path.
_NO_TOPIC = re.compile(r"\.{0,2}|.*[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff].*", re.DOTALL)
_OLD_FILTER = re.compile(r"([*!])(\d+)\1(.*)", re.ASCII)


class Subscription(NamedTuple):
    """The topics of a consumer and its number of streams for each topic.

    It has either `counts`, the number of streams by topic, or a `filter` and `streams`, the number of streams for each
    topic that the filter selects.
    """

    counts: Mapping[str, int]
    filter: TopicFilter | None = None
    streams: int = 0

    def streams_of(self, topics: Iterable[str], *, exclude_internal: bool = True) -> dict[str, int]:
        """Return the consumer's number of streams by topic.

        A filter selects from `topics`; topics in `counts` need not exist. With `exclude_internal`, a filter never
        selects Kafka's internal topics.
        """
        if self.filter is None:
            return dict(self.counts)
        allows = self.filter.allows
        return {topic: self.streams for topic in topics if allows(topic, exclude_internal=exclude_internal)}

    def written(self, layout: Layout, timestamp_ms: int) -> bytes:
        """Return the data to write to the consumer's registration znode in the given layout."""
        if layout is Layout.V07:
            if self.filter is not None:
                marker = self.filter.marker
                return f"{marker}{self.streams}{marker}{self.filter.regex}".encode()
            return ("{ " + ",".join(f"{json.dumps(topic)}: {n}" for topic, n in self.counts.items()) + " }").encode()
        subscription = dict(self.counts) if self.filter is None else {self.filter.regex: self.streams}
        pattern = STATIC if self.filter is None else self.filter.pattern
        shape = {"version": 1, "subscription": subscription, "pattern": pattern, "timestamp": str(timestamp_ms)}
        return json.dumps(shape, separators=(",", ":"), ensure_ascii=False).encode()


def read_subscription(data: bytes) -> Subscription:
    """Return the subscription in the data of a registration znode of either layout.

    Raises ValueError, whose message has the data and the reason, if the data is malformed.
    """
    text = data.decode("utf-8", "replace")
    if old := _OLD_FILTER.fullmatch(text):
        kind = Whitelist if old[1] == Whitelist.marker else Blacklist
        return Subscription({}, kind(old[3]), _count(int(old[2]), text))
    try:
        shape = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{_short(text)} is not the subscription of a consumer: it is not JSON") from None
    if not isinstance(shape, dict):
        raise ValueError(f"{_short(text)} is not the subscription of a consumer")
    if "subscription" not in shape and "pattern" not in shape:
        return Subscription(_of_topics(_counts(shape, text), text))
    pattern = shape.get("pattern")
    counts = _counts(shape.get("subscription"), text)
    # Like Kafka: with any other pattern, or without topics, the subscription is a list of topic names.
    if not isinstance(pattern, str):
        raise ValueError(f"{_short(text)} is not the subscription of a consumer: it has no pattern")
    if pattern not in _FILTERS or not counts:
        return Subscription(_of_topics(counts, text))
    ((regex, streams), *_) = counts.items()
    return Subscription({}, _FILTERS[pattern](regex), streams)


def _counts(found: object, text: str) -> dict[str, int]:
    """Return `found` as the number of streams by topic or regex. Raise ValueError if it is not a dict of valid numbers.

    `text` is the whole registration, for the error message.
    """
    if not isinstance(found, dict):
        raise ValueError(f"{_short(text)} is not the subscription of a consumer: it names no topics")
    return {topic: _count(count, text) for topic, count in found.items()}


def _of_topics(counts: dict[str, int], text: str) -> dict[str, int]:
    """Return `counts`. Raise ValueError if one of its keys is not a valid topic name."""
    for topic in counts:
        if _NO_TOPIC.fullmatch(topic):
            raise ValueError(f"{_short(text)} is not the subscription of a consumer: {topic!r} is not a topic name")
    return counts


def _count(count: object, text: str) -> int:
    """Return `count`. Raise ValueError if it is not a valid number of streams: an int from 1 to 2^31 - 1."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count < 1 << 31:
        raise ValueError(f"{_short(text)} is not the subscription of a consumer: {count!r} is not a number of streams")
    return count


def _short(text: str) -> str:
    """Return the repr of the text for an error message, shortened to 200 characters."""
    return repr(text if len(text) <= 200 else text[:200] + "...")
