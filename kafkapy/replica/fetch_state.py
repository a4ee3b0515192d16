"""What a fetcher knows of one partition that this broker follows: its position, and whether it may be fetched now.

Source: kafka.server.PartitionFetchState.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.replica.followed_partition import FollowedPartition

if TYPE_CHECKING:
    from kafkapy.replica.fetcher import Fetcher

UNKNOWN_LAG = -1


class Position(NamedTuple):
    """What a Fetch request says of a partition, see KIP-320 and KIP-595 for the epochs.

    leader_epoch    the epoch in which this broker follows the partition
    offset          the log end offset: the follower has all records below
    last_epoch      the leader epoch of the last record, -1 if the log has no epochs
    log_start       the log start offset
    """

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int


class FetchState:
    """One followed partition, in one leader epoch, while it is fetched. Each role of the partition gets a new object.

    partition   the followed partition
    topic_id    its topic id when this object was made
    fetcher     the Fetcher that fetches the partition; another one after a change of num.replica.fetchers
    held        True while the partition is not fetched: after an error until the back-off is over, and while its log is
                truncated outside the fetch loop
    ahead       the position that a request names before it is reached, see `fetch_ahead`; None if it is not ahead
    lag         the leader's high watermark minus the log end offset, at the last response; UNKNOWN_LAG before that
    early_refusals  how often the fetcher has tried again soon, because the leader may not have its role yet
    problem     the problem that was logged last, so that an error that repeats is logged once
    """

    __slots__ = ("ahead", "early_refusals", "fetcher", "held", "lag", "partition", "problem", "topic_id")

    def __init__(self, partition: FollowedPartition) -> None:
        self.partition = partition
        self.topic_id = partition.topic_id
        self.fetcher: Fetcher | None = None
        self.held = False
        self.ahead: Position | None = None
        self.lag = UNKNOWN_LAG
        self.early_refusals = 0
        self.problem = ""

    def __repr__(self) -> str:
        return f"FetchState({self.partition.topic}-{self.partition.index}, leader epoch {self.partition.leader_epoch})"

    @property
    def position(self) -> Position:
        """The present position of the partition's log."""
        log = self.partition.log
        return Position(self.partition.leader_epoch, log.end[0], log.leader_epochs.latest_epoch, log.log_start_offset)


def release(states: Iterable[FetchState]) -> None:
    """Fetch partitions again that were held. Each may have another fetcher by now, or none any more."""
    by_fetcher: dict[Fetcher, list[FetchState]] = {}
    for state in states:
        # In this order: a fetcher that takes the state over at this moment sets `fetcher` before it reads `held`, so
        # either that fetcher sees that the state is not held, or this thread sees the fetcher.
        state.held = False
        fetcher = state.fetcher
        if fetcher is not None:
            by_fetcher.setdefault(fetcher, []).append(state)
    for fetcher, its_states in by_fetcher.items():
        fetcher.released(its_states)
