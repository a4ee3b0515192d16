"""The reader of batch queries, which looks up the offsets once, so every action on a DataFrame reads the same rows.

Source: KafkaBatch of Spark, which looks up the offsets for every action.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkapy.client.administration.admin import EARLIEST, LATEST
from kafkapy.spark.entry_points import entry_point
from kafkapy.spark.options.limits import AtOffsets, Edge
from kafkapy.spark.options.source_options import SourceOptions
from kafkapy.spark.reading.data_loss import report_data_loss
from kafkapy.spark.reading.offset_reader import OffsetReader, listed
from kafkapy.spark.reading.positions import Positions
from kafkapy.spark.reading.ranges import KafkaRange, divided
from kafkapy.spark.reading.task import read_range

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """The reader of a batch query: plans ranges of offsets in the driver, and reads the ranges in the workers.

    Spark pickles a BatchReader to the workers, so it only holds the options.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @entry_point
    def partitions(self) -> list[InputPartition]:  # Spark requires a list
        options = self._options
        starting, ending = options.starting or Edge(EARLIEST), options.ending or Edge(LATEST)
        with OffsetReader(options) as reader:
            start = reader.resolved(starting, starting=True)
            end = reader.resolved(ending, starting=False)
            if isinstance(starting, AtOffsets) or isinstance(ending, AtOffsets):
                end = self._within(start, end, reader.latest())
        self._check_same(start, end)
        ranges = [
            KafkaRange(*where, offset, end.offsets[where], end.topic_ids.get(where[0], ""), starting == Edge(EARLIEST))
            for where, offset in sorted(start.offsets.items())
        ]
        return list(divided(ranges, options.min_partitions, options.max_records_per_partition))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition, self._options)

    def _within(self, start: Positions, end: Positions, latest: Positions) -> Positions:
        """Return `end`, limited to the latest offset of each partition. A task would wait forever for later records.

        If `start` or `end` is after the latest offset, raises DataLoss, or with failOnDataLoss=false logs a warning.
        """
        offsets = dict(end.offsets)
        for where, last in latest.offsets.items():
            for name, positions in (("startingOffsets", start.offsets), ("endingOffsets", end.offsets)):
                if (at := positions.get(where, 0)) > last:
                    report_data_loss(
                        self._options.fail_on_data_loss,
                        f"{name} of {where[0]}-{where[1]} is {at}, but the partition ends at {last}",
                    )
            if where in offsets:
                offsets[where] = min(offsets[where], last)
        return Positions(offsets, end.topic_ids)

    def _check_same(self, start: Positions, end: Positions) -> None:
        """Raise RuntimeError if topics were created or deleted between the lookups of start and end."""
        changed = set(start.offsets) ^ set(end.offsets)
        changed |= {where for where in start.offsets if not start.same_topic(end, where[0])}
        if changed:
            raise RuntimeError(f"{listed(changed)} was created or deleted while the query was planned: load it again")
