"""Read the other files of a segment: .index, .timeindex, .txnindex and .snapshot.

The readers return the entries and only reject a file that cannot be parsed. The offset index and time index of the
active segment are preallocated (segment.index.bytes), so zeros follow the last entry. Layouts: Kafka's `OffsetIndex`,
`TimeIndex`, `AbortedTxn` and `ProducerStateManager`.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from kafkapy._ext.crc32c import crc32c
from kafkapy.log.names import OFFSET_INDEX, TIME_INDEX
from kafkapy.log.offline.errors import OfflineError

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
ABORTED_ENTRY = Struct(">hqqqq")
_SNAPSHOT_HEAD = Struct(">hIi")
_PRODUCER = Struct(">qhiqiqiq")


class OffsetEntry(NamedTuple):
    offset: int
    position: int


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


class AbortedTransaction(NamedTuple):
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerEntry(NamedTuple):
    """The state of one producer in a producer snapshot; `last_offset` is -1 if the snapshot has no data batch of the
    producer.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def first_sequence(self) -> int:
        """The first sequence of the producer's last batch.

        Sequences wrap at 2^31 (Kafka's DefaultRecordBatch.decrementSequence).
        """
        return (self.last_sequence - self.offset_delta) % (1 << 31)


def offset_entries(path: Path, base_offset: int) -> Iterator[OffsetEntry]:
    """Yield the entries of the offset index `path` with absolute offsets, without the preallocated zeros after them."""
    for number, (relative, position) in enumerate(_written(path, OFFSET_ENTRY)):
        if relative == 0 and number > 0:
            return
        yield OffsetEntry(base_offset + relative, position)


def time_entries(path: Path, base_offset: int) -> Iterator[TimeEntry]:
    """Yield the entries of the time index `path` with absolute offsets, without the preallocated zeros after them."""
    for number, (timestamp, relative) in enumerate(_written(path, TIME_ENTRY)):
        if relative == 0 and number > 0:
            return
        yield TimeEntry(timestamp, base_offset + relative)


def entries_in(fd: int, width: int) -> int:
    """Return the number of entries, each of `width` bytes, before the preallocated zeros of an index file, by binary
    search.

    In a file with room for just one entry, that entry counts even if it is all zeros: the file was trimmed to it.
    """
    low, high = 0, os.fstat(fd).st_size // width
    if high == 1:
        return 1
    while low < high:
        middle = (low + high) // 2
        if any(os.pread(fd, width, middle * width)):
            low = middle + 1
        else:
            high = middle
    return low


def size_to_read(path: Path) -> int:
    """Return about how many bytes of the file `path` will be read from disk, for a progress bar.

    For an index this is without preallocated space, which takes no disk blocks.
    """
    stat = path.stat()
    return min(stat.st_size, stat.st_blocks * 512) if path.suffix in (OFFSET_INDEX, TIME_INDEX) else stat.st_size


def aborted_transactions(path: Path) -> Iterator[AbortedTransaction]:
    """Yield the entries of the transaction index `path`. Raises OfflineError for an entry of an unknown version."""
    for fields in _entries(path, ABORTED_ENTRY):
        entry = AbortedTransaction(*fields)
        if entry.version != 0:
            raise OfflineError(
                f"{path} has an aborted transaction of version {entry.version}; only version 0 is known. Is it damaged?"
            )
        yield entry


def producer_entries(path: Path) -> list[ProducerEntry]:
    """Return the producers in the producer snapshot `path`, in file order.

    Raises OfflineError if the file is incomplete, its version is unknown or its CRC is wrong.
    """
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_HEAD.size:
        raise OfflineError(f"{path} is not a producer snapshot: it has {len(data)} bytes, the header alone has 10.")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1:
        raise OfflineError(f"{path} is a producer snapshot of version {version}; only version 1 is known.")
    computed = crc32c(memoryview(data)[6:])
    if computed != crc:
        raise OfflineError(f"{path} is damaged: its CRC is {crc}, but that of its content is {computed}.")
    if count < 0 or count * _PRODUCER.size > len(data) - _SNAPSHOT_HEAD.size:
        raise OfflineError(f"{path} is damaged: it claims {count} producers and has {len(data)} bytes.")
    end = _SNAPSHOT_HEAD.size + count * _PRODUCER.size
    return [ProducerEntry(*fields) for fields in _PRODUCER.iter_unpack(data[_SNAPSHOT_HEAD.size : end])]


def _written(path: Path, layout: Struct) -> Iterator[tuple[int, ...]]:
    """Yield the unpacked entries of an index file, without the preallocated zeros after them."""
    with open(path, "rb") as file:
        count = entries_in(file.fileno(), layout.size)
    return islice(_entries(path, layout), count)


def _entries(path: Path, layout: Struct) -> Iterator[tuple[int, ...]]:
    """Yield the unpacked entries of a file, without an incomplete entry at its end."""
    chunk = layout.size * 4096
    with open(path, "rb") as file:
        while data := file.read(chunk):
            yield from layout.iter_unpack(data[: len(data) - len(data) % layout.size])
