"""Where a follower cuts off its log when it differs from the leader's. Pure functions.

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
    """Return where a follower begins to fetch from a new leader.

    At its log end: the response says if the logs diverge. Only a log without leader epochs cannot be compared, so it is
    cut to the high watermark first. Cutting every log there would lose committed records (KAFKA-1211).
    """
    return log_end if latest_epoch != UNDEFINED else high_watermark


def divergence(leader: EpochEnd, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
    """Return the leader's epoch end if the follower's log diverges from the leader's, else None.

    `leader` is the end of the largest epoch up to `last_fetched_epoch` in the leader's log. The logs diverge if the
    leader does not have that epoch, or if it ends there before the follower's fetch offset.
    """
    if leader.epoch < last_fetched_epoch or leader.end_offset < fetch_offset:
        return leader
    return None


def truncation(leader: EpochEnd, own: EpochEnd, log_end: int) -> tuple[int, bool]:
    """Return (the offset to truncate to, whether the logs agree then) after a response that names a diverging epoch.

    `own` is the end of the largest epoch up to `leader.epoch` in this log, (-1, -1) if there is none. If this log does
    not know the leader's epoch, records of its own smaller epoch may differ as well. So it cuts to the end of that
    epoch and fetches again, with that epoch; this may repeat (KIP-279).
    """
    if own.epoch == UNDEFINED:
        return min(leader.end_offset, log_end), True
    if own.epoch != leader.epoch:
        return min(own.end_offset, log_end), False
    return min(own.end_offset, leader.end_offset, log_end), True
