"""Reads a range of offsets of one partition as Arrow record batches, from any Kafka-compatible broker.

Spark tasks use this module. Memory is bounded by one Fetch response, one batch of rows, and the decompressed parts of
one Kafka record batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from kafkapy.arrow.rows import MAX_BYTES, MAX_ROWS, RowBuilder
from kafkapy.client.cluster import Cluster
from kafkapy.client.fetched import Isolation
from kafkapy.client.fetching.batch_fetcher import FETCH_BYTES, BatchFetcher, OffsetOutOfRange


def read_partition(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    isolation: Isolation = "read_uncommitted",
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    fetch_bytes: int = FETCH_BYTES,
    timeout_s: float | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition with start <= offset < end, in order, as Arrow record batches.

    Control records are left out; with read_committed, also records of aborted transactions. `timeout_s` is how long to
    wait for the next records; None means the cluster's time limit.

    Raises:
        DamagedRows: A Kafka record batch is corrupt. The message has topic, partition and offset.
        OffsetOutOfRange: The next offset is not in the log. The error has the first and the end offset of the log.
        NothingFetched: No records came for `timeout_s`, for example because `end` is after the partition's end.
        KafkaError: The broker returned a permanent error.
    """
    rows = RowBuilder(
        topic,
        partition,
        columns=columns,
        include_headers=include_headers,
        start=start,
        end=end,
        max_rows=max_rows,
        max_bytes=max_bytes,
    )
    fetcher = BatchFetcher(
        cluster, topic, partition, start, end, isolation=isolation, fetch_bytes=fetch_bytes, timeout_s=timeout_s
    )
    return _read(rows, fetcher)


def _read(rows: RowBuilder, fetcher: BatchFetcher) -> Iterator[pa.RecordBatch]:
    """Yield the records that `fetcher` fetches as Arrow record batches.

    If an offset is out of range, yield the rows read before and then raise OffsetOutOfRange.
    """
    out_of_range: OffsetOutOfRange | None = None
    with fetcher:
        try:
            for fetched in fetcher:
                rows.set_aborted(fetched.aborted)
                yield from rows.feed(fetched.data)
                if rows.past_end:
                    break
        except OffsetOutOfRange as error:
            out_of_range = error  # raised after the rows that were read
    if (rest := rows.finish()) is not None:
        yield rest
    if out_of_range is not None:
        raise out_of_range
