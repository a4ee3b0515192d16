"""The result types of the log's operations."""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.record.file_region import FileRegion


class AppendResult(NamedTuple):
    """The successful result of appending a record set.

    `log_append_time` is -1 unless the topic uses LogAppendTime. `duplicate` means that the record set was already in
    the log; the offsets and the time (the largest timestamp of the set) are then those of the first append.
    """

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class Busy:
    """The type of BUSY, which a non-blocking call returns if it would have to wait for a disk or a lock."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "BUSY"


# Returned by a call that must not block but would have to. Nothing was changed.
BUSY = Busy()


class ReadResult(NamedTuple):
    """The result of a read at `offset`. `region` is None if no records can be returned.

    `segment_base` is the base offset of the segment that was read, and `position` is the byte position where the read
    began; both are -1 if they were not looked up. `first_entry_incomplete`: there is a batch at `offset`, but it is
    larger than the number of bytes that the caller allows.
    """

    region: FileRegion | None
    offset: int
    segment_base: int = -1
    position: int = -1
    first_entry_incomplete: bool = False


class TimestampOffset(NamedTuple):
    """The timestamp and offset of a record found by its timestamp; `leader_epoch` is -1 if its batch has none."""

    timestamp: int
    offset: int
    leader_epoch: int


class ActiveProducer(NamedTuple):
    """The state of a producer as in a DescribeProducers response; -1 in a field means that there is no value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
