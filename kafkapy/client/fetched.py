"""Isolation levels and the decoding of fetched record sets, shared by all consumers.

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
    """A record with its topic, partition and offset.

    `timestamp` is in ms since 1970; `headers` are (name, value) pairs in their original order.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def isolation_level(isolation: Isolation) -> int:
    """Return the isolation level's number in requests. Raise ValueError for an unknown isolation level."""
    if isolation not in ISOLATION_LEVELS:
        raise ValueError(f"isolation is {isolation!r}; it can be {' or '.join(ISOLATION_LEVELS)}")
    return ISOLATION_LEVELS[isolation]


def read_records(
    where: TopicPartition, data: memoryview, position: int, aborted: Iterable[tuple[int, int]] = ()
) -> tuple[list[ConsumerRecord], int]:
    """Return the records with offsets from `position` on, and the offset after everything that was read.

    Reads batches and message sets of every format. Skips an incomplete batch at the end, which a fetch response may
    have, and control records.

    Args:
        aborted: (producer id, first offset) of the response's aborted transactions. Records of a producer from its
            first offset up to its abort marker are skipped.
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
    """Return the records of one batch or legacy message with offsets from `start` on."""
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
    """Return True if the control batch is an abort marker."""
    marker = control_record_of(data, header)
    return marker is not None and marker.type == ABORT
