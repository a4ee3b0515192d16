"""What a consumer of a group gives and gets beside records."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkapy.client.cluster import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed offset, which is the one of the next record to read, and a text that was stored with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Which member of which generation somebody is; a transaction's offsets are sent with it (KIP-447)."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


# What the committing methods take: plain offsets will do.
Offsets = Mapping[TopicPartition, "int | OffsetAndMetadata"]


class RebalanceListener:
    """Is told of partitions that come and go, inside of `poll` and `close`; overwrite what is needed.

    With cooperative assignors only partitions that really move are named.
    """

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are read from now on; the place to seek. Called after each rebalance, also when nothing has come."""

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These go to somebody else, after this: the place to commit what was done."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These were taken away already, and somebody else may read them: committing fails."""
        self.on_revoked(partitions)


def with_metadata(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets in the long form; raises ValueError for one below 0."""
    found = {}
    for where, one in offsets.items():
        found[where] = OffsetAndMetadata(one) if isinstance(one, int) else one
        if found[where].offset < 0:
            raise ValueError(f"the offset of {where[0]}-{where[1]} is {found[where].offset}; an offset is 0 or more")
    return found
