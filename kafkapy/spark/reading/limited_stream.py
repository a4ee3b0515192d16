"""Streaming queries in PySpark 4.2 and newer, which can limit micro-batches, also with Trigger.AvailableNow."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafkapy.spark.entry_points import entry_point
from kafkapy.spark.reading.positions import positions_of
from kafkapy.spark.reading.stream_reader import StreamReader


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """A stream reader that can limit the number of offsets in a micro-batch.

    Spark passes the default limit to latestOffset, or ReadAllAvailable for Trigger.Once.
    """

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit for micro-batches: maxOffsetsPerTrigger, else minOffsetsPerTrigger, else ReadAllAvailable.

        Spark accepts only one limit from a Python source. If both options are given, latestOffset applies both.
        """
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @entry_point
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        limits = not isinstance(limit, ReadAllAvailable)
        return self.plan.next_end(positions_of(start), limits=limits).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the latest offset of each partition as of the last lookup, or None before the first lookup.

        Spark shows these offsets in the query's progress report.
        """
        return None if self.plan.seen is None else self.plan.seen.to_json()

    @entry_point
    def prepareForTriggerAvailableNow(self) -> None:
        self.plan.end_here()
