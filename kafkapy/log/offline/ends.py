"""Find where a partition's records begin and end on disk: after deleted records, and before an incomplete append.

The last segment may end in an incomplete batch, because a broker is writing to the segment or was killed during a
write. Then the bytes after the last whole batch are a partial batch, or zeros (a preallocated file). Any other bytes
there are damage.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.directories.checkpoints import LOG_START_OFFSETS, OffsetCheckpoint
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.lookups import LAST, first_offset_of, index_entry
from kafkapy.log.offline.places import Place
from kafkapy.log.offline.stored_batches import CHUNK, UP_TO_MAGIC, LogReader, read_fully
from kafkapy.log.storage.files import Files

MOST_TORN = 256 << 20  # the largest incomplete batch that is accepted, in bytes


class LogEnd(NamedTuple):
    """The end of a partition's last whole batch: the next offset, and the position after it in the last
    segment's file.
    """

    offset: int
    position: int


class LogStarts:
    """Looks up the log start offsets of partitions in the checkpoint files of their log directories, and caches the
    files.
    """

    def __init__(self) -> None:
        self._noted: dict[Path, dict[tuple[str, int], int]] = {}

    def of(self, place: Place) -> int:
        """Return the log start offset of a partition. Raises CheckpointError, OSError."""
        first = place.segments[0].base_offset
        if place.topic is None or place.partition is None or place.kafka_07:
            return first
        log_dir = place.directory.absolute().parent
        if log_dir not in self._noted:
            self._noted[log_dir] = OffsetCheckpoint(Files(), str(log_dir), LOG_START_OFFSETS).read()
        return max(first, self._noted[log_dir].get((place.topic, place.partition), 0))


def end_of(place: Place) -> LogEnd:
    """Return the end of a partition: the offset and position after its last whole batch.

    Raises OSError, and OfflineError if the end of the last segment is damaged. For Kafka 0.7, whose segments have no
    index, this is the end of the file, even if its last message is incomplete.
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
                pass  # the scan from the start of the segment reports the damage where it is
        return _walked(log, LogEnd(last.base_offset, 0))


def is_batch_of(log: LogReader, offset: int, position: int) -> bool:
    """Return True if a whole, undamaged batch begins at `position` and its offsets fit an index entry with `offset`.

    An index entry has the first offset of an append (Kafka 0.8) or the last one.
    """
    return log.valid_batch_at(position) is not None and 0 <= first_offset_of(log, position) <= offset


def _walked(log: LogReader, begin: LogEnd) -> LogEnd:
    """Return the end of the last whole batch at or after the position of `begin`; `begin` itself if there is no batch.

    Raises OfflineError if the bytes after the last whole batch are damaged.
    """
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
    """Return True if all bytes of the file from `position` on are zeros."""
    while part := read_fully(log.fd, min(CHUNK, log.size - position), position):
        if part.strip(b"\0"):
            return False
        position += len(part)
    return True


def _check_torn(log: LogReader, end: LogEnd) -> None:
    """Raise OfflineError unless the bytes of the file after `end` can be the start of one incomplete batch.

    If they are the result of a damaged length field instead, whole batches follow, so the bytes are searched for
    batches.
    """
    size = log.size - end.position
    rest = read_fully(log.fd, min(size, MOST_TORN), end.position)
    head = rest[:UP_TO_MAGIC]
    torn = size <= MOST_TORN
    if torn and len(head) == UP_TO_MAGIC:
        torn = head[-1] <= 2 and int.from_bytes(head[:8], "big") >= end.offset
    alike = re.compile(b"(?=" + re.escape(head[:4]) + rb"[\0-\xff]{4}[\0-\x7f][\0-\xff]{7}[\0-\2])")
    if not torn or any(log.valid_batch_at(end.position + found.start()) for found in alike.finditer(rest, 1)):
        raise OfflineError(
            f"{log.path} is damaged: from position {end.position} on there are {size} bytes that are no whole batch, "
            "nor one that is just being written."
        )
