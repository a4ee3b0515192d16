"""One partition from offset to offset as Arrow record batches, from any Kafka-compatible broker.

This is what a task of a Spark job calls. Memory stays bounded however much there is to read: one answer of the broker,
one batch of rows, and the pieces of one compressed record batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from kafkapy.arrow.rows import MAX_BYTES, MAX_ROWS, RowBuilder
from kafkapy.client.batch_fetcher import FETCH_BYTES, BatchFetcher, OffsetOutOfRange
from kafkapy.client.cluster import Cluster
from kafkapy.client.fetched import Isolation


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
    """The records with start <= offset < end, in order; nothing when there are none.

    Control records are left out, with read_committed also those of aborted transactions. `timeout_s`: how long no
    record may come before the read fails; None: that of the cluster.

    Raises:
        DamagedRows: a batch is corrupt; names topic, partition and offset.
        OffsetOutOfRange: the partition does not have the next offset; has the range that it has.
        NothingFetched: nothing came for `timeout_s`, also when `end` lies beyond the partition's end.
        KafkaError: the broker refuses for good.
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
    out_of_range: OffsetOutOfRange | None = None
    with fetcher:
        try:
            for fetched in fetcher:
                rows.set_aborted(fetched.aborted)
                yield from rows.feed(fetched.data)
                if rows.past_end:
                    break
        except OffsetOutOfRange as error:
            out_of_range = error  # what was read before it is not lost
    if (rest := rows.finish()) is not None:
        yield rest
    if out_of_range is not None:
        raise out_of_range
