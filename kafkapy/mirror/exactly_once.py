"""A stream that copies each record exactly once: one thread, a member of the source's group, transactions.

Where it stands
---------------
The offset up to which a source partition is copied is kept in the *target*, as one of a group there whose name is made
of the group and of the source's cluster id (GROUP.CLUSTER), so that sources with topics of the same name do not clash.
It is written in the same transaction as the records that are before it. Nothing else counts: what is committed to the
source is a copy, for people who look at the group's lag, and for the day on which the target has forgotten its offset
(`offsets.retention.minutes` without a commit).

Of each source partition there is one *transactional id* (GROUP.CLUSTER.TOPIC.PARTITION). Owning a partition in the
source's group is only a hint who should copy it: two members may both believe that they do, for as long as one sleeps.
Who holds the id decides, and the target's coordinator knows who does: the last one that has initialised it.

1. A member is given a partition, and reads nothing of it yet.
2. It initialises the id. From then on whoever had it before is fenced: what that one had open is aborted, what it was
   committing is committed before the answer comes.
3. It reads the offset from the target, with `require_stable`, so that one which is being decided is waited for. Without
   one (the first time) it begins where the source's group stands, or as `auto.offset.reset` says, and commits that
   place by itself, before any record: whoever comes next begins there, too.
4. It reads on from there, read_committed (in ZooKeeper uncommitted, as the original consumer reads), and sends the
   records in a transaction.
5. Every `commit_interval_s`, before it gives the partition up, and at the end: it adds the offset behind the records to
   the transaction, and commits it. **This is the moment at which they have been copied.**

Each holder of an id reads the offset after all transactions of those before it are decided, and its own transactions
can be committed only until the next one initialises the id. So every committed transaction goes on where the one before
it ended: no record is left out, and none is there twice for who reads committed.

What if something dies
----------------------
- *The mirror before step 5:* its transaction is aborted in step 2 of the next one, or by its time-out
  (`transaction.timeout.ms`). Until then committed reads of the target wait behind it, those of other partitions do not.
- *The mirror between sending the commit and its answer:* it is committed or not; the next one's step 2 settles which,
  and its step 3 reads what that means.
- *The mirror sleeps (SIGSTOP) in step 4 or 5 while others get its partitions:* when it wakes up its next batch, offset
  or commit is refused. It drops the partition, and takes it again (from step 2) a moment later, if it still believes
  that it owns it; at its next poll it hears that it does not.
- *It sleeps between 1 and 2:* when it wakes up it fences the one that has taken its place, reads the right offset, and
  copies on correctly, until it hears that the partition is not its own. The other one is fenced meanwhile, begins again
  at step 2, and so on: they may take turns for some seconds, and neither can do harm.
- *A broker of the target, or a coordinator:* tried again as long as the clients do that. Whatever fails then, the
  partition is dropped and taken again from step 2: nobody has to know how far it had come.
- *A broker of the source, its coordinator, or ZooKeeper:* reading waits. A session with ZooKeeper that is over is a
  partition that is lost; the member may have it again before it hears of that, and go on reading for the old one until
  then: that is the case of the one that sleeps.
- *The source loses records that were copied, or its topic is made anew:* the offset is out of range, and
  `auto.offset.reset` says where it goes on; what is read again then is copied again.
- *The target's group is deleted, or its offsets expire:* step 3 begins at the copy in the source, which is at most one
  commit behind.
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
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.partition_copy import PartitionCopy
from kafkapy.mirror.sources import NotCommitted, Piece, SeekingMember
from kafkapy.mirror.target_offsets import TargetOffsets
from kafkapy.mirror.target_settings import TargetSettings
from kafkapy.mirror.target_topics import TargetTopics

log = logging.getLogger(__name__)

POLL_S = 0.5
AGAIN_S = 1.0  # until a partition that was dropped is taken again: time to hear that it is another's

# What another try does not change.
FOR_GOOD = frozenset(
    {
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
    """The mirror was to end, and not all transactions could be committed."""


class ExactlyOnce:
    """A stream. For one thread; is its member's listener."""

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
        self._to_take: dict[TopicPartition, float] = {}  # and not before which moment

    def open(self) -> None:
        """Joins the group."""
        self._member.open(self)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Until it is stopped; what was read then is in the target. Raises what cannot be waited out."""
        commit_at = time.monotonic() + self._options.commit_interval_s
        while not stopped():
            self._take_due(stopped)
            pieces = self._member.poll(min(POLL_S, max(0.0, commit_at - time.monotonic())))
            self._counts.lags = self._member.lags()
            for piece in pieces:
                self._copy(piece)
            if time.monotonic() >= commit_at:
                self._commit(list(self._copies))
                commit_at = time.monotonic() + self._options.commit_interval_s
        if not self._commit(list(self._copies)):
            raise NotEnded(
                "not all transactions were committed in the target; the next mirror copies again what was in the others"
            )

    def close(self) -> None:
        """Leaves the group, and the transactions that are open to those who come next."""
        try:
            self._member.close()
        finally:
            self.on_lost(list(self._copies))
            self._offsets.close()
            self._topics.close()

    # What the member tells

    def on_taken(self, partitions: Sequence[TopicPartition]) -> None:
        for where in partitions:
            self._member.seek(where, None)
            self._to_take[where] = 0.0

    def before_release(self, partitions: Sequence[TopicPartition]) -> None:
        self._commit([where for where in partitions if where in self._copies])
        self.on_lost(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        for where in partitions:
            self._to_take.pop(where, None)
            if (copy := self._copies.pop(where, None)) is not None:
                copy.drop()

    # Steps 2 to 5

    def _take_due(self, stopped: Callable[[], bool]) -> None:
        now = time.monotonic()
        taken: dict[TopicPartition, PartitionCopy] = {}
        for where in [where for where, moment in self._to_take.items() if moment <= now]:
            if stopped():
                break
            copy = PartitionCopy(where, self._group, self._target, self._options)
            try:
                self._partitions_of(where)  # offsets can be kept only of partitions that are there
                copy.take_over()
                taken[where] = copy
            except (ClientError, KafkaError) as error:
                copy.drop()
                self._again(where, error)
        if not taken:
            return
        try:
            found = self._offsets.fetch(taken)
        except (ClientError, KafkaError) as error:
            for where, copy in taken.items():
                copy.drop()
                self._again(where, error)
            return
        for where, copy in taken.items():
            self._begin(copy, found.get(where))

    def _begin(self, copy: PartitionCopy, offset: int | None) -> None:
        where = copy.where
        try:
            if offset is None:
                offset = self._member.position(where)
                copy.note(offset)
        except (ClientError, KafkaError) as error:
            copy.drop()
            self._again(where, error)
            return
        self._member.seek(where, offset)
        del self._to_take[where]
        self._copies[where] = copy

    def _copy(self, piece: Piece) -> None:
        copy = self._copies.get(piece.where)
        if copy is None:
            return  # it is taken again, and read again
        try:
            copy.copy(piece, self._partitions_of(piece.where))
        except (ClientError, KafkaError) as error:
            self._drop(copy, error)
        except BaseException:  # of what cannot be read a part may be in the transaction: that must not be committed
            self.on_lost([piece.where])
            raise

    def _commit(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all could be."""
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
                log.info("the copy of the offsets in the source is late: %s", error)
        return whole

    def _partitions_of(self, where: TopicPartition) -> int:
        """How many the topic has in the target."""
        topic, number = where
        return self._topics.partition_count(topic, partial(self._member.partition_count, topic), number)

    def _drop(self, copy: PartitionCopy, error: ClientError | KafkaError) -> None:
        del self._copies[copy.where]
        copy.drop()
        if copy.begun_at is not None:  # should the target have forgotten its offset: it must not go on behind this
            self._member.seek(copy.where, copy.begun_at)
        self._member.seek(copy.where, None)
        self._again(copy.where, error)

    def _again(self, where: TopicPartition, error: ClientError | KafkaError) -> None:
        """Raises what another try does not change."""
        if isinstance(error, UnsupportedByBroker) or (isinstance(error, KafkaError) and error.code in FOR_GOOD):
            raise error
        if isinstance(error, ProducerFenced):
            self._counts.fenced += 1
        else:
            self._counts.failed_commits += 1
        log.warning("%s-%d is taken again: %s", *where, error)
        self._to_take[where] = time.monotonic() + AGAIN_S
