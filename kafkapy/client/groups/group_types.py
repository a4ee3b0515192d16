"""The types that the group consumer takes and returns, apart from records."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkapy.client.cluster import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed offset (that of the next record to read) and the text committed with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """The identity of a group member: group, generation, member id. Sent with a transaction's offsets (KIP-447)."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


# The offsets that the commit methods take, with or without metadata.
Offsets = Mapping[TopicPartition, "int | OffsetAndMetadata"]


class RebalanceListener:
    """Base class for callbacks on a rebalance, called inside `poll` and `close`. Override the methods that you need.

    With cooperative assignors, only the partitions that move are passed.
    """

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Called after each rebalance with the newly assigned partitions, perhaps none. Seek here if you need to."""

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before these partitions are given up. Commit the processed records' offsets here."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when these partitions are already lost and may have new owners, so that committing them fails."""
        self.on_revoked(partitions)


def with_metadata(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets as OffsetAndMetadata. Raise ValueError for a negative offset."""
    found = {}
    for where, one in offsets.items():
        found[where] = OffsetAndMetadata(one) if isinstance(one, int) else one
        if found[where].offset < 0:
            raise ValueError(f"the offset of {where[0]}-{where[1]} is {found[where].offset}; an offset is 0 or more")
    return found
