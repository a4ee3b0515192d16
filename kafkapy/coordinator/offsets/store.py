"""The committed offsets in one partition of `__consumer_offsets`, and the commits in progress.

The table has the offsets that are in the log: `replay` fills the table at a load, and `apply` updates it after each
append. In addition, the store knows which offsets are unstable: those of commits that are being appended, and those
committed in open transactions ("staged"). Source: Kafka's GroupMetadata (pendingOffsetCommits and
pendingTransactionalOffsetCommits).
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

# The offsets of a commit request: topic, and for each partition (partition, offset, leader epoch, metadata, commit
# timestamp). The timestamp is in milliseconds, NO_TIMESTAMP for the time at which the request came.
NewOffsets = list[tuple[str, list[tuple[int, int, int, str, int]]]]


class GroupOffset(NamedTuple):
    """A committed offset of a group: topic, partition and the offset with its metadata."""

    topic: str
    partition: int
    committed: CommittedOffset


class PendingCommit:
    """A commit whose records are being appended. `producer_id` is the producer whose transaction the commit is part of,
    or None."""

    __slots__ = ("deleted", "group_id", "offsets", "producer_id")

    def __init__(self, group_id: str, offsets: NewOffsets, producer_id: int | None = None) -> None:
        self.group_id = group_id
        self.offsets = offsets
        self.producer_id = producer_id
        # The partitions whose offsets were deleted while this commit, part of a transaction, was being appended.
        self.deleted: set[TopicPartition] = set()

    def partitions(self) -> Iterable[TopicPartition]:
        return ((topic, one[0]) for topic, offsets in self.offsets for one in offsets)


class OffsetStore:
    """The committed offsets of all groups in one partition of `__consumer_offsets`. The methods are called under the
    lock of the partition's shard, or by the load of the partition."""

    def __init__(self) -> None:
        self.table = OffsetTable()
        # By group id: the commits that are being appended.
        self._commits: dict[str, list[PendingCommit]] = {}
        # By group id and partition: the number of open transactions in which an offset is staged.
        self._staged: dict[str, dict[TopicPartition, int]] = {}
        # By producer id: the groups and partitions whose offsets are staged in the producer's open transaction.
        self._transactions: dict[int, set[tuple[str, TopicPartition]]] = {}

    def __len__(self) -> int:
        return len(self.table)

    # --- the log

    def replay(self, block: memoryview, others: Callable[[bytes, bytes | None], object]) -> int:
        """Load the complete batches at the start of `block`, a part of the log. Return the offset after the last of
        them, or -1 if the block has no complete batch.

        Records that are not offset commits are passed to `others(key, value)`. Raises DamagedBatch, a ValueError.
        """
        replay = OffsetReplay(self.table, decompress_records, others)
        replay.feed(block)
        return replay.next_offset

    def loaded(self) -> None:
        """Mark the offsets as unstable that were committed in transactions still open at the end of the log. Called
        once, when the log has been loaded."""
        for producer_id, group_id, topic, partition in self.table.staged():
            self._stage(producer_id, group_id, (topic, partition))

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        """Apply appended records to the table of offsets. Records other than offset commits are ignored. `producer` is
        the producer of the records' transaction, or None."""
        self.table.apply(records, -1 if producer is None else producer.id)

    # --- reading

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        found = self.table.get(group_id, topic, partition)
        return CommittedOffset(*found) if found is not None else None

    def of_group(self, group_id: str) -> list[GroupOffset]:
        """Return all committed offsets of a group, sorted by topic and partition."""
        found = self.table.of_group(group_id)
        found.sort()
        return [GroupOffset(topic, partition, CommittedOffset(*commit)) for topic, partition, commit in found]

    def groups(self) -> list[str]:
        """Return the ids of the groups that have committed offsets, commits being appended or offsets in open
        transactions."""
        return list({*self.table.groups(), *self._commits, *self._staged})

    def count(self, group_id: str) -> int:
        """Return the number of the group's committed offsets, plus those being appended and those in open
        transactions."""
        count = self.table.count(group_id)
        if self._commits or self._staged:
            count += sum(len(offsets) for commit in self._commits.get(group_id, ()) for _, offsets in commit.offsets)
            count += len(self._staged.get(group_id, ()))
        return count

    def unstable(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions whose committed offset of the group may soon change, because a commit is being appended
        or is part of an open transaction. They get the error UNSTABLE_OFFSET_COMMIT."""
        staged: Collection[TopicPartition] = self._staged.get(group_id, ())
        commits = self._commits.get(group_id)
        if not commits:
            return staged
        return {*staged, *(partition for commit in commits for partition in commit.partitions())}

    def of_topic(self, topic: str, begin: int) -> tuple[list[tuple[str, int]], int]:
        """Return a page of the (group id, partition) pairs that have an offset in the topic, whether committed, in an
        open transaction or being appended, and the position where the next page begins.

        Pass 0 as `begin` for the first page. The returned position is -1 after the last page.
        """
        found, after = self.table.of_topic(topic, begin)
        if begin == 0:
            for group_id, commits in self._commits.items():
                found += [
                    (group_id, partition)
                    for commit in commits
                    for name, partition in commit.partitions()
                    if name == topic
                ]
        return found, after

    def tombstones(self, group_id: str) -> list[Record]:
        """Return tombstone records for all committed offsets of the group, including those that are being appended
        outside of a transaction."""
        doomed = dict.fromkeys((topic, partition) for topic, partition, _ in self.table.of_group(group_id))
        doomed.update(dict.fromkeys(self._being_committed(group_id)))
        return [(encode_key(group_id, *partition), None) for partition in doomed]

    def tombstones_of(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[Record]:
        """Return tombstone records for those of the partitions in which the group has a committed offset, or an offset
        that is being appended outside of a transaction.

        An offset that was only committed in an open transaction gets no tombstone, which would be useless: a load of
        the log applies the offset at the transaction's marker, which comes after the tombstone. So an offset that is
        deleted before the commit marker of its transaction is written is back after a load. Kafka behaves in the same
        way: GroupMetadata.removeOffsets also forgets such an offset in memory, and cleanupGroupMetadata writes
        tombstones for committed offsets only.
        """
        get = self.table.get
        being_committed = set(self._being_committed(group_id))
        return [
            (encode_key(group_id, topic, partition), None)
            for topic, partition in partitions
            if get(group_id, topic, partition) is not None or (topic, partition) in being_committed
        ]

    def _being_committed(self, group_id: str) -> Iterable[TopicPartition]:
        commits = self._commits.get(group_id, ())
        return (partition for commit in commits if commit.producer_id is None for partition in commit.partitions())

    # --- commits in progress

    def commit_begins(self, commit: PendingCommit) -> None:
        """Note that the append of this commit's records is about to begin, which makes its offsets unstable."""
        self._commits.setdefault(commit.group_id, []).append(commit)

    def commit_ends(self, commit: PendingCommit, *, applied: bool) -> None:
        """Note that the append of this commit's records has succeeded and the records were applied to the table, or
        that the append has failed (`applied` is False).

        If the commit is part of a transaction and was applied, its offsets stay unstable until the transaction ends.
        """
        commits = self._commits[commit.group_id]
        commits.remove(commit)
        if not commits:
            del self._commits[commit.group_id]
        if applied and commit.producer_id is not None:
            for partition in commit.partitions():
                self._stage(commit.producer_id, commit.group_id, partition)
            # Applying the records has staged the deleted offsets too. All that the table has staged for these
            # partitions was committed before the deletion, so it can be removed.
            for partition in commit.deleted:
                self.table.unstage(commit.group_id, *partition)

    # --- transactions

    def transaction_ended(self, producer_id: int, committed: bool) -> None:
        """Make the offsets that the producer committed in its transaction the committed offsets, or discard them if the
        transaction was aborted (`committed` is False)."""
        for group_id, partition in self._transactions.pop(producer_id, ()):
            self._unmark(group_id, partition)
        self.table.end_transaction(producer_id, committed)

    def unstage(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Remove the group's deleted offsets in these partitions from open transactions, which would otherwise restore
        the offsets when they are committed."""
        doomed = set(partitions)
        for commit in self._commits.get(group_id, ()):
            if commit.producer_id is not None:
                commit.deleted |= doomed
                commit.offsets = [
                    (topic, [one for one in offsets if (topic, one[0]) not in doomed])
                    for topic, offsets in commit.offsets
                ]
        for partition in doomed & self._staged.get(group_id, {}).keys():
            self.table.unstage(group_id, *partition)
            for producer_id in list(self._transactions):
                self._unstage(producer_id, group_id, partition)

    def _stage(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        staged = self._transactions.setdefault(producer_id, set())
        if (group_id, partition) not in staged:
            staged.add((group_id, partition))
            self._mark(group_id, partition)

    def _unstage(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        staged = self._transactions[producer_id]
        if (group_id, partition) not in staged:
            return
        staged.remove((group_id, partition))
        self._unmark(group_id, partition)
        if not staged:
            del self._transactions[producer_id]

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
