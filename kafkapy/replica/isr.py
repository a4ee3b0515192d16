"""Pure functions that compute which replicas are in sync with a partition's leader.

A leader knows a follower by its Fetch requests: the follower has all records below the fetch offset. The committed ISR
is the one that the controller has written; while an AlterPartition request is pending, the proposed ISR counts too
(KIP-497). Times are monotonic seconds, so that a change of the wall clock moves no replica in or out of the ISR.

Source: kafka.cluster.Partition and kafka.cluster.Replica; KIP-497, KAFKA-15583, KAFKA-9672.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

UNKNOWN = -1  # an offset that is not known yet


class Follower(NamedTuple):
    """The offsets and times of one follower, as its leader knows them from Fetch requests.

    end_offset      the offset of the follower's last Fetch request: the follower has all records below
    start_offset    the follower's log start offset, from its last Fetch request
    fetched_at      the time of the follower's last Fetch request
    leader_end      the leader's log end offset at that time
    caught_up_at    the last time at which the follower was known to have all records of the leader
    """

    end_offset: int = UNKNOWN
    start_offset: int = UNKNOWN
    fetched_at: float = float("-inf")
    leader_end: int = 0
    caught_up_at: float = float("-inf")


class IsrState(NamedTuple):
    """The ISR of a partition as its leader sees it: replaced as a whole, never changed in place.

    isr             the committed ISR (broker ids)
    partition_epoch the version of the state node in the metadata tree that has the committed ISR
    proposed        the ISR in a pending AlterPartition request, None if no request is pending
    """

    isr: tuple[int, ...]
    partition_epoch: int
    proposed: tuple[int, ...] | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        """The broker ids in the committed or the proposed ISR: the high watermark waits for each of them."""
        if self.proposed is None:
            return self.isr
        return (*self.isr, *(one for one in self.proposed if one not in self.isr))


def after_fetch(follower: Follower, fetch_offset: int, start_offset: int, now: float, leader_end: int) -> Follower:
    """Return the new Follower after a Fetch request. `leader_end` is the leader's log end offset when the request came.

    A follower whose fetch offset is the leader's log end offset is caught up now. A follower that has reached the log
    end offset of the time of its previous fetch was caught up then: under constant writes a follower is always a little
    behind.
    """
    caught_up_at = follower.caught_up_at
    if fetch_offset >= leader_end:
        caught_up_at = max(caught_up_at, now)
    elif fetch_offset >= follower.leader_end:
        caught_up_at = max(caught_up_at, follower.fetched_at)
    return Follower(fetch_offset, start_offset, now, max(leader_end, follower.leader_end), caught_up_at)


def at_election(follower: Follower | None, now: float, leader_end: int, in_sync: bool) -> Follower:
    """Return the Follower at the start of a leader epoch. `in_sync`: the follower is a member of the ISR.

    `follower` is None if this broker was not the leader before: then nothing is known of the follower. A member of the
    ISR has `replica.lag.time.max.ms` from now on to fetch; any other follower does not count before it has fetched.
    """
    caught_up_at = now if in_sync else float("-inf")
    if follower is None:
        return Follower(leader_end=UNKNOWN, caught_up_at=caught_up_at)
    return follower._replace(fetched_at=caught_up_at, leader_end=leader_end, caught_up_at=caught_up_at)


def is_caught_up(follower: Follower, leader_end: int, now: float, max_lag_s: float) -> bool:
    """Return True if the follower has all records of the leader now, or had all of them within the last `max_lag_s`
    seconds.
    """
    return follower.end_offset == leader_end or now - follower.caught_up_at <= max_lag_s


def may_join(state: IsrState, broker_id: int, follower: Follower, high_watermark: int, epoch_start: int) -> bool:
    """Return True if the leader may propose to add this follower to the ISR.

    The follower must have all committed records and all records before this leader's epoch (`epoch_start`). Without the
    second condition, a new leader whose high watermark is old could take in a follower that lacks records which were
    committed under the previous leader. The caller also checks that the broker is alive.
    """
    if state.proposed is not None or broker_id in state.isr:
        return False
    return follower.end_offset >= high_watermark and follower.end_offset >= epoch_start


def out_of_sync(
    state: IsrState, leader: int, followers: Mapping[int, Follower], leader_end: int, now: float, max_lag_s: float
) -> tuple[int, ...]:
    """Return the ids of the ISR members that are not caught up; an empty tuple while a change of the ISR is pending.

    A member that is no replica any more (after a reassignment) is out of sync.
    """
    if state.proposed is not None:
        return ()
    behind = []
    for broker_id in state.isr:
        follower = followers.get(broker_id)
        if broker_id != leader and (follower is None or not is_caught_up(follower, leader_end, now, max_lag_s)):
            behind.append(broker_id)
    return tuple(behind)


def new_high_watermark(
    state: IsrState,
    current: int,
    leader_end: int,
    followers: Mapping[int, Follower],
    min_isr: int,
    now: float,
    max_lag_s: float,
    is_eligible: Callable[[int], bool] = lambda broker_id: True,
) -> int:
    """Return the new high watermark: the smallest log end offset of the replicas that count, but never lower than
    `current`.

    The replicas that count are the leader, the maximal ISR, and caught-up followers that can join the ISR, for which
    `is_eligible(broker_id)` is True: such a follower is about to join, and could not if the high watermark passed it.
    With a committed ISR smaller than `min_isr` the high watermark does not advance. `leader_end` is the end of the
    flushed part if acknowledgements wait for a flush.
    """
    if len(state.isr) < min_isr:
        return current
    lowest = leader_end
    maximal = state.maximal
    for broker_id, follower in followers.items():
        if follower.end_offset < lowest and (
            broker_id in maximal or (is_caught_up(follower, leader_end, now, max_lag_s) and is_eligible(broker_id))
        ):
            lowest = follower.end_offset
    return max(current, lowest)


def low_watermark(start_offset: int, followers: Iterable[Follower]) -> int:
    """Return the smallest log start offset of the leader and these followers. DeleteRecords waits for this low
    watermark.
    """
    return min((start_offset, *(one.start_offset for one in followers)))
