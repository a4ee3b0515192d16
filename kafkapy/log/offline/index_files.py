"""Readers of the files beside a .log file: .index, .timeindex, .txnindex and .snapshot.

They read what is there and judge nothing but what cannot be read at all. Layouts: Kafka's `OffsetIndex`, `TimeIndex`,
`AbortedTxn` and `ProducerStateManager`.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from kafkapy._ext.crc32c import crc32c
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
    """One producer of a snapshot; `last_offset` is -1 when it has written no data that is still known."""

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
        """Sequences wrap within the non-negative int32 (Kafka's DefaultRecordBatch.decrementSequence)."""
        return (self.last_sequence - self.offset_delta) % (1 << 31)


def offset_entries(path: Path, base_offset: int) -> Iterator[OffsetEntry]:
    """Entries up to the first one of zeros after the first (what a file that was not trimmed still has)."""
    for number, (relative, position) in enumerate(_entries(path, OFFSET_ENTRY)):
        if relative == 0 and number > 0:
            return
        yield OffsetEntry(base_offset + relative, position)


def time_entries(path: Path, base_offset: int) -> Iterator[TimeEntry]:
    """The same of a time index."""
    for number, (timestamp, relative) in enumerate(_entries(path, TIME_ENTRY)):
        if relative == 0 and number > 0:
            return
        yield TimeEntry(timestamp, base_offset + relative)


def aborted_transactions(path: Path) -> Iterator[AbortedTransaction]:
    """The entries of a transaction index; raises OfflineError at one of an unknown version."""
    for fields in _entries(path, ABORTED_ENTRY):
        entry = AbortedTransaction(*fields)
        if entry.version != 0:
            raise OfflineError(
                f"{path} has an aborted transaction of version {entry.version}; only version 0 is known. Is it damaged?"
            )
        yield entry


def producer_entries(path: Path) -> list[ProducerEntry]:
    """The producers of a .snapshot file, in file order; raises OfflineError when it is torn or its CRC is wrong."""
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


def _entries(path: Path, layout: Struct) -> Iterator[tuple[int, ...]]:
    """Entries of an array file; a torn one at the end is left out. Chunks are whole numbers of entries."""
    chunk = layout.size * 4096
    with open(path, "rb") as file:
        while data := file.read(chunk):
            yield from layout.iter_unpack(data[: len(data) - len(data) % layout.size])
