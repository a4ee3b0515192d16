"""Where a partition's records begin and end on disk: behind what was deleted, before what is just being written.

The last segment may end in a torn batch: a broker writes there, or was killed while it did. What is left over there is
a batch that is not all there, or zeros (a file made larger ahead of its writes). Anything else is damage.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kafkapy.log.checkpoints import LOG_START_OFFSETS, OffsetCheckpoint
from kafkapy.log.files import Files
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.lookups import LAST, index_position
from kafkapy.log.offline.places import Place, Segment
from kafkapy.log.offline.stored_batches import CHUNK, LogReader, read_fully


class LogEnd(NamedTuple):
    """Behind the last whole batch: the next offset, and the position in the last segment's file."""

    offset: int
    position: int


class LogStarts:
    """The offsets before which records were deleted, as log directories note them beside their partitions."""

    def __init__(self) -> None:
        self._noted: dict[Path, dict[tuple[str, int], int]] = {}

    def of(self, place: Place) -> int:
        """The first offset that a consumer may get. Raises CheckpointError, OSError."""
        first = place.segments[0].base_offset
        if place.topic is None or place.partition is None or place.kafka_07:
            return first
        log_dir = place.directory.absolute().parent
        if log_dir not in self._noted:
            self._noted[log_dir] = OffsetCheckpoint(Files(), str(log_dir), LOG_START_OFFSETS).read()
        return max(first, self._noted[log_dir].get((place.topic, place.partition), 0))


def end_of(place: Place) -> LogEnd:
    """Where the last segment ends. Raises OfflineError, where the rest of it is damaged; OSError.

    Of Kafka 0.7, whose segments have no index, it is the end of the file, torn or not.
    """
    last = place.segments[-1]
    if place.kafka_07:
        return LogEnd(last.base_offset + last.size, last.size)
    with LogReader(last.path) as log:
        start = index_position(last, LAST)
        return (_walked(log, last, start) if start else None) or _walked(log, last, 0) or LogEnd(last.base_offset, 0)


def is_zero(fd: int, position: int, end: int) -> bool:
    """Whether there is nothing but zeros."""
    while position < end:
        part = read_fully(fd, min(CHUNK, end - position), position)
        if not part or part.strip(b"\0"):
            return not part
        position += len(part)
    return True


def _walked(log: LogReader, segment: Segment, start: int) -> LogEnd | None:
    """Through the batches from a position on; None where there are none, or where the index has led astray."""
    end = None
    try:
        for batch in log.batches(start):
            if end is None and start and not (batch.crc_is_right and batch.header.last_offset >= segment.base_offset):
                return None
            end = LogEnd(batch.header.last_offset + 1, batch.end)
    except OfflineError:
        position = start if end is None else end.position
        if is_zero(log.fd, position, log.size):
            return end
        if start:
            return None
        raise
    return end
