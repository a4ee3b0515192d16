"""A partition that this broker leads: the log, the leader epoch and the high watermark over it.

Source: kafka.cluster.Partition. With one replica the in-sync set is the leader alone, so the high watermark
follows the log's end as soon as an append is in the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.partition_log import AppendResult, PartitionLog, ReadResult
from kafkapy.log.results import CLIENT, Busy
from kafkapy.replica.append_queue import AppendQueue

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

CONVERTED_AT_ONCE = 8  # sets of old formats between two looks whether anybody waits for them

Verdict = AppendResult | KafkaError


class Partition:
    """A leader replica. Appends come from any thread; reads take no lock."""

    __slots__ = (
        "_advancing",
        "_queue",
        "_stall",
        "broker_id",
        "ending",
        "gone",
        "index",
        "leader_epoch",
        "log",
        "on_append",
        "topic",
    )

    def __init__(
        self,
        log: PartitionLog,
        *,
        broker_id: int,
        leader_epoch: int,
        append_pool: Any,
        conversion_pool: Any = None,
        stall: Any,
        on_append: Callable[[Partition], object],
    ) -> None:
        self.topic = log.topic
        self.index = log.partition
        self.log = log
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.on_append = on_append
        self.ending: KafkaError | None = None  # set once when nobody can be answered: no long work is begun any more
        self.gone: KafkaError | None = None  # set once when the partition is deleted or its directory went offline
        self._stall = stall
        self._advancing = threading.Lock()
        self._queue = AppendQueue(append_pool, self._write, self._flush, conversion_pool)

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, leader epoch {self.leader_epoch}, {self.log})"

    def check_there(self) -> None:
        """Raises what it ended with. A new one each time: an exception that is kept would keep every traceback."""
        if self.gone is not None:
            raise KafkaError(self.gone.code, self.gone.message)

    # --- appends

    def append(
        self, sets: Sequence[memoryview], done: Callable[[list[Verdict]], None] | None, origin: int = CLIENT
    ) -> list[Verdict] | None:
        """Appends record sets of one origin, each with its own verdict; the caller has asked `refusal`.

        Answers at once where that needs no waiting. Otherwise answers None, keeps the views, and calls
        `done(verdicts)` from a pool thread. With `done=None` it waits instead (never on a network thread).
        """
        if self.gone is not None:
            return [self.gone] * len(sets)
        if done is None:
            return self._append_waiting(sets, origin)
        if not self._queue.busy and not self._stall.stalled:
            try:
                verdicts = self.log.append(sets, self.leader_epoch, origin=origin, blocking=False, flush=False)
            except LogDirFailure as failure:
                return [failure] * len(sets)
            if not isinstance(verdicts, Busy):
                self._observe(sets)
                if self.log.is_flush_due:
                    self._queue.put_written(sets, verdicts, done)
                    return None
                self._appended()
                return verdicts
        self._queue.put(sets, done, long=self.log.is_long_work(sets), origin=origin)
        return None

    def refusal(self, acks: int) -> KafkaError | None:
        """Why a request that wants these `acks` may not append here."""
        wanted = self.log.config.min_insync_replicas
        if acks == -1 and wanted > 1:
            return KafkaError(
                Errors.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has 1 in-sync replica and min.insync.replicas is {wanted}",
            )
        return None

    def _append_waiting(self, sets: Sequence[memoryview], origin: int) -> list[Verdict]:
        if self.gone is not None:
            return [self.gone] * len(sets)
        verdicts, to_flush = self._write(sets, origin)
        if to_flush:
            self._flush()
        return verdicts

    def _write(self, sets: Sequence[memoryview], origin: int) -> tuple[list[Verdict], bool]:
        """The verdicts, and whether a flush is due before they may be told."""
        if self.gone is not None:
            return [self.gone] * len(sets), False
        if self.log.is_long_work(sets):  # the time that it takes says nothing of the disk
            verdicts = self._convert(sets, origin)
        else:
            verdicts = self._write_now(sets, origin)
            self._observe(sets)
        if self.log.is_flush_due:
            return verdicts, True
        self._appended()
        return verdicts, False

    def _observe(self, sets: Sequence[memoryview]) -> None:
        # The system call alone: waiting for the interpreter's lock, or for a core, says nothing of the disk, and a
        # pool that is taken for a slow disk for that would go on waiting for it.
        self._stall.observe(self.log.write_seconds, sum(map(len, sets)))

    def _convert(self, sets: Sequence[memoryview], origin: int) -> list[Verdict]:
        """A few sets at a time: a hostile request may hold a thousand that take a second each."""
        verdicts: list[Verdict] = []
        while len(verdicts) < len(sets):
            refusal = self.gone or self.ending
            if refusal is not None:
                return verdicts + [refusal] * (len(sets) - len(verdicts))
            verdicts += self._write_now(sets[len(verdicts) : len(verdicts) + CONVERTED_AT_ONCE], origin)
        return verdicts

    def _write_now(self, sets: Sequence[memoryview], origin: int) -> list[Verdict]:
        verdicts = self.log.append(sets, self.leader_epoch, origin=origin, blocking=True, flush=False)
        assert not isinstance(verdicts, Busy)
        return verdicts

    def _flush(self) -> None:
        self.log.flush()
        self._appended(self.log.recovery_point)

    def _appended(self, end: int | None = None) -> None:
        """Readers see the log up to its end, or up to `end`."""
        # Another processor or the pool may append at the same time. Without the lock one of them could read the end,
        # be overtaken by the other's longer end, and take the high watermark back to its own: consumers would then
        # not see acknowledged records until the next append.
        log = self.log
        with self._advancing:
            log.set_high_watermark(log.log_end_offset if end is None else max(end, log.high_watermark))
        if log.watchers:
            log.tell()
        self.on_append(self)

    # --- reads

    def check_epoch(self, current_leader_epoch: int) -> None:
        """KIP-320: a client that knows another epoch than ours has stale metadata, or we have."""
        self.check_there()
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(
                Errors.FENCED_LEADER_EPOCH,
                f"leader epoch {current_leader_epoch} is over: {self.topic}-{self.index} is at {self.leader_epoch}",
            )
        raise KafkaError(
            Errors.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {current_leader_epoch} has not come to {self.topic}-{self.index}: {self.leader_epoch}",
        )

    def end_offset(self, isolation: int) -> int:
        """Where a consumer's reads end: the high watermark, or with read_committed the last stable offset."""
        log = self.log
        return log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark

    def read(
        self, offset: int, max_bytes: int, isolation: int, *, min_one: bool, cut: bool = False, blocking: bool
    ) -> ReadResult | Busy:
        """A region of batches from `offset` (the last may be cut), or KafkaError OFFSET_OUT_OF_RANGE.

        See PartitionLog.read. BUSY, with `blocking=False`, where finding the place has to wait for the disk.
        """
        return self.log.read(
            offset, max_bytes, min_one=min_one, cut=cut, max_offset=self.end_offset(isolation), blocking=blocking
        )

    def delete_records(self, before: int) -> int:
        """Moves the log start offset up to `before` (-1: the high watermark) and returns it."""
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
        self.on_append(self)  # readers below the new start wait for nothing any more
        return log.log_start_offset

    def remove(self, why: KafkaError) -> None:
        """The partition ends here: what waits on it is woken and told `why`."""
        self.gone = why
        self._queue.end(why)
        self.log.tell()
        self.on_append(self)
