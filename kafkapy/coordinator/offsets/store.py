"""The committed offsets of one shard, and the commits in progress.

The table has the offsets that are in the log: `replay` fills it at a load, `apply` after each append. In addition, the
store knows which offsets are unstable: those in a commit being appended, and those staged in an open transaction.
Source: Kafka's GroupMetadata (pendingOffsetCommits and pendingTransactionalOffsetCommits).
"""

from __future__ import annotations

from collections import Counter
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
    """An offset of a group: topic, partition and the committed offset."""

    topic: str
    partition: int
    committed: CommittedOffset


class OffsetStore:
    """The offsets of one shard. Methods are called under the shard's lock, or by its load."""

    def __init__(self) -> None:
        self.table = OffsetTable()
        # By group: the commits being appended.
        self._commits: dict[str, list[Sequence[GroupOffset]]] = {}
        # By group and partition: in how many open transactions an offset is staged.
        self._staged: dict[str, dict[TopicPartition, int]] = {}
        # By producer: each staged (group, partition) with its number of commits in the log or being appended. If one of
        # two appends fails, the offset is still staged by the other.
        self._transactions: dict[int, Counter[tuple[str, TopicPartition]]] = {}

    def __len__(self) -> int:
        return len(self.table)

    # --- the log

    def replay(self, block: memoryview, others: Callable[[bytes, bytes | None], object]) -> int:
        """Load the complete batches at the start of `block`. Return the offset after them, or -1 if there is none.

        `others(key, value)` gets the records that are not offset commits. Raises DamagedBatch, a ValueError.
        """
        replay = OffsetReplay(self.table, decompress_records, others)
        replay.feed(block)
        return replay.next_offset

    def loaded(self) -> None:
        """Stage the offsets of transactions that are open at the end of the log."""
        for producer_id, group_id, topic, partition in self.table.staged():
            self._stage(producer_id, group_id, (topic, partition))

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        """Apply appended records to the table; it ignores records other than offset commits."""
        self.table.apply(records, -1 if producer is None else producer.id)

    # --- reading

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        found = self.table.get(group_id, topic, partition)
        return CommittedOffset(*found) if found is not None else None

    def of_group(self, group_id: str) -> list[GroupOffset]:
        """Return all offsets of a group, by topic and partition."""
        found = self.table.of_group(group_id)
        found.sort()
        return [GroupOffset(topic, partition, CommittedOffset(*commit)) for topic, partition, commit in found]

    def groups(self) -> list[str]:
        """Return the groups with committed offsets or commits in progress."""
        return list({*self.table.groups(), *self._commits, *self._staged})

    def count(self, group_id: str) -> int:
        """Return the number of the group's offsets, including those of commits in progress."""
        count = self.table.count(group_id)
        if self._commits or self._staged:
            count += sum(map(len, self._commits.get(group_id, ()))) + len(self._staged.get(group_id, ()))
        return count

    def unstable(self, group_id: str) -> Collection[TopicPartition]:
        """Return the group's partitions whose offset may soon change (UNSTABLE_OFFSET_COMMIT)."""
        staged: Collection[TopicPartition] = self._staged.get(group_id, ())
        commits = self._commits.get(group_id)
        if not commits:
            return staged
        return {*staged, *((offset.topic, offset.partition) for each in commits for offset in each)}

    def of_topic(self, topic: str, begin: int) -> tuple[list[tuple[str, int]], int]:
        """Return a page of the (group, partition) pairs with an offset in the topic, committed, staged or being
        appended, and where the next page begins: -1 after the last page. The first page begins at 0."""
        found, after = self.table.of_topic(topic, begin)
        if begin == 0:
            for group_id, commits in self._commits.items():
                found += [
                    (group_id, offset.partition) for commit in commits for offset in commit if offset.topic == topic
                ]
        return found, after

    def tombstones(self, group_id: str) -> list[Record]:
        """Return tombstones for all offsets of the group, including those being appended."""
        doomed = dict.fromkeys((topic, partition) for topic, partition, _ in self.table.of_group(group_id))
        for commit in self._commits.get(group_id, ()):
            doomed.update(((offset.topic, offset.partition), None) for offset in commit)
        return [(encode_key(group_id, *partition), None) for partition in doomed]

    def tombstones_of(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[Record]:
        """Return tombstones for those of the partitions that have an offset, or one being appended."""
        get = self.table.get
        in_progress = {
            (offset.topic, offset.partition) for commit in self._commits.get(group_id, ()) for offset in commit
        }
        return [
            (encode_key(group_id, topic, partition), None)
            for topic, partition in partitions
            if get(group_id, topic, partition) is not None or (topic, partition) in in_progress
        ]

    # --- commits in progress

    def commit_begins(self, group_id: str, offsets: Sequence[GroupOffset]) -> None:
        self._commits.setdefault(group_id, []).append(offsets)

    def commit_ends(self, group_id: str, offsets: Sequence[GroupOffset]) -> None:
        """Remove a commit that is applied or has failed from the commits in progress."""
        commits = self._commits[group_id]
        commits.remove(offsets)
        if not commits:
            del self._commits[group_id]

    # --- transactions

    def staging_begins(self, producer_id: int, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Stage the offsets of a transactional commit that is being appended."""
        for partition in partitions:
            self._stage(producer_id, group_id, partition)

    def staging_failed(self, producer_id: int, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Undo `staging_begins` after the append has failed."""
        staged = self._transactions.get(producer_id)
        if staged is None:  # the transaction has ended meanwhile
            return
        for partition in partitions:
            if staged[group_id, partition] > 1:
                staged[group_id, partition] -= 1
            else:
                self._unstage(producer_id, group_id, partition)

    def transaction_ended(self, producer_id: int, committed: bool) -> None:
        """Apply or discard the offsets staged in the producer's transaction."""
        for group_id, partition in self._transactions.pop(producer_id, ()):
            self._unmark(group_id, partition)
        self.table.end_transaction(producer_id, committed)

    def unstage(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Remove deleted offsets from open transactions, which would otherwise restore them on commit."""
        staged_here = self._staged.get(group_id)
        if staged_here is None:
            return
        doomed = {(group_id, partition) for partition in partitions if partition in staged_here}
        if not doomed:
            return
        for _, partition in doomed:
            self.table.unstage(group_id, *partition)
        for producer_id in list(self._transactions):
            for _, partition in doomed:
                self._unstage(producer_id, group_id, partition)

    def _stage(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        staged = self._transactions.setdefault(producer_id, Counter())
        if (group_id, partition) not in staged:
            self._mark(group_id, partition)
        staged[group_id, partition] += 1

    def _unstage(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        staged = self._transactions.get(producer_id)
        if staged is None or (group_id, partition) not in staged:
            return
        del staged[group_id, partition]
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
