"""Streaming queries in PySpark 4.0 and 4.1, where each micro-batch takes all available records.

These versions do not tell a Python source how far a query has read.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition

from kafkapy.client.errors import ClientError
from kafkapy.errors import KafkaError
from kafkapy.spark.entry_points import entry_point
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.source_options import TRIGGER_OPTIONS, SourceOptions
from kafkapy.spark.reading.positions import Positions, positions_of
from kafkapy.spark.reading.stream_reader import StreamReader


class PlainStreamReader(StreamReader):
    """A stream reader that does not limit micro-batches.

    The constructor raises BadOption for options that would limit them.

    Spark asks for the end of the first micro-batch before it asks for the start of a new query. So the first end that
    latestOffset returns always includes the start of a new query. A restarted query ignores that start, which costs an
    empty micro-batch if there are no new records.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        for name in TRIGGER_OPTIONS:
            if name.lower() in options.given:
                raise BadOption(
                    f"{name} needs PySpark 4.2 or newer: before, Spark does not let a Python source limit a micro-batch"
                )
        self._start: Positions | None = None  # the end of the last planned batch, or the start of the query

    @entry_point
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self._start is None:
            try:
                self._start = self.plan.initial()
            except (BadOption, ClientError, KafkaError):  # if this is a new query, initialOffset raises the error
                self._start = self.plan.next_end(None)
        return self.plan.next_end(self._start).to_json()

    @entry_point
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = super().partitions(start, end)
        self._start = positions_of(end)
        return ranges
