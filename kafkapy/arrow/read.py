"""Reads a topic, or segment files, as a stream of Arrow record batches for Polars, DuckDB, pandas and others.

reader = kafkapy.arrow.read("flights", bootstrap_servers="127.0.0.1:9092", columns=["key", "value"])
frame = polars.from_arrow(reader.read_all())

kafkapy.arrow.read("/var/lib/kafka/flights-0", start=datetime(2013, 7, 4, tzinfo=timezone.utc))
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from kafkapy.arrow.partition_reader import read_partition
from kafkapy.arrow.rows import MAX_ROWS, schema_of
from kafkapy.arrow.segments import read_segments
from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.fetched import Isolation, isolation_level
from kafkapy.client.security import Security
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.offline.bounds import Bound, Bounds, Time

Position = int | datetime | Literal["earliest", "latest"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def read(
    topic_or_directory: str | os.PathLike[str],
    *,
    bootstrap_servers: str | Sequence[str] | Cluster | None = None,
    start: Position | Mapping[int, Position] = "earliest",
    end: Position | Mapping[int, Position] = "latest",
    columns: Sequence[str] | None = None,
    isolation: Isolation = "read_uncommitted",
    partitions: Collection[int] | None = None,
    batch_rows: int = MAX_ROWS,
    timeout_s: float = 30.0,
    security: Security | Mapping[str, Any] | None = None,
) -> pa.RecordBatchReader:
    """Return a reader of the records of a topic or of segment files from `start` until before `end`.

    Partitions are read one after the other, each in offset order. The end offsets are determined during this call.
    Records are streamed; a batch of rows has at most 16 MiB.

    Args:
        topic_or_directory: A topic if bootstrap_servers is given. Otherwise a log directory, a partition's directory or
            a segment file, for which no broker is needed.
        start, end: An offset, a time, "earliest" or "latest"; or a mapping from partition numbers to these values
            (partitions that are not in the mapping are read whole). A time means the first record at or after that
            time, as for Kafka's consumers. Offsets outside the log are moved to the nearest offset in the log.
        columns: Names of columns in `kafkapy.arrow.SCHEMA`, in the wanted order. None: all columns.
        isolation: read_committed skips records of aborted transactions and stops at the first open transaction.
        partitions: Partition numbers. None: all partitions.
        batch_rows: The largest number of rows in a batch.
        timeout_s: How long to wait for the next records from a broker.
        security: The properties for TLS and login, if `bootstrap_servers` has addresses; as for Cluster.
    Raises:
        ValueError: An argument is invalid.
        KafkaError, ClientError: The topic or a broker fails, also during reading.
        DamagedRows: A Kafka record batch of the topic is corrupt. The message has topic, partition and offset.
        OfflineError, OSError: A file cannot be read, also during reading.
    """
    schema = schema_of(columns)
    committed = isolation_level(isolation) == 1
    if batch_rows < 1:
        raise ValueError(f"batch_rows is {batch_rows}; a batch has at least one row")
    one_start, starts = _by_partition(start, "earliest")
    one_end, ends = _by_partition(end, "latest")
    if bootstrap_servers is None:
        path = Path(topic_or_directory)
        if not path.exists():
            raise ValueError(f"there is no file or directory {str(path)!r}; to read a topic, give bootstrap_servers")
        if starts or ends:
            raise ValueError("for files, start and end must be the same for all partitions; read partitions singly")
        return read_segments(
            [path],
            partitions=partitions,
            bounds=Bounds(one_start, one_end),
            columns=columns,
            committed=committed,
            max_rows=batch_rows,
        )
    topic = os.fspath(topic_or_directory)
    owned = not isinstance(bootstrap_servers, Cluster)
    if isinstance(bootstrap_servers, Cluster):
        cluster = bootstrap_servers
    else:
        cluster = Cluster(bootstrap_servers, security=security)
    try:
        chosen = _chosen(cluster, topic, partitions, [*starts, *ends])
        first = _offsets(cluster, {where: starts.get(where[1], one_start) for where in chosen}, committed)
        behind = _offsets(cluster, {where: ends.get(where[1], one_end) for where in chosen}, committed)
    except BaseException:
        if owned:
            cluster.close()
        raise

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for where in chosen:
                yield from read_partition(
                    cluster,
                    *where,
                    first[where],
                    behind[where],
                    columns=columns,
                    include_headers=True,
                    isolation=isolation,
                    max_rows=batch_rows,
                    timeout_s=timeout_s,
                )
        finally:
            if owned:
                cluster.close()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _by_partition(given: Position | Mapping[int, Position], default: Position) -> tuple[Bound, dict[int, Bound]]:
    """Convert an argument `start` or `end` to a bound for all partitions, and bounds for single partitions.

    If the argument is a mapping, the bound for all other partitions is `default`. Raises ValueError for an invalid
    value.
    """
    if isinstance(given, Mapping):
        return _bound(default), {number: _bound(position) for number, position in given.items()}
    return _bound(given), {}


def _bound(position: Position) -> Bound:
    """Return the Bound (an offset, a time, EARLIEST or LATEST) for a position. Raise ValueError if it is invalid."""
    if isinstance(position, datetime):
        if position.tzinfo is None:
            raise ValueError(f"the time {position} has no time zone; give one, such as tzinfo=timezone.utc")
        milliseconds = -((_EPOCH - position) // timedelta(milliseconds=1))  # rounded up, to exclude earlier records
        return Time(milliseconds) if milliseconds >= 0 else EARLIEST  # negative timestamps have special meanings
    if position == "earliest":
        return EARLIEST
    if position == "latest":
        return LATEST
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise ValueError(f"{position!r} is not an offset, a datetime, 'earliest' or 'latest'")
    return position


def _chosen(
    cluster: Cluster, topic: str, partitions: Collection[int] | None, named: Collection[int]
) -> list[TopicPartition]:
    """Return the topic's partitions to read, in order.

    `partitions` are the numbers to read (None: all), and `named` the numbers in the arguments `start` and `end`. Raises
    KafkaError if one of these partitions does not exist.
    """
    there = cluster.topic(topic, refresh=True).partitions
    for number in [*(partitions or ()), *named]:
        if number not in there:
            raise KafkaError(
                Errors.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {number}: it has {len(there)}, counted from 0",
            )
    return [(topic, number) for number in sorted(there if partitions is None else set(partitions))]


def _offsets(cluster: Cluster, bounds: Mapping[TopicPartition, Bound], committed: bool) -> dict[TopicPartition, int]:
    """Convert each partition's bound (an offset, a time, EARLIEST or LATEST) to an offset.

    Offsets outside a partition's log are moved to the nearest offset in the log. With `committed`, the log ends at the
    last stable offset.
    """
    admin, level = Admin(cluster), int(committed)
    latest = admin.offsets(dict.fromkeys(bounds, LATEST), isolation=level)
    earliest = admin.offsets(dict.fromkeys(bounds, EARLIEST), isolation=level)
    times = {where: bound.milliseconds for where, bound in bounds.items() if isinstance(bound, Time)}
    since = admin.offsets(times, isolation=level) if times else {}
    offsets = {}
    for where, bound in bounds.items():
        low, high = earliest[where].offset, latest[where].offset
        if isinstance(bound, Time):
            bound = since[where].offset if since[where].offset >= 0 else high
        elif bound < 0:
            bound = low if bound == EARLIEST else high
        offsets[where] = min(max(bound, low), high)
    return offsets
