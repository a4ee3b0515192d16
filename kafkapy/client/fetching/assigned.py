"""The partitions that a consumer has been assigned, with the consumer's position in each.

Source: Kafka's SubscriptionState.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, MutableMapping
from typing import Any

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.group_types import OffsetAndMetadata


class PartitionState:
    """A consumer's state in one assigned partition.

    Attributes:
        position: The offset of the next record to return to the caller. None while it is not known.
        reset_to: Where to begin while `position` is None: EARLIEST, LATEST or a timestamp (ms). None: at the committed
            offset.
        paused: True if no records of the partition are to be fetched or returned at the moment.
        ahead: Records (or batches, see group_batches) that were fetched but not yet returned to the caller.
        fetch_from: The offset of the next fetch, which is the offset after the records in `ahead`.
        end: The offset after the last record visible to this consumer, from the last Fetch response. -1 while not
            known.
        not_before: The time (time.monotonic) from which a failed fetch or offset look-up may be retried.
        replica: The broker id of the follower to fetch from, because the leader has named it (KIP-392). -1: the leader.
        replica_until: The time (time.monotonic) from which the leader is asked again.
    """

    __slots__ = (
        "ahead",
        "end",
        "fetch_from",
        "not_before",
        "paused",
        "position",
        "replica",
        "replica_until",
        "reset_to",
    )

    def __init__(self) -> None:
        self.position: int | None = None
        self.reset_to: int | None = None
        self.paused = False
        self.ahead: deque[Any] = deque()
        self.fetch_from = -1
        self.end = -1
        self.not_before = 0.0
        self.replica = -1
        self.replica_until = 0.0

    def seek(self, offset: int) -> None:
        """Set the position to `offset`, and drop the records that were fetched ahead."""
        self.position = self.fetch_from = offset
        self.reset_to = None
        self.ahead.clear()

    def reset(self, to: int) -> None:
        """Forget the position and drop the records that were fetched ahead.

        The position has to be looked up again: `to` is EARLIEST, LATEST or a timestamp (see `reset_to`).
        """
        self.position = None
        self.reset_to = to
        self.ahead.clear()

    def hand_out(self, most: int) -> list[Any]:
        """Remove and return up to `most` of the records that were fetched ahead, and move the position past them."""
        if most >= len(self.ahead):
            records = list(self.ahead)
            self.ahead.clear()
        else:
            records = [self.ahead.popleft() for _ in range(most)]
        if records:
            # After the last record the fetch may have had only control and aborted records: move past those, too.
            self.position = records[-1].offset + 1 if self.ahead else self.fetch_from
        return records


class AssignedPartitions:
    """A consumer's assigned partitions with their states, in the order in which `hand_out` serves them."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Remove every assigned partition that is not in `partitions`."""
        self.states = {where: state for where, state in self.states.items() if where in partitions}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions that are not assigned yet. Their positions are not known at first."""
        for where in partitions:
            self.states.setdefault(where, PartitionState())

    def state(self, where: TopicPartition) -> PartitionState:
        """Return the PartitionState of an assigned partition. Raise ValueError if the partition is not assigned."""
        if where not in self.states:
            have = ", ".join(f"{topic}-{index}" for topic, index in self.states) or "none"
            raise ValueError(f"partition {where[0]}-{where[1]} is not assigned to this consumer, which has {have}")
        return self.states[where]

    def positions(self) -> dict[TopicPartition, int]:
        """Return the position of each assigned partition whose position is known."""
        return {where: state.position for where, state in self.states.items() if state.position is not None}

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the known positions in the form of offsets to commit."""
        return {where: OffsetAndMetadata(position) for where, position in self.positions().items()}

    def without_position(self, moment: float) -> list[TopicPartition]:
        """Return the partitions whose unknown position may be looked up at the time `moment` (time.monotonic)."""
        return [where for where, state in self.states.items() if state.position is None and state.not_before <= moment]

    def to_fetch(self, moment: float) -> list[TopicPartition]:
        """Return the partitions that should be fetched at the time `moment` (time.monotonic).

        These are the partitions that are not paused, have a known position and no records fetched ahead, and do not
        wait for a retry.
        """
        return [
            where
            for where, state in self.states.items()
            if state.position is not None and not state.paused and not state.ahead and state.not_before <= moment
        ]

    def hand_out(self, most: int) -> list[Any]:
        """Remove and return up to `most` of the records that were fetched ahead.

        Paused partitions are left out. Partitions take turns: each partition that was served moves to the end of the
        order.
        """
        records: list[Any] = []
        for where, state in list(self.states.items()):
            if state.ahead and not state.paused and len(records) < most:
                records += state.hand_out(most - len(records))
                self.states[where] = self.states.pop(where)
        return records


class Positions(MutableMapping[TopicPartition, int]):
    """A mapping from each assigned partition to its position, if the position is known.

    Setting a position assigns the partition if it is not assigned yet. Deleting a position removes the partition from
    the assigned ones.
    """

    def __init__(self, assigned: AssignedPartitions) -> None:
        self._assigned = assigned

    def __getitem__(self, where: TopicPartition) -> int:
        state = self._assigned.states.get(where)
        if state is None or state.position is None:
            raise KeyError(where)
        return state.position

    def __setitem__(self, where: TopicPartition, offset: int) -> None:
        self._assigned.add([where])
        self._assigned.states[where].seek(offset)

    def __delitem__(self, where: TopicPartition) -> None:
        del self._assigned.states[where]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._assigned.positions())

    def __len__(self) -> int:
        return len(self._assigned.positions())

    def __repr__(self) -> str:
        return repr(dict(self))
