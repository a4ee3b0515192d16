"""Rows without a broker, and the rows that readers find in a directory."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from kafkapy.arrow.rows import TIMESTAMP
from kafkapy.spark.load.settings import Settings

DAY_MS = 86_400_000
SETTINGS = Settings("127.0.0.1:9092")


def batch(partition: int, offsets: Sequence[int], days: Sequence[int | None] | None = None) -> pa.RecordBatch:
    """Return records as a task reads them: the key is the offset; a day of None gives a record without a timestamp."""
    stamps = [-1000 if day is None else day * DAY_MS * 1000 + 5 for day in days or [0] * len(offsets)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition] * len(offsets), pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(stamps, pa.int64()).cast(TIMESTAMP),
            pa.array([str(offset).encode() for offset in offsets], pa.binary()),
            pa.array([b"value %d" % offset for offset in offsets], pa.binary()),
        ],
        ["partition", "offset", "timestamp", "key", "value"],
    )


def seen(directory: Path) -> list[tuple[int, int]]:
    """Return (partition, offset) of all rows in all Parquet files of the directory."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert all(path.suffix == ".parquet" for path in files), files
    tables = [ds.dataset(path).to_table(["partition", "offset"]) for path in files]
    return sorted((row["partition"], row["offset"]) for table in tables for row in table.to_pylist())
