"""Where a partition's records begin and end on disk: behind what was deleted, before what is just being written.

The last segment may end in a torn batch: a broker writes there, or was killed while it did. What is left over there is
a batch that is not all there, or zeros (a file made larger ahead of its writes). Anything else is damage.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.checkpoints import LOG_START_OFFSETS, OffsetCheckpoint
from kafkapy.log.files import Files
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.lookups import LAST, first_offset_of, index_entry
from kafkapy.log.offline.places import Place
from kafkapy.log.offline.stored_batches import CHUNK, UP_TO_MAGIC, LogReader, read_fully

MOST_TORN = 256 << 20  # bytes of one batch that is not all there


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
        entry = index_entry(last, LAST)
        if entry is not None and is_batch_of(log, *entry):
            try:
                return _walked(log, LogEnd(entry[0], entry[1]))
            except OfflineError:
                pass  # from the begin on it will be found where it is
        return _walked(log, LogEnd(last.base_offset, 0))


def is_batch_of(log: LogReader, offset: int, position: int) -> bool:
    """Whether there is a whole and sound batch that an index entry can be about.

    The offset in it is the first one of what was appended (Kafka 0.8), or the last.
    """
    return log.sound_batch_at(position) is not None and 0 <= first_offset_of(log, position) <= offset


def _walked(log: LogReader, begin: LogEnd) -> LogEnd:
    """Through the batches from a position on; the offset counts where there are none. Raises OfflineError."""
    end = begin
    try:
        for batch in log.batches(begin.position):
            end = LogEnd(batch.header.last_offset + 1, batch.end)
    except OfflineError:
        if not _is_zero(log, end.position):
            raise
        return end
    if log.size > end.position:
        _check_torn(log, end)
    return end


def _is_zero(log: LogReader, position: int) -> bool:
    """Whether nothing but zeros follow."""
    while part := read_fully(log.fd, min(CHUNK, log.size - position), position):
        if part.strip(b"\0"):
            return False
        position += len(part)
    return True


def _check_torn(log: LogReader, end: LogEnd) -> None:
    """Raises OfflineError unless what is left over can be the begin of the next batch, and nothing else.

    A wrong length would look like it; but then there are whole batches behind it.
    """
    size = log.size - end.position
    rest = read_fully(log.fd, min(size, MOST_TORN), end.position)
    head = rest[:UP_TO_MAGIC]
    torn = size <= MOST_TORN
    if torn and len(head) == UP_TO_MAGIC:
        torn = head[-1] <= 2 and int.from_bytes(head[:8], "big") >= end.offset
    alike = re.compile(b"(?=" + re.escape(head[:4]) + rb"[\0-\xff]{4}[\0-\x7f][\0-\xff]{7}[\0-\2])")
    if not torn or any(log.sound_batch_at(end.position + found.start()) for found in alike.finditer(rest, 1)):
        raise OfflineError(
            f"{log.path} is damaged: from position {end.position} on there are {size} bytes that are no whole batch, "
            "nor one that is just being written."
        )
