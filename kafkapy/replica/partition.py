"""A partition that this broker leads: appends, the replicas and the high watermark.

Source: kafka.cluster.Partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import Records
from kafkapy.log.partition_log import AppendResult, PartitionLog
from kafkapy.log.results import Busy
from kafkapy.replica.append_queue import AppendQueue
from kafkapy.replica.high_watermark import Replicated, ReplicationWaits
from kafkapy.replica.hosted_partition import HostedPartition
from kafkapy.replica.in_sync_replicas import InSyncReplicas, IsrEnvironment
from kafkapy.replica.isr_changes import RETRY_S, IsrChange, WrittenIsr

CONVERTED_AT_ONCE = 8  # record sets of old formats that are converted between two checks whether to stop

Verdict = AppendResult | KafkaError


class Partition(HostedPartition):
    """A partition that this broker leads, in one leader epoch. Any thread may append; reads take no lock."""

    __slots__ = ("_isr_env", "_queue", "_stall", "_timer", "_waits", "broker_id", "ending", "in_sync", "successor")

    def __init__(
        self,
        log: PartitionLog,
        *,
        broker_id: int,
        leader_epoch: int,
        partition_epoch: int = 0,
        in_sync: InSyncReplicas | None = None,
        isr_env: IsrEnvironment | None = None,
        append_pool: Any,
        conversion_pool: Any = None,
        stall: Any,
        timer: Any = None,
        on_change: Callable[[HostedPartition], object],
    ) -> None:
        """`broker_id` is the id of this broker. `in_sync` has the replicas, None if this broker is the only one;
        otherwise `isr_env` and `timer` are needed too.
        """
        super().__init__(
            log,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            on_change=on_change,
        )
        self.broker_id = broker_id
        self.ending: KafkaError | None = None  # set once when the broker stops: no long work begins from then on
        self.successor: Partition | None = None  # set once: this broker's next leader epoch, see `hand_over`
        self.in_sync = in_sync
        self._isr_env = isr_env
        self._stall = stall
        self._timer = timer
        self._waits = ReplicationWaits(timer, log.clock)
        self._queue = AppendQueue(append_pool, self._write, self._flush, conversion_pool)

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, leader epoch {self.leader_epoch}, {self.log})"

    def watch_stalls(self, stall: Any) -> None:
        """Use the StallMonitor of another log directory, because the log has moved to it."""
        self._stall = stall

    # --- appends

    def append(self, sets: Sequence[Records], done: Callable[[list[Verdict]], None]) -> list[Verdict] | None:
        """Append record sets; each set gets a verdict, an AppendResult or a KafkaError. The caller has checked
        `refusal` before.

        Returns the verdicts if the append need not wait. Otherwise returns None, keeps references to the records, and
        calls `done(verdicts)` later on another thread.
        """
        if self.gone is not None:
            return [self.gone] * len(sets)
        try:
            if not (self._queue.busy or (self._stall.stalled and self._stall.lasts())):
                verdicts = self.log.append(sets, self.leader_epoch, blocking=False, flush=False)
                if not isinstance(verdicts, Busy):
                    if self.log.write_seconds > self._stall.threshold:
                        self._observe(sets)
                    end = self._end_without_flush()
                    if end is None:
                        self._queue.put_written(sets, verdicts, done)
                        return None
                    self._advance(end)
                    return verdicts
            self._queue.put(sets, done, long=self.log.is_long_work(sets))
        except KafkaError as refusal:  # the log directory has failed, or the pool has no thread
            return [refusal] * len(sets)
        return None

    def refusal(self, acks: int) -> KafkaError | None:
        """Return NOT_ENOUGH_REPLICAS if `acks` is -1 (all) and the ISR is smaller than min.insync.replicas,
        else None.
        """
        if self.in_sync is None or acks != -1:
            return None
        isr = self.in_sync.state.isr
        if len(isr) >= self.in_sync.min_isr:
            return None
        return KafkaError(Errors.NOT_ENOUGH_REPLICAS, f"{self._in_words(isr)}: nothing was appended")

    def _in_words(self, isr: Sequence[int]) -> str:
        wanted = self.log.config.min_insync_replicas
        return f"the ISR of {self.topic}-{self.index} is {list(isr)} and min.insync.replicas is {wanted}"

    # --- replication

    @property
    def isr(self) -> tuple[int, ...]:
        """The committed ISR, as broker ids."""
        return (self.broker_id,) if self.in_sync is None else self.in_sync.state.isr

    @property
    def replicas(self) -> tuple[int, ...]:
        """The ids of the brokers that the partition is assigned to."""
        return (self.broker_id,) if self.in_sync is None else self.in_sync.replicas

    def when_replicated(self, offset: int, timeout_s: float, done: Replicated) -> None:
        """Call `done(None)` when the high watermark has reached `offset`, or `done(error)` if it does not reach it.

        `done` is called before this call returns, or later on any thread. The errors are REQUEST_TIMED_OUT after
        `timeout_s` seconds, NOT_ENOUGH_REPLICAS_AFTER_APPEND if the ISR is too small by then, and the error of
        `remove`, unless this broker keeps leading the partition.
        """
        if self.log.high_watermark < offset:
            self._waits.add(offset, timeout_s, done)
            # Between the comparison and `add`, another thread may have advanced the high watermark, or removed the
            # partition. That thread did not find this wait, so check again.
            if self.log.high_watermark >= offset or self._last_epoch().gone is not None:
                self._complete_waits()
        else:
            last = self if self.gone is None else self._last_epoch()  # after the high watermark was read
            done(last.gone or last._isr_error())

    def _last_epoch(self) -> Partition:
        """Return the partition in the last of the leader epochs in which this broker has led it without interruption.

        If that partition is gone, another broker may lead by now. The log may then have been truncated, and its high
        watermark may count records of that leader at the same offsets. So a caller that compares an offset with the
        high watermark reads the high watermark first, and `gone` of the result after that: while it is None, nothing
        has been truncated.
        """
        partition = self
        # `gone` is read before `successor`, which is set first.
        while partition.gone is not None and partition.successor is not None:
            partition = partition.successor
        return partition

    def check_replica(self, broker_id: int, current_leader_epoch: int) -> None:
        """Raise KafkaError if a Fetch request comes from a broker that is not, or not yet, among the replicas.

        UNKNOWN_LEADER_EPOCH if the request has a leader epoch, else NOT_LEADER_OR_FOLLOWER; the broker retries.
        """
        if self.in_sync is None or broker_id not in self.in_sync.followers:
            code = Errors.UNKNOWN_LEADER_EPOCH if current_leader_epoch >= 0 else Errors.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code, f"broker {broker_id} is not among the replicas {list(self.replicas)} of {self}")

    def follower_fetched(self, broker_id: int, fetch_offset: int, start_offset: int, leader_end: int) -> None:
        """Note the Fetch request of a follower: it has all records below `fetch_offset`, and its log starts at
        `start_offset`.

        Called when the request arrives, with the log end offset before its records were read. May advance the high
        watermark, and ask the controller to add the follower to the ISR. Does nothing if the broker is no replica.
        """
        in_sync = self.in_sync
        if in_sync is None:
            return
        moved, change = in_sync.fetched(broker_id, fetch_offset, start_offset, leader_end, self._end())
        if moved:
            self._high_watermark_moved()
        if change is not None:
            self._ask_controller(change)
        if self._isr_env is not None and self._isr_env.deletions.keys:  # the follower's log start may have moved
            self._isr_env.deletions.check((self.topic, self.index))

    def shrink_isr(self) -> None:
        """Ask the controller to remove followers from the ISR that are not caught up. For the task that runs every
        replica.lag.time.max.ms / 2.
        """
        if self.in_sync is not None and self.gone is None:
            change = self.in_sync.shrink()
            if change is not None:
                self._ask_controller(change)

    def brokers_gone(self, broker_ids: Collection[int]) -> None:
        """Wait no longer for followers on these brokers, which are not alive any more."""
        if self.in_sync is None or self.gone is not None:
            return
        if self.in_sync.brokers_gone(broker_ids, self._end()):
            self._high_watermark_moved()
        if self._isr_env is not None and self._isr_env.deletions.delayed:  # the low watermark is that of live replicas
            self._isr_env.deletions.check((self.topic, self.index))

    def advance(self) -> None:
        """Advance the high watermark as far as possible."""
        self._advance(self._end())

    def _ask_controller(self, change: IsrChange) -> None:
        assert self._isr_env is not None
        if not self._isr_env.submit(change, partial(self._isr_answered, change)):
            self._isr_answered(change, KafkaError(Errors.OPERATION_NOT_ATTEMPTED, "another change is waiting"))

    def _isr_answered(self, change: IsrChange, result: WrittenIsr | KafkaError) -> None:
        """Apply the controller's answer to a change of the ISR. Called on any thread, without a lock."""
        assert self.in_sync is not None
        moved, again = self.in_sync.answered(change, result, self._end())
        self.partition_epoch = self.in_sync.state.partition_epoch
        if moved:
            self._high_watermark_moved()
        if again:
            self._timer.schedule(RETRY_S, partial(self._ask_again, change))

    def _ask_again(self, change: IsrChange) -> None:
        assert self.in_sync is not None
        if self.in_sync.is_pending(change):
            self._ask_controller(change)

    def _isr_error(self) -> KafkaError | None:
        if self.in_sync is None:
            return None
        isr = self.in_sync.state.maximal
        if len(isr) >= self.in_sync.min_isr:
            return None
        return KafkaError(
            Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, f"{self._in_words(isr)}: the ISR shrank after the append"
        )

    def _complete_waits(self) -> None:
        high_watermark = self.log.high_watermark
        last = self._last_epoch()  # after the high watermark was read
        if last.gone is not None:
            last._waits.end(last.gone)
        elif last._waits.pending:
            last._waits.advance(high_watermark, last._isr_error())

    def _write(self, sets: Sequence[Records], long: bool) -> tuple[list[Verdict], bool]:
        """Append record sets, as the `write` function of the AppendQueue.

        Return (a verdict for each set, whether a flush is needed before producers get their responses).
        """
        if self.gone is not None:
            return [self.gone] * len(sets), False
        if long:  # without `_observe`: the time of a conversion says nothing about the disk
            verdicts = self._convert(sets)
        else:
            verdicts = self._write_now(sets)
            self._observe(sets)
        end = self._end_without_flush()
        if end is None:
            return verdicts, True
        self._advance(end)
        return verdicts, False

    def _observe(self, sets: Sequence[Records]) -> None:
        # The time of the write system call alone. A wait for the GIL or for a CPU says nothing about the disk. If such
        # a wait counted as a stall, appends would move to pool threads, which wait for the GIL too: the stall would
        # never end.
        self._stall.observe(self.log.write_seconds, sum(map(len, sets)))

    def _convert(self, sets: Sequence[Records]) -> list[Verdict]:
        """Append sets of old formats, a few at a time; return a verdict for each set.

        If the partition is removed or the broker stops in between, the remaining sets are refused: a hostile request
        may have a thousand sets that take a second each.
        """
        verdicts: list[Verdict] = []
        while len(verdicts) < len(sets):
            refusal = self.gone or self.ending
            if refusal is not None:
                return verdicts + [refusal] * (len(sets) - len(verdicts))
            verdicts += self._write_now(sets[len(verdicts) : len(verdicts) + CONVERTED_AT_ONCE])
        return verdicts

    def _write_now(self, sets: Sequence[Records]) -> list[Verdict]:
        verdicts = self.log.append(sets, self.leader_epoch, flush=False)
        assert not isinstance(verdicts, Busy)
        return verdicts

    def _flush(self) -> None:
        self.log.flush()
        partition = self
        while partition.successor is not None:  # only it may move the high watermark now
            partition = partition.successor
        partition._advance(self.log.recovery_point)

    def _end_without_flush(self) -> int | None:
        """Return the log end offset if records up to it may be acknowledged now, None if the records need a flush
        first.
        """
        # The end is read first: records that another thread appends before `is_flush_due` is read may need a flush,
        # and are then not below this end.
        log = self.log
        end = log.end[0]
        return None if log.is_flush_due else end

    def _end(self) -> int:
        """Return the offset up to which this leader may acknowledge records now."""
        log = self.log
        end = log.end[0]  # read first, see `_end_without_flush`
        return log.recovery_point if log.is_flush_due else end

    def _advance(self, end: int) -> None:
        """Advance the high watermark as far as `end` (the leader's log end offset) and the followers allow, and wake
        the waiters.

        The waiters are delayed fetches, of consumers and of followers, and acks=all appends.
        """
        log = self.log
        if self.in_sync is None:
            log.advance_high_watermark(end, self.leader_epoch)
            self._high_watermark_moved()
            return
        moved = self.in_sync.advance(end)
        if log.end_watchers:
            log.notify_end_watchers()
        if moved:
            self._high_watermark_moved()
        else:
            self.on_change(self)  # followers may wait for the log's end

    def _high_watermark_moved(self) -> None:
        """Wake what waits for the high watermark."""
        log = self.log
        if log.watchers:
            log.notify_watchers()
        if self._waits.pending:
            self._complete_waits()
        self.on_change(self)

    def delete_records(self, before: int) -> int:
        """Advance the log start offset to `before` (-1: to the high watermark), and return that offset. The followers
        have deleted these records, too, when `low_watermark` has reached it.

        Raises KafkaError POLICY_VIOLATION if cleanup.policy does not include delete, OFFSET_OUT_OF_RANGE if `before` is
        negative or above the high watermark, and the error of `remove`.
        """
        self.check_there()
        log = self.log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(
                Errors.POLICY_VIOLATION,
                f"{self.topic} has cleanup.policy={','.join(sorted(log.config.cleanup_policy))}: "
                "records can be deleted only where it holds delete",
            )
        target = log.high_watermark if before == -1 else before
        if not 0 <= target <= log.high_watermark:
            raise KafkaError(
                Errors.OFFSET_OUT_OF_RANGE,
                f"cannot delete before {before}: the high watermark of {self.topic}-{self.index} is "
                f"{log.high_watermark}",
            )
        log.delete_records(target)
        self.on_change(self)  # fetches that wait below the new start get an error now
        return target

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the live replicas."""
        return self.log.log_start_offset if self.in_sync is None else self.in_sync.low_watermark

    def hand_over(self, successor: Partition) -> None:
        """Let appends that wait for replication wait in `successor`, in which this broker leads the partition in a
        later leader epoch: the records stay in the log, so their producers get no error, as in Kafka. What is known of
        the followers is kept, too.

        Called before `successor` takes appends. `remove` is called afterwards.
        """
        successor._waits = self._waits
        if self.in_sync is not None and successor.in_sync is not None:
            successor.in_sync.take_over(self.in_sync)
        self.successor = successor

    def precedes(self, later: Partition) -> bool:
        """Return True if this broker has led the partition in all leader epochs from this one to `later`."""
        partition = self.successor
        while partition is not None and partition is not later:
            partition = partition.successor
        return partition is later

    def remove(self, why: KafkaError) -> None:
        self.gone = why
        self._queue.end(why)
        if self.in_sync is not None:
            self.in_sync.end()
        self._complete_waits()
        super().remove(why)
        if self._isr_env is not None:
            self._isr_env.deletions.check((self.topic, self.index))
