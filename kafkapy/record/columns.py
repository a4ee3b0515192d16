"""Converts batches of any format to columns in Arrow's memory layout, without Python objects for records.

    builder = column_builder(("offset", "timestamp", "value"), max_rows=100_000)
    for buffer in buffers:                        # complete batches, as in a segment or a Fetch response
        for columns in builder.feed(buffer):      # whenever a limit is reached
            ...
    if columns := builder.finish(): ...           # the rest

Offsets and timestamps in the columns are those that a consumer gets. `kafkapy.record.arrow` converts the columns to
pyarrow objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkapy._ext.columns import COLUMNS, Bytes, ColumnBuilder, Columns, Headers, Memory
from kafkapy._ext.stored_records import DamagedBatch
from kafkapy.record.compression import NAMES, ZSTD, DecompressionError, pieces
from kafkapy.record.records import MAX_PAYLOAD

__all__ = [
    "COLUMNS",
    "Bytes",
    "ColumnBuilder",
    "Columns",
    "DamagedBatch",
    "Headers",
    "Memory",
    "column_builder",
    "decompress_records",
]


def decompress_records(codec: int, data: memoryview, magic: int, limit: int = MAX_PAYLOAD) -> Iterator[bytes]:
    """Yield the decompressed payload of a batch or wrapper in pieces. Raises DecompressionError for invalid data, and
    for more than `limit` bytes."""
    if magic < 2 and codec >= ZSTD:
        name = NAMES[codec] if codec < len(NAMES) else f"codec {codec}"
        raise DecompressionError(f"a message of format {magic} cannot be compressed with {name}")
    return pieces(codec, data, limit, broken_checksum=magic == 0)


def column_builder(
    names: Iterable[str] = tuple(COLUMNS),
    *,
    max_rows: int = 1 << 17,
    max_bytes: int = 32 << 20,
    large_offsets: bool = False,
    skip_control: bool = True,
    min_offset: int | None = None,
    end_offset: int | None = None,
    min_timestamp: int | None = None,
    end_timestamp: int | None = None,
    aborted: Iterable[tuple[int, int]] = (),
    partition: int = -1,
    check_crc: bool = True,
) -> ColumnBuilder:
    """Return a ColumnBuilder that reads all message formats and codecs. The arguments are those of ColumnBuilder."""
    return ColumnBuilder(
        decompress_records,
        tuple(names),
        max_rows=max_rows,
        max_bytes=max_bytes,
        large_offsets=large_offsets,
        skip_control=skip_control,
        min_offset=min_offset,
        end_offset=end_offset,
        min_timestamp=min_timestamp,
        end_timestamp=end_timestamp,
        aborted=aborted,
        partition=partition,
        check_crc=check_crc,
    )
