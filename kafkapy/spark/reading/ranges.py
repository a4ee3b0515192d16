"""The offset ranges of tasks: one range for each partition, or more if the options ask for more tasks.

Source: KafkaOffsetRangeCalculator of Spark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class KafkaRange(InputPartition):
    """The offsets start <= offset < end of one partition.

    Attributes:
        topic_id: The topic's id during planning, in hex; "" if not known.
        from_earliest: Whether the query starts at the earliest offset. If records at `start` are deleted before the
            task runs, the task starts at the new earliest offset, and reports no data loss.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    from_earliest: bool = False

    @property
    def size(self) -> int:
        """Return the number of offsets in the range.

        There may be fewer records, as compaction and transactions leave gaps.
        """
        return self.end - self.start


def divided(
    ranges: Sequence[KafkaRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[KafkaRange]:
    """Return the ranges for tasks: the given ranges without the empty ones, divided as the options say.

    First, ranges are split until none has more than `max_records_per_partition` offsets. Then large ranges are split
    in proportion to their size until there are about `min_partitions` ranges.
    """
    parts = [one for one in ranges if one.size > 0]
    if max_records_per_partition is not None:
        parts = [piece for one in parts for piece in _split(one, math.ceil(one.size / max_records_per_partition))]
    if min_partitions is None or min_partitions <= len(parts):
        return parts
    # Leave out the ranges that are not split, so that the others share the remaining tasks.
    total = sum(one.size for one in parts)
    whole = {(one.topic, one.partition) for one in parts if _share(one.size, total, min_partitions) == 1}
    unsplit = [one for one in parts if _share(one.size, total, min_partitions) == 1]
    split_total = total - sum(one.size for one in unsplit)
    tasks = max(min_partitions - len(unsplit), 1)
    return [
        piece
        for one in parts
        for piece in _split(one, 1 if (one.topic, one.partition) in whole else _share(one.size, split_total, tasks))
    ]


def _share(size: int, total: int, tasks: int) -> int:
    """Return the number of tasks for a range of `size` offsets: its share of `tasks` tasks for `total` offsets."""
    return max(math.floor(size / total * tasks + 0.5), 1)


def _split(one: KafkaRange, count: int) -> list[KafkaRange]:
    """Return a range divided into at most `count` ranges of about equal size."""
    pieces: list[KafkaRange] = []
    start, left = one.start, one.size
    for number in range(count):
        size = left // (count - number)
        left -= size
        if size:
            pieces.append(replace(one, start=start, end=start + size, from_earliest=one.from_earliest and not pieces))
        start += size
    return pieces
