"""What the log's operations answer."""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.record.file_region import FileRegion

# Where an append comes from (Kafka's AppendOrigin). A client may not write control records, and its batches are
# checked against their producer's sequence; a coordinator is believed in both.
CLIENT = 0
COORDINATOR = 1


class AppendResult(NamedTuple):
    """One record set that is in the log.

    `log_append_time` is -1 unless the topic stamps with the time of the append. A `duplicate` was in the log
    before: the offsets and the time (its largest timestamp) are those of the first time.
    """

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class Busy:
    """See BUSY."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "BUSY"


# The answer of a call that may not block and would have to; nothing has happened.
BUSY = Busy()


class ReadResult(NamedTuple):
    """What a read found: `region` is None if there is nothing to give.

    `segment_base` and `position` say where the read began, -1 where that was not looked up.
    `first_entry_incomplete`: there is a batch, but it is larger than the caller allows.
    """

    region: FileRegion | None
    offset: int
    segment_base: int = -1
    position: int = -1
    first_entry_incomplete: bool = False


class TimestampOffset(NamedTuple):
    """A record found by its time; `leader_epoch` is -1 if its batch has none."""

    timestamp: int
    offset: int
    leader_epoch: int


class ActiveProducer(NamedTuple):
    """As DescribeProducers tells it; -1 stands for none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
