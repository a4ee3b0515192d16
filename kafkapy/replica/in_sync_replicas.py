"""The replicas of a partition that this broker leads: which are in sync, and how far each follower is.

Only partitions with several replicas have an InSyncReplicas. The rules are the pure functions of
`kafkapy.replica.isr`; this module holds their state, under a lock. Source: kafka.cluster.Partition and
kafka.cluster.Replica; KIP-497.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.log.partition_log import PartitionLog
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.replica.high_watermark import effective_min_isr
from kafkapy.replica.isr import (
    Follower,
    IsrState,
    after_fetch,
    at_election,
    low_watermark,
    may_join,
    new_high_watermark,
    out_of_sync,
)
from kafkapy.replica.isr_changes import Done, IsrChange, WrittenIsr
from kafkapy.runtime.clock import SYSTEM_CLOCK, Clock
from kafkapy.runtime.counters import Counter
from kafkapy.runtime.purgatory import Purgatory
from kafkapy.runtime.timer import Timer

log = logging.getLogger("kafkapy.replica.isr")

# After these errors of the controller the change was not made, and the committed ISR that the leader knows is right.
_NOT_MADE = frozenset({Errors.OPERATION_NOT_ATTEMPTED, Errors.INELIGIBLE_REPLICA})
# After these the leader cannot know the committed ISR. The change stays pending until the controller sends a new role.
_SUPERSEDED = frozenset(
    {
        Errors.FENCED_LEADER_EPOCH,
        Errors.INVALID_UPDATE_VERSION,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.INVALID_REQUEST,
    }
)


class IsrEnvironment:
    """The settings, callbacks and counters that the InSyncReplicas of all partitions of a broker share.

    max_lag_s   replica.lag.time.max.ms in seconds
    is_alive    is_alive(broker_id) returns True if the broker is alive; it takes no lock
    submit      sends an IsrChange to the controller: see IsrChanges.submit
    deletions   the DeleteRecords requests that wait for followers, by (topic, partition index)
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        max_lag_s: float = 30.0,
        is_alive: Callable[[int], bool] = lambda broker_id: True,
        submit: Callable[[IsrChange, Done], bool] = lambda change, done: False,
        deletions: Purgatory | None = None,
    ) -> None:
        self.deletions = Purgatory("delete records", Timer(clock)) if deletions is None else deletions
        self.clock = clock
        self.max_lag_s = max_lag_s
        self.is_alive = is_alive
        self.submit = submit
        self.shrinks = Counter()
        self.expansions = Counter()
        self.failures = Counter()


class InSyncReplicas:
    """The ISR and the followers of a partition, in one leader epoch of this broker. Any thread may call the methods.

    `state`, `replicas` and `epoch_start` (the log end offset at which the leader epoch began) may be read without a
    lock. So may `followers`, by broker id, which only this class changes; its values may be replaced meanwhile. No
    callback runs under the lock: methods return what is to be done.
    """

    __slots__ = (
        "_broker_id",
        "_env",
        "_ineligible",
        "_leader_epoch",
        "_lock",
        "_log",
        "_pending",
        "epoch_start",
        "followers",
        "replicas",
        "state",
    )

    def __init__(
        self,
        log: PartitionLog,
        env: IsrEnvironment,
        *,
        broker_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        epoch_start: int,
    ) -> None:
        """`broker_id` is this broker, the leader; `replicas` and `isr` are broker ids that include it."""
        self._log = log
        self._env = env
        self._broker_id = broker_id
        self._leader_epoch = leader_epoch
        # A log directory that fails ends its partitions' leadership with the log's lock held (see `end`). So a thread
        # with this lock may take the log's short locks, such as that of the high watermark, but never the log's lock.
        self._lock = threading.Lock()
        self._pending: IsrChange | None = None  # the change that the controller is asked for
        self._ineligible: frozenset[int] = frozenset()  # followers that the controller refuses, as they shut down
        self.epoch_start = epoch_start
        self.replicas = tuple(replicas)
        self.state = IsrState(tuple(isr), partition_epoch)
        now = env.clock.monotonic()
        self.followers = {one: at_election(None, now, epoch_start, one in isr) for one in replicas if one != broker_id}

    def __repr__(self) -> str:
        return f"ISR {list(self.state.isr)} of the replicas {list(self.replicas)}"

    # --- queries

    @property
    def min_isr(self) -> int:
        """The number of in-sync replicas that acks=all and the high watermark need."""
        return effective_min_isr(self._log.config.min_insync_replicas, len(self.replicas))

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the leader and the live followers."""
        is_alive = self._env.is_alive
        live = [follower for one, follower in self.followers.items() if is_alive(one)]
        return low_watermark(self._log.log_start_offset, live)

    # --- events

    def take_over(self, before: InSyncReplicas) -> None:
        """Keep the offsets of the followers that are known from this broker's previous leader epoch."""
        now = self._env.clock.monotonic()
        with before._lock:
            known = dict(before.followers)
            before._pending = None
        with self._lock:
            for one in self.followers:
                self.followers[one] = at_election(known.get(one), now, self.epoch_start, one in self.state.isr)

    def end(self) -> None:
        """End the leader epoch: a response to a pending change is ignored from now on."""
        with self._lock:
            self._pending = None

    def advance(self, end: int) -> bool:
        """Advance the high watermark as far as `end` and the followers allow. Return True if it moved.

        `end` is the leader's log end offset, or the end of the flushed part if acknowledgements wait for a flush.
        """
        with self._lock:
            return self._advance_locked(end)

    def fetched(
        self, broker_id: int, fetch_offset: int, start_offset: int, leader_end: int, end: int
    ) -> tuple[bool, IsrChange | None]:
        """Note the Fetch request of a follower, which has all records below `fetch_offset`.

        Returns (whether the high watermark moved, the change that adds the follower to the ISR or None). `start_offset`
        is the follower's log start offset, `leader_end` the leader's log end offset before the records were read; `end`
        is that of `advance`. Does nothing if the broker is no replica.
        """
        env = self._env
        with self._lock:
            before = self.followers.get(broker_id)
            if before is None:
                return False, None
            follower = after_fetch(before, fetch_offset, start_offset, env.clock.monotonic(), leader_end)
            self.followers[broker_id] = follower
            change, state = None, self.state
            if (
                broker_id not in state.isr
                and may_join(state, broker_id, follower, self._log.high_watermark, self.epoch_start)
                and env.is_alive(broker_id)
            ):
                change = self._propose((*state.isr, broker_id))
            return before.end_offset != fetch_offset and self._advance_locked(end), change

    def shrink(self) -> IsrChange | None:
        """Return a change that removes the members that are not caught up, None if there is none to remove or a change
        is pending.
        """
        env, state = self._env, self.state
        if state.isr == (self._broker_id,):
            return None
        with self._lock:
            state, now, end = self.state, env.clock.monotonic(), self._log.log_end_offset
            behind = out_of_sync(state, self._broker_id, self.followers, end, now, env.max_lag_s)
            if not behind:
                return None
            followers = {one: self.followers.get(one, Follower()) for one in behind}
            change = self._propose(tuple(one for one in state.isr if one not in behind))
        log.info(
            "%s: removing %s from the ISR %s; log end offset %d, high watermark %d",
            self._log.name,
            ", ".join(f"broker {one} (log end offset {known.end_offset})" for one, known in followers.items()),
            list(state.isr),
            end,
            self._log.high_watermark,
        )
        return change

    def answered(self, change: IsrChange, result: WrittenIsr | KafkaError, end: int) -> tuple[bool, bool]:
        """Apply the controller's answer to a change. Returns (whether the high watermark moved, whether to ask again).

        An answer to a change that is not pending any more is ignored. `end` is that of `advance`.
        """
        env = self._env
        with self._lock:
            if self._pending is not change:
                return False, False
            if isinstance(result, KafkaError):
                env.failures.add()
                again = self._refused(result)
                # Without the change the high watermark does not wait for the follower that was to join.
                return self._pending is None and self._advance_locked(end), again
            if result.leader_epoch != self._leader_epoch or result.partition_epoch < self.state.partition_epoch:
                env.failures.add()  # the change stays pending until the controller sends a new role
                return False, False
            (env.expansions if len(change.isr) > len(self.state.isr) else env.shrinks).add()
            self.state = IsrState(tuple(result.isr), result.partition_epoch)
            self._ineligible = self._ineligible.difference(result.isr)
            self._pending = None
            moved = self._advance_locked(end)
        log.info("%s: the ISR is %s now", self._log.name, list(result.isr))
        return moved, False

    def brokers_gone(self, broker_ids: Collection[int], end: int) -> bool:
        """Advance the high watermark as far as `end` if it has waited for followers on these brokers, which are not
        alive any more, to join the ISR. Return True if it moved.
        """
        if self.followers.keys().isdisjoint(broker_ids):
            return False
        with self._lock:
            self._ineligible = self._ineligible.difference(broker_ids)  # as new brokers they may join
            return self._advance_locked(end)

    def is_pending(self, change: IsrChange) -> bool:
        """Return True if the controller has not decided on this change yet."""
        return self._pending is change

    # --- with the lock held

    def _propose(self, isr: tuple[int, ...]) -> IsrChange:
        state = self.state
        self.state = state._replace(proposed=isr)
        topic_id = self._log.topic_id
        self._pending = change = IsrChange(
            self._log.topic,
            ZERO_ID if topic_id is None else topic_id,
            self._log.partition,
            self._leader_epoch,
            state.partition_epoch,
            isr,
        )
        return change

    def _refused(self, error: KafkaError) -> bool:
        """Apply the controller's error for the pending change. Return True if the controller must be asked again."""
        if error.code in _NOT_MADE:
            if error.code == Errors.INELIGIBLE_REPLICA and self._pending is not None:
                self._ineligible = self._ineligible.union(self._pending.isr).difference(self.state.isr)
            self.state = self.state._replace(proposed=None)
            self._pending = None
            return False
        again = error.code not in _SUPERSEDED
        if again:
            log.warning("%s: the change of the ISR fails with %s: retrying", self._log.name, name_of(error.code))
        return again

    def _is_eligible(self, broker_id: int) -> bool:
        """Return False for a follower that cannot join the ISR soon: acks=all need not wait until it has caught up."""
        return broker_id not in self._ineligible and self._env.is_alive(broker_id)

    def _advance_locked(self, end: int) -> bool:
        partition_log, env, followers = self._log, self._env, self.followers
        before = partition_log.high_watermark
        for broker_id in self.state.isr:
            follower = followers.get(broker_id)
            if follower is not None and follower.end_offset <= before:
                return False  # as after each append: the high watermark waits for this member, whatever the others do
        now, is_eligible = env.clock.monotonic(), self._is_eligible
        offset = new_high_watermark(self.state, before, end, followers, self.min_isr, now, env.max_lag_s, is_eligible)
        if offset <= before:
            return False
        partition_log.advance_high_watermark(offset, self._leader_epoch)
        return partition_log.high_watermark > before
