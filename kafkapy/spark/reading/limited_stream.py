"""Streaming in PySpark 4.2 and newer: micro-batches with limits, and Trigger.AvailableNow in more than one of them."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafkapy.spark.plainly import plainly
from kafkapy.spark.reading.positions import positions_of
from kafkapy.spark.reading.stream_reader import StreamReader


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """Spark hands the limit of `getDefaultReadLimit` to `latestOffset`, or ReadAllAvailable for Trigger.Once."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """A hint that there are limits: a Python source can name one, and the options may have two."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        limits = not isinstance(limit, ReadAllAvailable)
        return self.plan.next_end(positions_of(start), limits=limits).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the progress of the query: how far there are records."""
        return None if self.plan.seen is None else self.plan.seen.to_json()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self.plan.end_here()
