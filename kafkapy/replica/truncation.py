"""Pure functions that compute where a follower truncates its log when it differs from the leader's log.

Source: AbstractFetcherThread.getOffsetTruncationState, Partition.readRecords; KIP-101, KIP-279 and KIP-595.
"""

from __future__ import annotations

from typing import NamedTuple

UNDEFINED = -1


class EpochEnd(NamedTuple):
    """The end offset of a leader epoch in a log: the start of the next epoch, or the log end offset."""

    epoch: int
    end_offset: int


def first_fetch_offset(latest_epoch: int, log_end: int, high_watermark: int) -> int:
    """Return the offset at which a follower begins to fetch from a new leader: its log end offset, or its high
    watermark.

    From the log end offset on, the leader's response says if the logs diverge. Only a log without leader epochs cannot
    be compared with the leader's log, so it is truncated to the high watermark first. Truncating every log to that
    would lose committed records (KAFKA-1211).
    """
    return log_end if latest_epoch != UNDEFINED else high_watermark


def divergence(leader: EpochEnd, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
    """Return the leader's epoch end if the follower's log diverges from the leader's log, else None.

    `leader` is the end of the largest epoch up to `last_fetched_epoch` in the leader's log. The logs diverge if the
    leader does not have that epoch, or if the epoch ends there before the follower's fetch offset.
    """
    if leader.epoch < last_fetched_epoch or leader.end_offset < fetch_offset:
        return leader
    return None


def truncation(leader: EpochEnd, own: EpochEnd, log_end: int) -> tuple[int, bool]:
    """Return (offset to truncate the follower's log to, whether the logs agree then) after a response with a diverging
    epoch.

    `own` is the end of the largest epoch up to `leader.epoch` in the follower's log, (-1, -1) if there is none. If this
    log does not have the leader's epoch, the records of its own smaller epoch may differ as well. So the follower
    truncates to the end of that epoch and fetches again, with that epoch; this may repeat (KIP-279).
    """
    if own.epoch == UNDEFINED:
        return min(leader.end_offset, log_end), True
    if own.epoch != leader.epoch:
        return min(own.end_offset, log_end), False
    return min(own.end_offset, leader.end_offset, log_end), True
