"""Reads the record batches of a partition directory, without code of kafkapy's own readers.

Batches must have format 2, and may be compressed with any codec.
"""

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import crc32c
import lz4.frame
import snappy
import zstandard

HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL, CONTROL = 0x10, 0x20


class Batch(NamedTuple):
    """A record batch: its header fields, and all its bytes."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    data: bytes

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


class Record(NamedTuple):
    """A record with its offset."""

    offset: int
    key: bytes | None
    value: bytes | None


class BadLog(AssertionError):
    """Raised for a log that no broker may write: a wrong CRC, offsets that go back, a batch that is cut off."""


def read_batches(directory: Path) -> list[Batch]:
    """Return all batches of a partition directory, in order. The log must not be written to meanwhile.

    Raises:
        BadLog: A batch is damaged, out of order or incomplete.
    """
    batches: list[Batch] = []
    for file in sorted(directory.glob("*.log")):
        for batch in _batches(file):
            if batches and batch.base_offset <= batches[-1].last_offset:
                raise BadLog(f"{file}: offset {batch.base_offset} follows {batches[-1].last_offset}")
            batches.append(batch)
    return batches


def _batches(file: Path) -> Iterator[Batch]:
    data = file.read_bytes()
    at = 0
    while at < len(data):
        if len(data) - at < HEADER.size:
            raise BadLog(f"{file}: {len(data) - at} bytes at its end")
        base, length, epoch, magic, crc, attributes, delta, _, _, producer, producer_epoch, sequence, _ = (
            HEADER.unpack_from(data, at)
        )
        end = at + 12 + length
        if magic != 2 or end > len(data) or length < HEADER.size - 12:
            raise BadLog(f"{file}: a batch of magic {magic} and {length} bytes at {at}, of {len(data)}")
        if crc32c.crc32c(data[at + 21 : end]) != crc:
            raise BadLog(f"{file}: the CRC of the batch at offset {base} is wrong")
        yield Batch(base, base + delta, epoch, attributes, producer, producer_epoch, sequence, data[at:end])
        at = end


def records_of(batch: Batch) -> Iterator[Record]:
    """Return the records of a batch, which may be a control batch."""
    data = batch.data[HEADER.size :]
    codec = batch.attributes & 7
    if codec == 1:
        data = gzip.decompress(data)
    elif codec == 2:
        data = _snappy(data)
    elif codec == 3:
        data = lz4.frame.decompress(data)
    elif codec == 4:
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    (count,) = struct.unpack_from(">i", batch.data, HEADER.size - 4)
    at = 0
    for _ in range(count):
        size, at = _varint(data, at)
        end = at + size
        _, at = _varint(data, at + 1)  # attributes, timestamp delta
        delta, at = _varint(data, at)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        yield Record(batch.base_offset + delta, key, value)
        at = end


def _snappy(data: bytes) -> bytes:
    if not data.startswith(b"\x82SNAPPY\0"):
        return bytes(snappy.uncompress(data))
    at, out = 16, b""
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out += snappy.uncompress(data[at + 4 : at + 4 + size])
        at += 4 + size
    return out


def _varint(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def read_epochs(directory: Path) -> list[tuple[int, int]]:
    """Return the entries of leader-epoch-checkpoint: (leader epoch, its first offset).

    Without an epoch, Kafka's file is empty, and kafkapy has no file."""
    file = directory / "leader-epoch-checkpoint"
    lines = file.read_text().splitlines() if file.exists() else []
    if not lines:
        return []
    assert lines[0] == "0", lines
    entries = [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines[2:])]
    assert len(entries) == int(lines[1]), lines
    return entries


def committed_only(batches: list[Batch]) -> tuple[list[Batch], list[Batch], list[Batch]]:
    """Return the data batches in three lists: committed or not transactional, aborted, and of transactions that are
    still open."""
    committed: list[Batch] = []
    aborted: list[Batch] = []
    pending: dict[int, list[Batch]] = {}
    for batch in batches:
        if batch.is_control:
            (record,) = records_of(batch)
            assert record.key is not None
            kind = struct.unpack(">hh", record.key[:4])[1]
            (committed if kind == 1 else aborted).extend(pending.pop(batch.producer_id, []))
        elif batch.is_transactional:
            pending.setdefault(batch.producer_id, []).append(batch)
        else:
            committed.append(batch)
    return sorted(committed), sorted(aborted), sorted(batch for each in pending.values() for batch in each)
