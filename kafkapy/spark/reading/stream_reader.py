"""The part of a stream reader that all PySpark versions share.

Spark constructs the reader in several processes. Only the process that plans the query looks up offsets at brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafkapy.spark.entry_points import entry_point
from kafkapy.spark.options.source_options import SourceOptions
from kafkapy.spark.reading.positions import positions_of
from kafkapy.spark.reading.stream_plan import StreamPlan
from kafkapy.spark.reading.task import read_range

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader):
    """Base class of the readers of streaming queries. Spark pickles a reader to the workers before `plan` is used."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._made: StreamPlan | None = None

    @property
    def plan(self) -> StreamPlan:
        """Return the StreamPlan, which plans the query's micro-batches. The first use constructs it."""
        if self._made is None:
            self._made = StreamPlan(self._options)
        return self._made

    @entry_point
    def initialOffset(self) -> dict[str, Any]:
        return self.plan.initial().to_json()

    @entry_point
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return list(self.plan.ranges(positions_of(start), positions_of(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing, because the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()
