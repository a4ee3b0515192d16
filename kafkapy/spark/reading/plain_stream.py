"""Streaming in PySpark 4.0 and 4.1, where a Python source is not told how far a query has read: each micro-batch takes
all that is there."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition

from kafkapy.client.errors import ClientError
from kafkapy.errors import KafkaError
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.source_options import TRIGGER_OPTIONS, SourceOptions
from kafkapy.spark.plainly import plainly
from kafkapy.spark.reading.positions import Positions, positions_of
from kafkapy.spark.reading.stream_reader import StreamReader


class PlainStreamReader(StreamReader):
    """Raises BadOption for options that limit a micro-batch.

    Spark asks for the end of the first batch before it asks where the query starts, if it is new at all. So the first
    answer always carries where a new query would start; a query that goes on passes over that, at the price of an empty
    micro-batch when it has nothing to do.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        for name in TRIGGER_OPTIONS:
            if name.lower() in options.given:
                raise BadOption(
                    f"{name} needs PySpark 4.2 or newer: before, Spark does not let a Python source limit a micro-batch"
                )
        self._start: Positions | None = None  # the end of the last batch that was planned, or where the query starts

    @plainly
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self._start is None:
            try:
                self._start = self.plan.initial()
            except (BadOption, ClientError, KafkaError):  # a new query asks again, and is told
                self._start = self.plan.next_end(None)
        return self.plan.next_end(self._start).to_json()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = super().partitions(start, end)
        self._start = positions_of(end)
        return ranges
