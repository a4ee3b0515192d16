"""Loads shards (partitions of an internal topic with their state machines) by replaying the partition's log into the
state machine. Shards that clients wait for are loaded first.

A damaged batch makes only the load of its own shard fail. The broker then answers NOT_COORDINATOR for the shard's keys,
because a state with missing records would return wrong offsets or lose a transaction.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.shard import ACTIVE, FAILED, LOADING, Machine, Shard
from kafkapy.errors import Errors, KafkaError, ProtocolError
from kafkapy.log.failures import Shortage
from kafkapy.log.results import Busy
from kafkapy.record import legacy
from kafkapy.runtime.logs import fields
from kafkapy.runtime.threads import NoThread, Thread

if TYPE_CHECKING:
    from kafkapy.replica.partition import Partition

log = logging.getLogger("kafkapy.coordinator.shard_loader")

# Most of a load runs in C without the GIL, so a second thread helps on two cores. A third would only compete with the
# network thread.
THREADS = 2
# loads of at least this size or duration are logged at INFO, others at DEBUG: there may be a hundred shards
LARGE, SLOW_S = 1 << 20, 1.0


class LoadStopped(Exception):
    """Raised to stop loading a coordinator's partition (shard), because this broker has lost the partition or is
    stopping."""


# Loads the complete batches at the start of a block of the log into a machine and returns the offset after the last of
# them. Raises ValueError, ProtocolError.
Replay = Callable[[Any, memoryview], int]


def replay_batches(machine: Machine, block: memoryview) -> int:
    """Pass each batch of a block of the log to `machine.replay`, and return the offset after the last batch, or -1 if
    the block has no complete batch.

    This is the Replay function for state machines that read batches one by one. Raises ValueError for a batch that is
    damaged or cannot be decoded.
    """
    after = -1
    header: Any  # a batch of format 2, or a message of an older format, which has the same attributes
    for header in legacy.iter_entries(block):
        legacy.check(block, header)
        try:
            machine.replay(header, block)
        except (ProtocolError, ValueError) as reason:
            raise ValueError(f"the batch at offset {header.last_offset} cannot be read: {reason}") from reason
        after = header.last_offset + 1
    return after


def load(
    shard: Shard[Any], partition: Partition, replay: Replay, block_bytes: int, stopping: Callable[[], bool]
) -> None:
    """Rebuild the state of a coordinator's shard from its partition's log, and make the shard active. On an error, log
    the reason and mark the shard as failed.

    The log is read in blocks of `block_bytes` bytes, which `replay` loads into the state machine. The load stops when
    `stopping()` returns True. Raises Shortage or MemoryError if file descriptors or memory ran out: then the shard is
    still loading, its machine may have a part of the log, and the caller has to try again with an empty one.
    """
    began = time.monotonic()
    try:
        count = _load(shard, partition, replay, block_bytes, stopping)
    except LoadStopped:
        return
    except (Shortage, MemoryError):
        if shard.state == LOADING:
            raise
        shard.end(FAILED)
        return
    except (KafkaError, ProtocolError, ValueError) as reason:
        log.error(
            "%s cannot be loaded; this broker answers NOT_COORDINATOR for its keys until the log is "
            "repaired and the broker restarted: %s (see `kafkapy log verify %s`)",
            shard.name,
            reason,
            partition.log.directory,
        )
        shard.end(FAILED)
        return
    except Exception:
        log.exception(
            "%s cannot be loaded; this broker answers NOT_COORDINATOR for its groups or transactions", shard.name
        )
        shard.end(FAILED)
        return
    if shard.state != ACTIVE:
        return
    seconds = shard.load_s = time.monotonic() - began
    level = logging.INFO if count >= LARGE or seconds > SLOW_S else logging.DEBUG
    log.log(level, "loaded", extra=fields(shard=shard.name, bytes=count, seconds=f"{seconds:.3f}"))


def _load(
    shard: Shard[Any], partition: Partition, replay: Replay, block_bytes: int, stopping: Callable[[], bool]
) -> int:
    """Replay the partition's log up to its end, make the shard active, and return the number of bytes read.

    Transaction markers may be appended during the load, so the log end offset is checked again under the shard's lock.
    Raises LoadStopped if the shard has ended or the broker is stopping.
    """
    partition_log = partition.log
    offset = partition_log.log_start_offset
    count = 0

    def is_complete() -> bool:
        return offset >= partition_log.log_end_offset

    while not shard.begin(is_complete):
        if stopping() or shard.has_ended or partition.gone is not None:
            raise LoadStopped
        end = partition_log.log_end_offset
        try:
            read = partition_log.read(offset, block_bytes, min_one=True, max_offset=end)
        except KafkaError as error:
            if error.code != Errors.OFFSET_OUT_OF_RANGE or offset >= partition_log.log_start_offset:
                raise
            offset = partition_log.log_start_offset  # retention has deleted segments during the load
            continue
        assert not isinstance(read, Busy)
        region = read.region
        if region is None:  # compaction removed everything up to the end
            offset = end
            continue
        block = region.read()
        where = f"{region.handle.path}, from byte {region.position} on"
        try:
            after = replay(shard.machine, memoryview(block))
        except (ProtocolError, ValueError) as reason:
            raise ValueError(f"{where}: {reason}") from reason
        if after <= offset:
            raise ValueError(f"{where}: no batch with offset {offset}")
        offset = after
        count += len(block)
    return count


class LoadQueue:
    """A queue of jobs that load shards (partitions of an internal topic with their state machines), and up to `threads`
    threads that run the jobs. A thread exits when the queue is empty.

    If no thread can be started, the next call of `put` or `prioritize` tries to start one again.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._limit = threads
        self._changed = threading.Condition()
        self._waiting: dict[Any, Callable[[], None]] = {}  # in order; `prioritize` moves a job to `_first`
        self._first: dict[Any, Callable[[], None]] = {}
        self._running = 0
        self._is_short = False  # the last attempt to start a thread failed, and that was logged
        self.stopped = False

    def put(self, key: Any, job: Callable[[], None]) -> None:
        """Queue `job` to run on a load thread. `key` identifies the job for `prioritize`. After `stop` this does
        nothing."""
        with self._changed:
            if self.stopped:
                return
            self._waiting[key] = job
            self._start_thread()

    def _start_thread(self) -> None:
        """Start one more load thread unless the limit is reached. The caller holds the lock.

        The new thread must take the lock before it can exit, so `_running` already counts the thread by then.
        """
        if self._running == self._limit:
            return
        try:
            Thread(self._run, "kafkapy-shard-load").start()
        except NoThread as error:
            if not self._is_short:
                self._is_short = True
                log.error("coordinators are loaded by %d of %d threads: %s", self._running, self._limit, error)
            return
        self._is_short = False
        self._running += 1

    def prioritize(self, key: Any) -> None:
        """Move the job with this key to the front of the queue, because a client waits for it. Do nothing if the job
        has already begun."""
        # This is true for most calls, and saves a network thread from waiting for the lock.
        if key not in self._waiting and self._running:
            return
        with self._changed:
            job = self._waiting.pop(key, None)
            if job is not None:
                self._first[key] = job
            if self._first and not self._running:
                self._start_thread()

    def stop(self) -> None:
        """Discard the queued jobs and wait until the running jobs have ended. Running jobs end early because they check
        `stopped`."""
        with self._changed:
            self.stopped = True
            self._waiting.clear()
            self._first.clear()
            self._changed.wait_for(lambda: not self._running)

    def _run(self) -> None:
        while job := self._next():
            try:
                job()
            except Exception:
                log.exception("a job of the load queue failed")

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            for jobs in (self._first, self._waiting):
                if jobs:
                    return jobs.pop(next(iter(jobs)))
            self._running -= 1
            self._changed.notify_all()
            return None
