"""Records as columns: batches of any format in, memory in Arrow's layout out, no Python object for any record.

    builder = column_builder(("offset", "timestamp", "value"), max_rows=100_000)
    for buffer in buffers:                        # whole batches, as a segment or a Fetch response has them
        for columns in builder.feed(buffer):      # each time that the bounds are reached
            ...
    if columns := builder.finish(): ...           # the rest

What comes out is what a consumer gets of the same batches. `kafkapy.record.arrow` makes Arrow's own objects of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkapy._ext.columns import COLUMNS, Bytes, ColumnBuilder, Columns, Headers, Memory
from kafkapy._ext.stored_records import DamagedBatch
from kafkapy.record.batch import MAX_PAYLOAD
from kafkapy.record.compression import NAMES, ZSTD, DecompressionError, pieces

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
    """What is in a compressed batch or wrapper, piece by piece. Raises DecompressionError, also beyond `limit`."""
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
    """A builder for all formats and codecs; the arguments are those of ColumnBuilder."""
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
