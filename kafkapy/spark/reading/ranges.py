"""What each task reads: one range of offsets a partition, or more of them where the options ask for more tasks.

Source: KafkaOffsetRangeCalculator of Spark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class KafkaRange(InputPartition):
    """start <= offset < end of one partition.

    Attributes:
        topic_id: of the topic that was planned for, hex; "" if it is not known.
        from_earliest: the query asked for the beginning, wherever that is when the task runs.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    from_earliest: bool = False

    @property
    def size(self) -> int:
        """Offsets, not records: compaction and transactions leave gaps."""
        return self.end - self.start


def divided(
    ranges: Sequence[KafkaRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[KafkaRange]:
    """Ranges without the empty ones; each split until none has more records than allowed, then the large ones in
    proportion to their size until there are about `min_partitions`."""
    parts = [one for one in ranges if one.size > 0]
    if max_records_per_partition is not None:
        parts = [piece for one in parts for piece in _split(one, math.ceil(one.size / max_records_per_partition))]
    if min_partitions is None or min_partitions <= len(parts):
        return parts
    # What stays whole is taken out of the sum, so that the others share all the tasks that are left.
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
    return max(math.floor(size / total * tasks + 0.5), 1)


def _split(one: KafkaRange, count: int) -> list[KafkaRange]:
    pieces: list[KafkaRange] = []
    start, left = one.start, one.size
    for number in range(count):
        size = left // (count - number)
        left -= size
        if size:
            pieces.append(replace(one, start=start, end=start + size, from_earliest=one.from_earliest and not pieces))
        start += size
    return pieces
