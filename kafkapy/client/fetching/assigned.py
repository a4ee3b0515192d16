"""The partitions that a consumer has been assigned, with the consumer's position in each.

Source: Kafka's SubscriptionState.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, MutableMapping
from typing import Any

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.group_types import OffsetAndMetadata


class PartitionState:
    """A consumer's state in one partition.

    Attributes:
        position: The offset of the next record to return to the caller. None: not known yet.
        reset_to: How to find the position: EARLIEST, LATEST or a timestamp (ms). None: the committed offset.
        ahead: Records (or batches, see group_batches) that were fetched and not returned yet.
        fetch_from: The offset of the next fetch, which is the one after `ahead`.
        end: The offset after the last record visible to this consumer, from the last response. -1: not known yet.
        not_before: The time (time.monotonic) of the next attempt after a failed one.
    """

    __slots__ = ("ahead", "end", "fetch_from", "not_before", "paused", "position", "reset_to")

    def __init__(self) -> None:
        self.position: int | None = None
        self.reset_to: int | None = None
        self.paused = False
        self.ahead: deque[Any] = deque()
        self.fetch_from = -1
        self.end = -1
        self.not_before = 0.0

    def seek(self, offset: int) -> None:
        """Continue at `offset`. Fetched records are dropped."""
        self.position = self.fetch_from = offset
        self.reset_to = None
        self.ahead.clear()

    def reset(self, to: int) -> None:
        """Forget the position; it is looked up as `to` says (see `reset_to`). Fetched records are dropped."""
        self.position = None
        self.reset_to = to
        self.ahead.clear()

    def hand_out(self, most: int) -> list[Any]:
        """Remove and return up to `most` fetched records, and move the position past them."""
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
    """The states of all assigned partitions, in the order in which `hand_out` serves them."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Remove every partition that is not in `partitions`."""
        self.states = {where: state for where, state in self.states.items() if where in partitions}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions that are not there yet, without a position."""
        for where in partitions:
            self.states.setdefault(where, PartitionState())

    def state(self, where: TopicPartition) -> PartitionState:
        """Return a partition's state. Raise ValueError if the partition is not assigned."""
        if where not in self.states:
            have = ", ".join(f"{topic}-{index}" for topic, index in self.states) or "none"
            raise ValueError(f"partition {where[0]}-{where[1]} is not assigned to this consumer, which has {have}")
        return self.states[where]

    def positions(self) -> dict[TopicPartition, int]:
        """Return the known positions."""
        return {where: state.position for where, state in self.states.items() if state.position is not None}

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the known positions as offsets to commit."""
        return {where: OffsetAndMetadata(position) for where, position in self.positions().items()}

    def without_position(self, moment: float) -> list[TopicPartition]:
        """Return the partitions whose position has to be looked up at the time `moment`."""
        return [where for where, state in self.states.items() if state.position is None and state.not_before <= moment]

    def to_fetch(self, moment: float) -> list[TopicPartition]:
        """Return the partitions to fetch at the time `moment`: not paused, no fetched records left, position known."""
        return [
            where
            for where, state in self.states.items()
            if state.position is not None and not state.paused and not state.ahead and state.not_before <= moment
        ]

    def hand_out(self, most: int) -> list[Any]:
        """Remove and return up to `most` fetched records.

        Partitions take turns: each one that was served moves to the end of the order.
        """
        records: list[Any] = []
        for where, state in list(self.states.items()):
            if state.ahead and not state.paused and len(records) < most:
                records += state.hand_out(most - len(records))
                self.states[where] = self.states.pop(where)
        return records


class Positions(MutableMapping[TopicPartition, int]):
    """The known positions of the assigned partitions. Setting one assigns the partition if it is not yet assigned."""

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
