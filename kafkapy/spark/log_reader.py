"""Batch queries on segment files.

The splits (ranges of bytes and offsets in segment files) are fixed at `load()`. They are divided or grouped into tasks
of about equal size.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkapy.arrow.segments import read_split
from kafkapy.log.offline.bounds import Planner
from kafkapy.log.offline.splits import Split, divided
from kafkapy.spark.entry_points import entry_point
from kafkapy.spark.options.log_options import LEAST_BYTES, MAX_BYTES, TASKS, LogOptions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kafkapy.spark")


class Task(InputPartition):
    """A Spark partition: the splits (parts of segment files) that one Spark task reads."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(splits)
        self.splits = splits


class SegmentReader(DataSourceReader):
    """The reader of a batch query on segment files: plans the tasks in the driver, and reads in the workers.

    Spark pickles a SegmentReader to the workers, so it only holds the options.
    """

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    @entry_point
    def partitions(self) -> list[InputPartition]:  # Spark requires a list
        options = self._options
        places = options.places()
        planner = Planner(options.bounds(places), committed=options.committed)
        splits = [split for place in places for split in planner.splits(place)]
        size = task_bytes(options, sum(split.bytes for split in splits))
        pieces = (piece for split in splits for piece in divided(split, size))
        return [Task(tuple(group)) for group in packed(pieces, size)]

    @entry_point
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        splits = partition.splits if isinstance(partition, Task) else ()  # Spark adds a partition if there are none
        skipped = _warn if self._options.ignore_damage else None
        for split in splits:
            yield from read_split(split, columns=self._options.columns, skipped=skipped)


def task_bytes(options: LogOptions, total: int) -> int:
    """Return how many bytes of segment files each task should read, if the query reads `total` bytes."""
    size = options.max_bytes or min(MAX_BYTES, max(LEAST_BYTES, -(-total // TASKS)))
    return max(1, min(size, -(-total // options.min_partitions)))


def packed(splits: Iterable[Split], size: int) -> Iterator[list[Split]]:
    """Group neighbouring splits (parts of segment files) and yield each group as a list.

    A group has up to `size` bytes, or a single larger split. Small segments are grouped as they are not worth a task
    each.
    """
    group: list[Split] = []
    filled = 0
    for split in splits:
        if group and filled + split.bytes > size:
            yield group
            group, filled = [], 0
        group.append(split)
        filled += split.bytes
    if group:
        yield group


def _warn(sentence: str) -> None:
    """Log a warning that damaged data, which `sentence` describes, is skipped."""
    log.warning("%s It is skipped (ignoreCorruptFiles).", sentence)
