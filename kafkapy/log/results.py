"""The results of the log's operations."""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.record.file_region import FileRegion


class AppendResult(NamedTuple):
    """The successful result of appending a record set.

    `log_append_time` is -1 unless the topic uses LogAppendTime. For a `duplicate`, which was already in the log, the
    offsets and the time (its largest timestamp) are those of the first append.
    """

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class Busy:
    """The type of BUSY."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "BUSY"


# Returned by a call that must not block but would have to. Nothing was changed.
BUSY = Busy()


class ReadResult(NamedTuple):
    """The result of a read. `region` is None if there is nothing to read.

    `segment_base` and `position` are where the read began, -1 if not looked up. `first_entry_incomplete`: there is a
    batch, but it is larger than the caller allows.
    """

    region: FileRegion | None
    offset: int
    segment_base: int = -1
    position: int = -1
    first_entry_incomplete: bool = False


class TimestampOffset(NamedTuple):
    """A record found by its timestamp; `leader_epoch` is -1 if its batch has none."""

    timestamp: int
    offset: int
    leader_epoch: int


class ActiveProducer(NamedTuple):
    """A producer as in a DescribeProducers response; -1 means none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
