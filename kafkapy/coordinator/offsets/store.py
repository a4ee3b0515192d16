"""The committed offsets of one shard, and which of them are about to change.

What is in the log is in the table, by `replay` at a load and by `apply` later. Beside it stands what is not in the log
yet, or not decided: a partition is unstable while a commit of it is under way, or is part of an open transaction.
Source: Kafka's GroupMetadata, whose pendingOffsetCommits and pendingTransactionalOffsetCommits these are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkapy._ext.offset_commit import encode_key
from kafkapy._ext.offset_replay import OffsetReplay
from kafkapy._ext.offset_table import OffsetTable
from kafkapy.coordinator.offset_records import CommittedOffset
from kafkapy.record.columns import decompress_records

if TYPE_CHECKING:
    from kafkapy.coordinator.shard import Producer, Record

TopicPartition = tuple[str, int]


class GroupOffset(NamedTuple):
    """One of a group's offsets."""

    topic: str
    partition: int
    committed: CommittedOffset


class OffsetStore:
    """Every method is called under the shard's lock, or while it is loaded."""

    def __init__(self) -> None:
        self.table = OffsetTable()
        # By group: the commits under way.
        self._commits: dict[str, list[Sequence[GroupOffset]]] = {}
        # By group: how many open transactions are about to commit a partition.
        self._staged: dict[str, dict[TopicPartition, int]] = {}
        # By producer: what its open transaction is about to commit.
        self._transactions: dict[int, set[tuple[str, TopicPartition]]] = {}

    def __len__(self) -> int:
        return len(self.table)

    # --- the log

    def replay(self, block: memoryview, others: Callable[[bytes, bytes | None], object]) -> int:
        """Takes the whole batches that `block` begins with; answers the offset behind them, -1 if there is none.

        `others(key, value)` gets the records that are no offsets. Raises DamagedBatch, a ValueError.
        """
        replay = OffsetReplay(self.table, decompress_records, others)
        replay.feed(block)
        return replay.next_offset

    def loaded(self) -> None:
        """What is in an open transaction at the end of the log waits for its marker."""
        for producer_id, group_id, topic, partition in self.table.staged():
            self._stage(producer_id, group_id, (topic, partition))

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        """Records that are in the log now; those of other kinds are left alone."""
        self.table.apply(records, -1 if producer is None else producer.id)

    # --- reading

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        found = self.table.get(group_id, topic, partition)
        return CommittedOffset(*found) if found is not None else None

    def of_group(self, group_id: str) -> list[GroupOffset]:
        """All of them, by topic and partition."""
        found = self.table.of_group(group_id)
        found.sort()
        return [GroupOffset(topic, partition, CommittedOffset(*commit)) for topic, partition, commit in found]

    def groups(self) -> list[str]:
        """The groups that have offsets, or are about to have some."""
        return list({*self.table.groups(), *self._commits, *self._staged})

    def count(self, group_id: str) -> int:
        """How many offsets the group has, with those that it is about to have."""
        count = self.table.count(group_id)
        if self._commits or self._staged:
            count += sum(map(len, self._commits.get(group_id, ()))) + len(self._staged.get(group_id, ()))
        return count

    def unstable(self, group_id: str) -> Collection[TopicPartition]:
        """The group's offsets that may be others soon (UNSTABLE_OFFSET_COMMIT)."""
        staged: Collection[TopicPartition] = self._staged.get(group_id, ())
        commits = self._commits.get(group_id)
        if not commits:
            return staged
        return {*staged, *((one.topic, one.partition) for each in commits for one in each)}

    def tombstones(self, group_id: str) -> list[Record]:
        """What deletes all offsets of the group, also those that are on their way to the log."""
        doomed = dict.fromkeys((topic, partition) for topic, partition, _ in self.table.of_group(group_id))
        for commit in self._commits.get(group_id, ()):
            doomed.update(((one.topic, one.partition), None) for one in commit)
        return [(encode_key(group_id, *one), None) for one in doomed]

    def tombstones_of(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[Record]:
        """What deletes these, where they are committed."""
        get = self.table.get
        return [
            (encode_key(group_id, topic, partition), None)
            for topic, partition in partitions
            if get(group_id, topic, partition) is not None
        ]

    # --- commits under way

    def commit_begins(self, group_id: str, offsets: Sequence[GroupOffset]) -> None:
        self._commits.setdefault(group_id, []).append(offsets)

    def commit_ends(self, group_id: str, offsets: Sequence[GroupOffset]) -> None:
        """It is in the log and applied, or has failed."""
        commits = self._commits[group_id]
        commits.remove(offsets)
        if not commits:
            del self._commits[group_id]

    # --- transactions

    def staging_begins(
        self, producer_id: int, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """A commit in the producer's transaction; answers those that were not part of it before."""
        return [partition for partition in partitions if self._stage(producer_id, group_id, partition)]

    def staging_failed(self, producer_id: int, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """The append of these, which were new, has failed."""
        staged = self._transactions.get(producer_id)
        if staged is None:  # its marker came meanwhile
            return
        for partition in partitions:
            if (group_id, partition) in staged:
                staged.discard((group_id, partition))
                self._unmark(group_id, partition)
        if not staged:
            del self._transactions[producer_id]

    def transaction_ended(self, producer_id: int, committed: bool) -> None:
        """Its marker is in this shard's log: the offsets in it count now, or never will."""
        for group_id, partition in self._transactions.pop(producer_id, ()):
            self._unmark(group_id, partition)
        self.table.end_transaction(producer_id, committed)

    def forget_staged(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """These are deleted: a transaction that is open will not bring them back."""
        staged_here = self._staged.get(group_id)
        if staged_here is None:
            return
        doomed = {(group_id, partition) for partition in partitions if partition in staged_here}
        if not doomed:
            return
        for _, partition in doomed:
            self.table.unstage(group_id, *partition)
        for producer_id, staged in list(self._transactions.items()):
            self.staging_failed(producer_id, group_id, [partition for _, partition in staged & doomed])

    def _stage(self, producer_id: int, group_id: str, partition: TopicPartition) -> bool:
        staged = self._transactions.setdefault(producer_id, set())
        if (group_id, partition) in staged:
            return False
        staged.add((group_id, partition))
        self._mark(group_id, partition)
        return True

    def _mark(self, group_id: str, partition: TopicPartition) -> None:
        staged = self._staged.setdefault(group_id, {})
        staged[partition] = staged.get(partition, 0) + 1

    def _unmark(self, group_id: str, partition: TopicPartition) -> None:
        staged = self._staged[group_id]
        if staged[partition] > 1:
            staged[partition] -= 1
            return
        del staged[partition]
        if not staged:
            del self._staged[group_id]
