"""The types that the group consumer takes and returns, apart from records."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkapy.client.cluster import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed offset, which is that of the next record to read, with the text that was committed together with it.

    `leader_epoch` is -1 if it is not known.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """The identity of a group member. It is sent with the offsets of a transaction (KIP-447).

    `generation` is -1 and `member_id` is empty if the consumer is not a member. `instance_id` is set for a static
    member.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


# The offsets that the commit methods take, with or without metadata.
Offsets = Mapping[TopicPartition, "int | OffsetAndMetadata"]


class RebalanceListener:
    """Base class for rebalance listeners.

    Override the methods that you need; `poll`, `unsubscribe` and `close` call them. With cooperative assignors, the
    methods get only the partitions that this member gains or loses.
    """

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Handle newly assigned partitions, of which there may be none. Called after each rebalance.

        You may `seek` here.
        """

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Handle the revocation of these partitions. Called while this consumer still owns them.

        This is the place to commit the offsets of the records that were processed.
        """

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Handle the loss of these partitions.

        Called when other members may own them already, so that a commit would fail. Calls `on_revoked` unless it is
        overridden.
        """
        self.on_revoked(partitions)


def with_metadata(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets as OffsetAndMetadata, with empty metadata for plain ints.

    Raise ValueError for a negative offset.
    """
    found = {}
    for where, one in offsets.items():
        found[where] = OffsetAndMetadata(one) if isinstance(one, int) else one
        if found[where].offset < 0:
            raise ValueError(f"the offset of {where[0]}-{where[1]} is {found[where].offset}; an offset is 0 or more")
    return found
