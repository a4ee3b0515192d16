"""How much one micro-batch takes.

Source: rateLimit and delayBatch of Spark's KafkaMicroBatchStream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kafkapy.client.cluster import TopicPartition


def rate_limited(
    limit: int, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """An earlier end, so that there are about `limit` offsets: each partition has its share in proportion to what it
    has, at least one. A partition without a beginning keeps its end."""
    sizes = {where: at - begin[where] for where, at in end.items() if where in begin and at > begin[where]}
    total = sum(sizes.values())
    limited = dict(end)
    for where, size in sizes.items():
        share = limit * (size / total)
        limited[where] = min(end[where], begin[where] + (math.ceil(share) if share < 1 else math.floor(share)))
    return limited


class Delay:
    """Whether a micro-batch waits for more records: until there are `least` offsets, or `longest_s` have passed since
    the one before. The first one does not wait."""

    def __init__(self, least: int, longest_s: float) -> None:
        self._least = least
        self._longest_s = longest_s
        self._last = -math.inf

    def waits(self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], now: float) -> bool:
        """At the time `now` (seconds of a clock that never goes back); False begins a micro-batch."""
        waiting = sum(at - begin.get(where, 0) for where, at in end.items()) < self._least
        if waiting and now - self._last < self._longest_s:
            return True
        self._last = now
        return False
