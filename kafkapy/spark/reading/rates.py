"""Limits on the size of a micro-batch.

Source: rateLimit and delayBatch of Spark's KafkaMicroBatchStream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kafkapy.client.cluster import TopicPartition


def rate_limited(
    limit: int, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offsets where a micro-batch of about `limit` offsets ends, which is at or before `end`.

    Each partition gets a share in proportion to its number of new offsets, and at least one offset. A partition that is
    missing in `begin` keeps its end.
    """
    sizes = {where: at - begin[where] for where, at in end.items() if where in begin and at > begin[where]}
    total = sum(sizes.values())
    limited = dict(end)
    for where, size in sizes.items():
        share = limit * (size / total)
        limited[where] = min(end[where], begin[where] + (math.ceil(share) if share < 1 else math.floor(share)))
    return limited


class Delay:
    """Delays each micro-batch until there are `least` new offsets, or the previous one started `longest_s` seconds ago.

    The first micro-batch is not delayed.
    """

    def __init__(self, least: int, longest_s: float) -> None:
        self._least = least
        self._longest_s = longest_s
        self._last = -math.inf

    def waits(self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], now: float) -> bool:
        """Return True to delay the micro-batch from `begin` to `end`, or False to start that micro-batch now.

        `now` is the current time in monotonic seconds.
        """
        waiting = sum(at - begin.get(where, 0) for where, at in end.items()) < self._least
        if waiting and now - self._last < self._longest_s:
            return True
        self._last = now
        return False
