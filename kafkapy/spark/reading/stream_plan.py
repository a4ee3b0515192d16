"""The driver's planning of a streaming query: where micro-batches end, and which ranges of offsets their tasks read.

Source: KafkaMicroBatchStream and KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets of Spark.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from kafkapy.client.administration.admin import LATEST
from kafkapy.client.cluster import TopicPartition
from kafkapy.spark.options.limits import Edge
from kafkapy.spark.options.source_options import SourceOptions
from kafkapy.spark.reading.data_loss import report_data_loss
from kafkapy.spark.reading.offset_reader import OffsetReader, listed
from kafkapy.spark.reading.positions import Positions
from kafkapy.spark.reading.ranges import KafkaRange, divided
from kafkapy.spark.reading.rates import Delay, rate_limited

IDLE_S = 0.1  # how long a lookup waits for new records, because Spark calls again immediately
POLL_S = 0.01  # the interval of lookups while waiting, for each hundred partitions
NEW_PARTITIONS_S = 1.0  # how often an idle query looks for new partitions; an active query does so for each batch


class StreamPlan:
    """Plans the micro-batches of a streaming query.

    Spark runs this code in one Python process, in addition to the driver, for the whole query.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reader = OffsetReader(options)
        self._delay = Delay(options.min_offsets or 0, options.max_delay_s)
        self._initial: Positions | None = None
        self._ends_here = False
        self._final: Positions | None = None
        self._latest: Positions | None = None
        self._looked_up = 0.0

    def close(self) -> None:
        self._reader.close()

    def initial(self) -> Positions:
        """Return the offsets where a new query starts.

        They are looked up once, so all calls return the same offsets.
        """
        if self._initial is None:
            found = self._reader.resolved(self._options.starting or Edge(LATEST), starting=True)
            self._initial = replace(found, initial=True)
        return self._initial

    def end_here(self) -> None:
        """Make the query end after the records that exist now (Trigger.AvailableNow).

        The latest offsets are looked up when Spark first asks how far to read. By then the query's position is known,
        so deleted records that the query has not read are noticed.
        """
        self._ends_here = True

    @property
    def seen(self) -> Positions | None:
        """Return the latest offset of each partition as of the last lookup, or None before the first lookup."""
        return self._latest

    def next_end(self, start: Positions | None, *, limits: bool = False) -> Positions:
        """Return the offsets where the micro-batch that begins at `start` ends.

        If there are no new records, return `start`.

        Args:
            start: The position of the query, or None if it is not known: then the result has the latest offsets.
            limits: Whether maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay apply.
        """
        if self._ends_here and self._final is None:
            self._final = self._reader.latest(start)
        latest = self._latest = self._final or self._look_up(start)
        if start is None:
            return latest
        options = self._options
        offsets = latest.offsets
        waits = limits and options.min_offsets is not None and self._final is None
        if waits and self._delay.waits(self._known(start, latest), offsets, time.monotonic()):
            time.sleep(IDLE_S)
            return _from(start, Positions(start.offsets, start.topic_ids))
        if limits and options.max_offsets:
            known = self._known(start, latest)
            new = self._reader.earliest([where for where in offsets if where not in known])
            offsets = rate_limited(options.max_offsets, known | new, offsets)
        return _from(start, replace(latest, offsets=offsets))

    def ranges(self, start: Positions, end: Positions) -> list[KafkaRange]:
        """Return the ranges of offsets that the tasks of the micro-batch from `start` to `end` read.

        If records are missing, raises DataLoss, or with failOnDataLoss=false logs a warning and leaves the records out.
        """
        if start.initial and end.start is not None:  # the first batch is repeated: use its original start
            start = Positions(end.start, end.topic_ids)
        if self._latest is None:
            end = self._still_there(end)
        fail = self._options.fail_on_data_loss
        for topic in sorted({topic for topic, _ in start.offsets}):
            if not start.same_topic(end, topic):
                report_data_loss(fail, f"topic {topic!r} was deleted and recreated since the query read it")
        begin = self._known(start, end)
        new = [where for where in end.offsets if where not in begin]
        begin |= self._beginnings(new, start, fail)
        gone = [where for where in start.offsets if where not in end.offsets]
        if gone:
            report_data_loss(
                fail, f"{listed(gone)} is gone, or the checkpoint is that of a query that reads other topics"
            )
        ranges = []
        for where, offset in sorted(end.offsets.items()):
            if where not in begin:
                continue
            if offset < begin[where]:
                report_data_loss(fail, f"{where[0]}-{where[1]} ends at {offset} now, but was read up to {begin[where]}")
            ranges.append(KafkaRange(*where, begin[where], offset, end.topic_ids.get(where[0], "")))
        return divided(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def _look_up(self, start: Positions | None) -> Positions:
        """Return the latest offset of each partition.

        If no records follow `start`, first wait a moment for new records.
        """
        latest = self._latest
        begun = time.monotonic()
        if (
            latest is None
            or start is None
            or begun - self._looked_up >= NEW_PARTITIONS_S
            or not _nothing_in(latest, start)
        ):
            latest, self._looked_up = self._reader.latest(start), begun
        while start is not None and _nothing_in(latest, start) and time.monotonic() - begun < IDLE_S:
            time.sleep(POLL_S * max(1.0, len(latest.offsets) / 100))
            if latest.offsets and self._reader.have_moved(latest.offsets):
                latest, self._looked_up = self._reader.latest(start), time.monotonic()
        return latest

    def _known(self, start: Positions, end: Positions) -> dict[TopicPartition, int]:
        """Return the offsets in `start`, except those of recreated topics, which are read from the beginning."""
        return {where: offset for where, offset in start.offsets.items() if start.same_topic(end, where[0])}

    def _beginnings(self, new: list[TopicPartition], start: Positions, fail: bool) -> Mapping[TopicPartition, int]:
        """Return the earliest offsets of `new`, the partitions that the query has not read before.

        If such a partition is already deleted or does not begin at offset 0, raises DataLoss, or logs a warning if
        `fail` is False.
        """
        found = self._reader.earliest(new)
        missing = [where for where in new if where not in found]
        if missing:
            report_data_loss(fail, f"{listed(missing)} was created and deleted before it was read")
        for where, offset in found.items():
            if offset and where not in start.offsets:
                report_data_loss(fail, f"{where[0]}-{where[1]} is new and begins at offset {offset} instead of 0")
        return found

    def _still_there(self, end: Positions) -> Positions:
        """Return the end of a micro-batch that an earlier run of the query has planned, limited to existing records.

        For a partition that now ends before `end`, raises DataLoss, or with failOnDataLoss=false logs a warning.
        """
        self._latest = self._reader.latest(end)
        offsets = dict(end.offsets)
        for where, offset in end.offsets.items():
            last = self._latest.offsets.get(where)
            if last is not None and last < offset and end.same_topic(self._latest, where[0]):
                what = f"{where[0]}-{where[1]} ends at {last} now, but a batch was to read up to {offset}"
                report_data_loss(self._options.fail_on_data_loss, what)
                offsets[where] = last
        return replace(end, offsets=offsets)


def _from(start: Positions, end: Positions) -> Positions:
    """Return the end of a micro-batch from `start` to `end`, as it is stored in the checkpoint.

    The end of the first micro-batch of a query also has the start offsets. If a later micro-batch is empty, the result
    is `start` itself.
    """
    if start.initial:
        return replace(end, initial=False, start=start.offsets)
    return start if _nothing_in(end, start) else replace(end, start=None)


def _nothing_in(end: Positions, start: Positions) -> bool:
    """Return True if a micro-batch from `start` to `end` would be empty."""
    return end.offsets == start.offsets and end.topic_ids == start.topic_ids
