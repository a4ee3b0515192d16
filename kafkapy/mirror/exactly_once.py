"""A mirror stream with exactly-once delivery: one thread, a member of the source's group, and transactions.

Progress and ownership
----------------------
The offset up to which a source partition is copied is kept in the *target*, as the offset of a group there. The group's
name is that of the source's group with the source's cluster id (GROUP.CLUSTER), so that sources with equal topic names
do not clash. The offset is written in the same transaction as the records before it, and only this offset decides where
copying continues. The offset that is committed to the source is a copy. It is used to display the group's lag, and to
continue if the target's offset has expired (`offsets.retention.minutes` without a commit).

Each source partition has its own *transactional id* (GROUP.CLUSTER.TOPIC.PARTITION). Owning a partition in the source's
group is only a hint: while one member is suspended, two members may both believe that they own the partition. The
target's coordinator decides: only the producer that has initialised the transactional id last can use it.

1. A member is assigned a partition, and does not read it yet.
2. The member initialises the transactional id, which fences the previous producer. The previous producer's open
   transaction is aborted. If that transaction is being committed, the initialisation waits until it is committed.
3. The member reads the offset from the target with `require_stable`, which waits for pending transactions. If the
   target has no offset (the first time), the member takes the source group's offset, or the offset that
   `auto.offset.reset` selects, and commits this offset to the target before any record, so that another member would
   start there, too.
4. The member reads from that offset with read_committed (uncommitted from a group in ZooKeeper, like the original
   consumer), and sends the records in a transaction.
5. Every `commit_interval_s`, before it gives up the partition, and when the mirror stops, the member adds the offset
   after the records to the transaction and commits the transaction. **At this moment the records are copied.**

A producer reads the offset after all transactions of its predecessors are completed, and can commit only until the next
producer initialises the id. So every committed transaction starts where the previous one ended: no record is skipped,
and a reader with read_committed gets no record twice.

Failures
--------
- *The mirror stops before step 5:* its transaction is aborted in step 2 of the next member, or by its time-out
  (`transaction.timeout.ms`). Until then, read_committed consumers of the target's partitions cannot read beyond the
  open transaction.
- *The mirror stops between sending the commit and its response:* it is not known whether the transaction is committed.
  Step 2 of the next member waits until the transaction is completed, and its step 3 reads the resulting offset.
- *The mirror is suspended (SIGSTOP) in step 4 or 5 and other members get its partitions:* when the member
  resumes, the target refuses its next batch, offset or commit, and the member drops the partition. A moment later it
  starts again at step 2 if it still believes that it owns the partition; its next poll tells it that it does not.
- *The mirror is suspended between steps 1 and 2:* when the member resumes, it fences the new owner, reads the
  right offset and copies correctly, until it learns that it has lost the partition. The new owner, now fenced, starts
  again at step 2. The two members may fence each other for some seconds, without harm.
- *A broker of the target, or a coordinator, fails:* the producer retries its requests. If the retries fail, the
  partition is dropped and started again at step 2, where the new producer learns the state from the target.
- *A broker of the source, its coordinator, or ZooKeeper fails:* reading waits. An expired ZooKeeper session loses its
  partitions. The member may get a partition back before it notices, and copy as the old owner until then; this is the
  same as being suspended.
- *The source loses copied records, or its topic is recreated:* the offset is out of range, and `auto.offset.reset` says
  where to continue. Records that are read again are copied again.
- *The target's group is deleted, or its offsets expire:* step 3 uses the copy of the offset in the source, which
  is at most one commit behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ClientError, ProducerFenced, UnsupportedByBroker
from kafkapy.errors import Errors, KafkaError
from kafkapy.mirror.counts import Counts
from kafkapy.mirror.delivery import target_cluster
from kafkapy.mirror.member import NotCommitted, Piece, SeekingMember
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.partition_copy import PartitionCopy
from kafkapy.mirror.target_offsets import TargetOffsets
from kafkapy.mirror.target_settings import TargetSettings
from kafkapy.mirror.target_topics import TargetTopics

log = logging.getLogger(__name__)

POLL_S = 0.5
RESTART_S = 1.0  # the pause before a dropped partition is started again, to learn if another member owns it

# Errors that a retry does not solve.
PERMANENT = frozenset(
    {
        Errors.SASL_AUTHENTICATION_FAILED,
        Errors.TOPIC_AUTHORIZATION_FAILED,
        Errors.GROUP_AUTHORIZATION_FAILED,
        Errors.CLUSTER_AUTHORIZATION_FAILED,
        Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Errors.INVALID_TRANSACTION_TIMEOUT,
        Errors.INVALID_TOPIC_EXCEPTION,
        Errors.INVALID_RECORD,
        Errors.MESSAGE_TOO_LARGE,
        Errors.RECORD_LIST_TOO_LARGE,
        Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        Errors.UNSUPPORTED_VERSION,
        Errors.POLICY_VIOLATION,
    }
)


class NotEnded(ClientError):
    """The mirror was stopped, but not all transactions could be committed in the target."""


class ExactlyOnce:
    """One mirror stream with exactly-once delivery, for one thread.

    The stream also implements the callbacks of Listener, to start and stop copying partitions when their ownership
    changes.
    """

    def __init__(
        self, member: SeekingMember, group: str, target: TargetSettings, options: MirrorOptions, counts: Counts
    ) -> None:
        self._member = member
        self._group = group
        self._target = target
        self._options = options
        self._counts = counts
        self._topics = TargetTopics(
            target_cluster(target),
            options.create_topics,
            same_numbers="exactly-once keeps the offset of each source partition under its own number there",
        )
        self._offsets = TargetOffsets(target_cluster(target), group)
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._to_start: dict[TopicPartition, float] = {}  # partitions to start, and when to do so at the earliest

    def open(self) -> None:
        """Join the source's group."""
        self._member.open(self)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Copy records until `stopped` returns True. Then commit the transactions of all records that were read.

        Raises NotEnded if a last commit fails, and errors that retries do not solve.
        """
        commit_at = time.monotonic() + self._options.commit_interval_s
        while not stopped():
            self._start_due(stopped)
            pieces = self._member.poll(min(POLL_S, max(0.0, commit_at - time.monotonic())))
            self._counts.lags = self._member.lags()
            self._counts.waiting = self._member.waiting()
            for piece in pieces:
                self._copy(piece)
            if time.monotonic() >= commit_at:
                self._commit(list(self._copies))
                commit_at = time.monotonic() + self._options.commit_interval_s
        if not self._commit(list(self._copies)):
            raise NotEnded("not all transactions were committed in the target; the next mirror repeats the others")

    def close(self) -> None:
        """Leave the source's group and close the connections.

        An open transaction is aborted when the next producer with its transactional id starts, or by its time-out.
        """
        try:
            self._member.close()
        finally:
            self.on_lost(list(self._copies))
            self._offsets.close()
            self._topics.close()

    # The methods of the protocol Listener

    def on_taken(self, partitions: Sequence[TopicPartition]) -> None:
        for where in partitions:
            self._member.seek(where, None)
            self._to_start[where] = 0.0

    def before_release(self, partitions: Sequence[TopicPartition]) -> None:
        self._commit([where for where in partitions if where in self._copies])
        self.on_lost(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        for where in partitions:
            self._to_start.pop(where, None)
            if (copy := self._copies.pop(where, None)) is not None:
                copy.drop()

    # Steps 2 to 5 of the module's description

    def _start_due(self, stopped: Callable[[], bool]) -> None:
        """Start the copying of the partitions that are due: fence other producers, then read the target's offset.

        These are steps 2 and 3 of the module's description. If they fail for a partition, its next start is scheduled.
        """
        now = time.monotonic()
        taken: dict[TopicPartition, PartitionCopy] = {}
        for where in [where for where, moment in self._to_start.items() if moment <= now]:
            if stopped():
                break
            copy = PartitionCopy(where, self._group, self._target, self._options)
            try:
                self._partitions_of(where)  # offsets can only be committed for existing partitions
                copy.fence_others()
                taken[where] = copy
            except (ClientError, KafkaError) as error:
                copy.drop()
                self._start_later(where, error)
        if not taken:
            return
        try:
            found = self._offsets.fetch(taken)
        except (ClientError, KafkaError) as error:
            for where, copy in taken.items():
                copy.drop()
                self._start_later(where, error)
            return
        for where, copy in taken.items():
            self._begin(copy, found.get(where))

    def _begin(self, copy: PartitionCopy, offset: int | None) -> None:
        """Start reading a partition at the offset in the target.

        If the target has no offset for the partition, first commit the source group's position to the target.
        """
        where = copy.where
        try:
            if offset is None:
                offset = self._member.position(where)
                copy.commit_offset(offset)
        except (ClientError, KafkaError) as error:
            copy.drop()
            self._start_later(where, error)
            return
        self._member.seek(where, offset)
        del self._to_start[where]
        self._copies[where] = copy

    def _copy(self, piece: Piece) -> None:
        """Add a Piece (fetched batches of one partition) to the partition's transaction.

        If the target refuses the records, the partition is dropped and started again later.
        """
        copy = self._copies.get(piece.where)
        if copy is None:
            return  # the partition was dropped; the piece is read again
        try:
            copy.copy(piece, self._partitions_of(piece.where))
        except (ClientError, KafkaError) as error:
            self._drop(copy, error)
        except BaseException:  # records before a corrupt batch may be in the transaction; do not commit them
            self.on_lost([piece.where])
            raise

    def _commit(self, partitions: Iterable[TopicPartition]) -> bool:
        """Commit the transactions of partitions, then commit the offsets to the source, too.

        Return False if the commit of a transaction failed.
        """
        ends: dict[TopicPartition, int] = {}
        whole = True
        for where in partitions:
            copy = self._copies[where]
            after = copy.after
            if after is None:
                continue
            try:
                records, size = copy.commit()
            except (ClientError, KafkaError) as error:
                whole = False
                self._drop(copy, error)
                continue
            self._counts.records += records
            self._counts.size += size
            self._counts.commits += 1
            ends[where] = after
        if ends:
            try:
                self._member.commit(ends)
            except NotCommitted as error:
                log.info("the offsets were not copied to the source: %s", error)
        return whole

    def _partitions_of(self, where: TopicPartition) -> int:
        """Return the number of partitions that the topic of `where` has in the target.

        Create the topic if it is missing.
        """
        topic, number = where
        return self._topics.partition_count(topic, partial(self._member.partition_count, topic), number)

    def _drop(self, copy: PartitionCopy, error: ClientError | KafkaError) -> None:
        """Stop copying a partition because of an error, and schedule its next start."""
        del self._copies[copy.where]
        copy.drop()
        if copy.begun_at is not None:  # else, if the target's offset is lost, copying could start too far ahead
            self._member.seek(copy.where, copy.begun_at)
        self._member.seek(copy.where, None)
        self._start_later(copy.where, error)

    def _start_later(self, where: TopicPartition, error: ClientError | KafkaError) -> None:
        """Schedule a partition's next start after an error. Raise the error if a retry cannot solve it."""
        if isinstance(error, UnsupportedByBroker) or (isinstance(error, KafkaError) and error.code in PERMANENT):
            raise error
        if isinstance(error, ProducerFenced):
            self._counts.fenced += 1
        else:
            self._counts.failed_commits += 1
        log.warning("%s-%d is started again: %s", *where, error)
        self._to_start[where] = time.monotonic() + RESTART_S
