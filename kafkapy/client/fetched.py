"""Isolation levels, and the decoding of the records in Fetch responses, shared by all consumers.

Source: Kafka's CompletedFetch.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.records import decode_records_of
from kafkapy.client.cluster import TopicPartition
from kafkapy.record.batch import payload_of, records_of
from kafkapy.record.control import ABORT, control_record_of
from kafkapy.record.legacy import iter_entries

Isolation = Literal["read_uncommitted", "read_committed"]

ISOLATION_LEVELS: dict[Isolation, int] = {"read_uncommitted": 0, "read_committed": 1}  # as in requests


class ConsumerRecord(NamedTuple):
    """A fetched record with its topic, partition and offset.

    `timestamp` is in ms since 1970. `headers` are (name, value) pairs in their original order.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def isolation_level(isolation: Isolation) -> int:
    """Return the number that stands for an isolation level in requests: 0 for read_uncommitted, 1 for read_committed.

    Raise ValueError for an unknown isolation level.
    """
    if isolation not in ISOLATION_LEVELS:
        raise ValueError(f"isolation is {isolation!r}; it can be {' or '.join(ISOLATION_LEVELS)}")
    return ISOLATION_LEVELS[isolation]


def read_records(
    where: TopicPartition, data: memoryview, position: int, aborted: Iterable[tuple[int, int]] = ()
) -> tuple[list[ConsumerRecord], int]:
    """Decode the batches in `data`. Return the records with offsets from `position` on, and the next offset to fetch.

    The batches or message sets may have any format. An incomplete batch at the end, which a Fetch response may have, is
    skipped, and so are control records.

    Args:
        aborted: The aborted transactions of the Fetch response, as (producer id, first offset). Records of such a
            transaction are skipped, from its first offset up to its abort marker.
    """
    found: list[ConsumerRecord] = []
    coming = sorted(aborted, key=lambda one: one[1], reverse=True)
    aborting: set[int] = set()
    start = position
    for header in iter_entries(data):
        while coming and coming[-1][1] <= header.last_offset:
            aborting.add(coming.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and _is_abort(data, header):
                aborting.discard(header.producer_id)
        elif header.last_offset >= start and not (header.is_transactional and header.producer_id in aborting):
            found += _records_of(where, data, header, start)
        position = max(position, header.last_offset + 1)
    return found, position


def _records_of(
    where: TopicPartition, data: memoryview, header: BatchHeader | MessageHeader, start: int
) -> list[ConsumerRecord]:
    """Return the records of one batch or legacy message whose offsets are `start` or higher."""
    if isinstance(header, BatchHeader):
        payload = payload_of(data, header) if header.count else b""
        return decode_records_of(payload, header, ConsumerRecord, *where, start)
    new, (topic, partition) = tuple.__new__, where
    return [
        new(ConsumerRecord, (topic, partition, offset, timestamp, key, value, headers))
        for offset, timestamp, key, value, headers, _ in records_of(data, header)
        if offset >= start
    ]


def _is_abort(data: memoryview, header: Any) -> bool:
    """Return True if the control batch that `header` describes is an abort marker."""
    marker = control_record_of(data, header)
    return marker is not None and marker.type == ABORT
