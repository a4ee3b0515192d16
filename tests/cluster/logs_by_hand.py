"""Batches of format 2 and partition directories made byte by byte, for logs as a broker may find them at its start."""

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path

import crc32c
import lz4.frame
import snappy
import zstandard

from tests.harness.raw import varint


def record(delta: int, value: bytes, key: bytes | None = None) -> bytes:
    """Encode one record of a batch; `delta` is its offset after the batch's base offset."""
    keyed = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(0) + varint(delta) + keyed + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    base: int,
    *values: bytes,
    epoch: int = 0,
    attributes: int = 0,
    producer: int = -1,
    sequence: int = 0,
    key: bytes | None = None,
) -> bytes:
    """Encode a batch of these values. `attributes` include the codec; `sequence` is the base sequence."""
    body = b"".join(record(number, value, key) for number, value in enumerate(values))
    pack = {0: bytes, 1: gzip.compress, 2: _snappy_of_java, 3: lz4.frame.compress, 4: zstandard.compress}
    body = pack[attributes & 7](body)
    numbered = (producer, 0, sequence) if producer >= 0 else (-1, -1, -1)
    header = struct.pack(">hiqqqhii", attributes, len(values) - 1, 0, 0, *numbered, len(values))
    crc = crc32c.crc32c(header + body)
    return struct.pack(">qiibI", base, 9 + len(header) + len(body), epoch, 2, crc) + header + body


def _snappy_of_java(data: bytes) -> bytes:
    block = snappy.compress(data)
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


def write_log(
    directory: Path, log: Sequence[bytes], epochs: Sequence[tuple[int, int]], *, first_segment: int | None = None
) -> None:
    """Replace the files of a partition directory by segments with these batches and a checkpoint of the leader epochs
    (epoch, first offset). With `first_segment`, the first of two segments has that many batches. No indexes are
    written: the broker rebuilds them."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in directory.glob("0*"):
        file.unlink()
    parts = [log] if first_segment is None else [log[:first_segment], log[first_segment:]]
    for part in parts:
        (base,) = struct.unpack_from(">q", part[0])
        (directory / f"{base:020}.log").write_bytes(b"".join(part))
    lines = ["0", str(len(epochs)), *(f"{epoch} {offset}" for epoch, offset in epochs)]
    (directory / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")
