"""Finds the highest producer id and leader epoch in a segment from the headers of its record batches.

Only headers are read, so large batches take little time. A header that raises the highest value counts only if the CRC
of its batch is correct: a flipped bit could otherwise make a producer id so high that few ids are left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from kafkapy._ext.batch import BatchHeader, read_header
from kafkapy._ext.crc32c import crc32c
from kafkapy.coordinator.transaction_records import decode_state
from kafkapy.errors import KafkaError, ProtocolError
from kafkapy.record.batch import records_of

_PREFIX = Struct(">qiiB")  # base offset, length, leader epoch (magic 0 and 1: CRC), magic
_OVERHEAD = 12
_SMALLEST = 14
_V2_HEADER = 61
_CRC_START = 21
_PRODUCER_ID = Struct(">q")
_PRODUCER_ID_AT = 43
_CHUNK = 64 * 1024
_CRC_PIECE = 1 << 20


class Highest(NamedTuple):
    """The highest producer id and the highest leader epoch found so far; -1 for none. Batches of the message formats 0
    and 1 contain neither."""

    producer_id: int = -1
    leader_epoch: int = -1

    def with_(self, other: Highest) -> Highest:
        """Return a Highest with the larger producer id of `self` and `other`, and with the larger leader epoch of the
        two."""
        return Highest(max(self.producer_id, other.producer_id), max(self.leader_epoch, other.leader_epoch))


def walk_segment(path: Path, known: Highest, show: Callable[[int], None], *, of_transactions: bool = False) -> Highest:
    """Return the highest producer id and leader epoch of `known` and of the record batches in a segment file.

    The file is read up to the first bytes that are not a record batch. `of_transactions` is True for a segment of
    `__transaction_state`, whose records may name producer ids that have not written anything yet. `show` is called with
    the number of bytes read so far. Raise OSError if the file cannot be read.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        chunk, start = b"", 0
        position = 0
        while size - position >= _V2_HEADER:
            if position + _V2_HEADER > start + len(chunk):
                chunk, start = os.pread(file.fileno(), _CHUNK, position), position
                show(position)
                if len(chunk) < _V2_HEADER:
                    break
            at = position - start
            _, length, leader_epoch, magic = _PREFIX.unpack_from(chunk, at)
            end = position + _OVERHEAD + length
            if length < _SMALLEST or end > size or magic > 2 or (magic == 2 and end - position < _V2_HEADER):
                break
            if magic == 2:
                (producer_id,) = _PRODUCER_ID.unpack_from(chunk, at + _PRODUCER_ID_AT)
                if producer_id > known.producer_id or leader_epoch > known.leader_epoch or of_transactions:
                    known = known.with_(_checked(file.fileno(), position, end, of_transactions))
            position = end
    show(size)
    return known


def _checked(fd: int, position: int, end: int, of_transactions: bool) -> Highest:
    """Return the producer id and the leader epoch of the record batch from `position` to `end` of a file; -1 for both
    if its CRC is wrong. The batch is read in chunks for the CRC, because the length in its header may be wrong, too."""
    head = os.pread(fd, _V2_HEADER, position)
    header = read_header(head)
    crc = crc32c(head[_CRC_START:])
    for at in range(position + _V2_HEADER, end, _CRC_PIECE):
        crc = crc32c(os.pread(fd, min(_CRC_PIECE, end - at), at), crc)
    if crc != header.crc:
        return Highest()
    producer_id = header.producer_id
    if of_transactions and not header.is_control:
        batch = os.pread(fd, end - position, position)
        producer_id = max([producer_id, *_producers_named_in(batch, header)])
    return Highest(producer_id, header.leader_epoch)


def _producers_named_in(batch: bytes, header: BatchHeader) -> Iterator[int]:
    try:
        for record in records_of(batch, header):
            if record.value is not None:
                yield decode_state(record.value).producer_id
    except (ValueError, KafkaError, ProtocolError):
        return  # written by a later Kafka version, or invalid despite a correct CRC: ignore the record
