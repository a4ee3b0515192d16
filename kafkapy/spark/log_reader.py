"""A batch query on segment files: what is read is fixed at `load()`; the files are cut into tasks of about one size."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkapy.arrow.segments import read_split
from kafkapy.log.offline.bounds import Planner
from kafkapy.log.offline.splits import Split, divided
from kafkapy.spark.options.log_options import LEAST_BYTES, MAX_BYTES, TASKS, LogOptions
from kafkapy.spark.plainly import plainly

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kafkapy.spark")


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(splits)
        self.splits = splits


class SegmentReader(DataSourceReader):
    """Pickled to the workers: holds nothing but the options."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    @plainly
    def partitions(self) -> list[InputPartition]:  # Spark takes a list only
        options = self._options
        places = options.places()
        planner = Planner(options.bounds(places), committed=options.committed)
        splits = [split for place in places for split in planner.splits(place)]
        size = task_bytes(options, sum(split.bytes for split in splits))
        pieces = (piece for split in splits for piece in divided(split, size))
        return [Task(tuple(group)) for group in packed(pieces, size)]

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        splits = partition.splits if isinstance(partition, Task) else ()  # Spark makes one up where there are none
        skipped = _warn if self._options.ignore_damage else None
        for split in splits:
            yield from read_split(split, columns=self._options.columns, skipped=skipped)


def task_bytes(options: LogOptions, total: int) -> int:
    """How many bytes one task is to read."""
    size = options.max_bytes or min(MAX_BYTES, max(LEAST_BYTES, -(-total // TASKS)))
    return max(1, min(size, -(-total // options.min_partitions)))


def packed(splits: Iterable[Split], size: int) -> Iterator[list[Split]]:
    """Neighbours together, up to `size` bytes: small segments are not worth a task each."""
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
    log.warning("%s It is left out (ignoreCorruptFiles).", sentence)
