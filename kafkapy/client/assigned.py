"""The partitions that a consumer has been assigned, and how far it is in each.

Source: Kafka's SubscriptionState.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.group_types import OffsetAndMetadata


class PartitionState:
    """One partition.

    Attributes:
        position: the offset of the next record that the caller gets; None: to be found.
        reset_to: where to find it, EARLIEST, LATEST or a timestamp (ms); None: the committed offset.
        ahead: records (or batches, see group_batches) that were fetched and not handed out.
        fetch_from: the offset behind them.
        end: the offset behind the last record that this consumer may see, as last heard; -1: not heard yet.
        not_before: the moment (time.monotonic) of the next try after a failed one.
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
        self.position = self.fetch_from = offset
        self.reset_to = None
        self.ahead.clear()

    def reset(self, to: int) -> None:
        self.position = None
        self.reset_to = to
        self.ahead.clear()

    def hand_out(self, most: int) -> list[Any]:
        """The next records, and the position moves behind them."""
        records = [self.ahead.popleft() for _ in range(min(most, len(self.ahead)))]
        if records:
            # Behind the last one there may be nothing but control records and aborted ones: they are done too.
            self.position = records[-1].offset + 1 if self.ahead else self.fetch_from
        return records


class AssignedPartitions:
    """All of them, in the order in which they came."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Lets go of all others."""
        self.states = {where: state for where, state in self.states.items() if where in partitions}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """New ones, without positions yet."""
        for where in partitions:
            self.states.setdefault(where, PartitionState())

    def state(self, where: TopicPartition) -> PartitionState:
        """Raises ValueError for a partition that is not assigned."""
        if where not in self.states:
            have = ", ".join(f"{topic}-{index}" for topic, index in self.states) or "none"
            raise ValueError(f"partition {where[0]}-{where[1]} is not assigned to this consumer, which has {have}")
        return self.states[where]

    def positions(self) -> dict[TopicPartition, int]:
        """Those that are known."""
        return {where: state.position for where, state in self.states.items() if state.position is not None}

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The same, to be committed."""
        return {where: OffsetAndMetadata(position) for where, position in self.positions().items()}

    def without_position(self, moment: float) -> list[TopicPartition]:
        """Those whose position is to be found now."""
        return [where for where, state in self.states.items() if state.position is None and state.not_before <= moment]

    def to_fetch(self, moment: float) -> list[TopicPartition]:
        """Those to ask for records now."""
        return [
            where
            for where, state in self.states.items()
            if state.position is not None and not state.paused and not state.ahead and state.not_before <= moment
        ]

    def hand_out(self, most: int) -> list[Any]:
        """Up to `most` records that were fetched, partition by partition; another partition comes first each time."""
        records: list[Any] = []
        for where, state in list(self.states.items()):
            if state.ahead and not state.paused and len(records) < most:
                records += state.hand_out(most - len(records))
                self.states[where] = self.states.pop(where)
        return records
