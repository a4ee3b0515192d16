"""A streaming query, for Spark with admission control for Python sources (4.2 on) and without it.

Spark makes the reader anew in several processes; only the one that answers for offsets asks brokers about them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafkapy.spark.options.source_options import SourceOptions
from kafkapy.spark.plainly import plainly
from kafkapy.spark.reading.positions import positions_of
from kafkapy.spark.reading.stream_plan import StreamPlan
from kafkapy.spark.reading.task import read_range

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader):
    """What both have in common. Pickled to the workers before a plan is made."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._made: StreamPlan | None = None

    @property
    def plan(self) -> StreamPlan:
        if self._made is None:
            self._made = StreamPlan(self._options)
        return self._made

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        return self.plan.initial().to_json()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return list(self.plan.ranges(positions_of(start), positions_of(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint has it."""

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()
