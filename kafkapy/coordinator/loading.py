"""Loading a shard: its machine is shown every batch of the log, as a restart or a new leader finds it.

What clients ask for comes first. A batch that is not whole and right ends the load of this shard alone: it answers
NOT_COORDINATOR from then on, because a state with a hole in it would give wrong offsets, or forget a transaction.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.shard import ACTIVE, FAILED, Machine, Shard
from kafkapy.errors import KafkaError, ProtocolError
from kafkapy.log.results import Busy
from kafkapy.record import legacy
from kafkapy.runtime.logs import fields

if TYPE_CHECKING:
    from kafkapy.replica.partition import Partition

log = logging.getLogger("kafkapy.coordinator.loading")

# Most of a load runs in C without the interpreter's lock, so a second thread is worth having on two cores. A third
# would only take the network thread's turns.
THREADS = 2
LARGE, SLOW_S = 1 << 20, 1.0  # a load is worth a line that everybody sees from here on: there may be a hundred shards


class LoadStopped(Exception):
    """The shard has ended, or the broker ends."""


# Shows a machine the whole batches that a block of the log begins with; answers the offset after the last of them.
# Raises ValueError, ProtocolError.
Replay = Callable[[Any, memoryview], int]


def replay_batches(machine: Machine, block: memoryview) -> int:
    """The Replay of a machine that takes one batch after the other."""
    after = -1
    header: Any  # a batch of format 2, or a message of the formats before, which offers the same
    for header in legacy.iter_entries(block):
        legacy.check(block, header)
        try:
            machine.replay(header, block)
        except (ProtocolError, ValueError) as reason:
            raise ValueError(f"the batch at offset {header.last_offset}: {reason}") from reason
        after = header.last_offset + 1
    return after


def load(
    shard: Shard[Any], partition: Partition, replay: Replay, block_bytes: int, stopping: Callable[[], bool]
) -> None:
    """Replays the log into the shard's machine and activates it, or fails it with one line that says why."""
    began = time.monotonic()
    try:
        count = _load(shard, partition, replay, block_bytes, stopping)
    except LoadStopped:
        return
    except (KafkaError, ProtocolError, ValueError) as reason:
        log.error(
            "%s cannot be loaded, and for what is in it this broker answers NOT_COORDINATOR until it is mended and the "
            "broker started again: %s (`kafkapy log verify %s` says more)",
            shard.name,
            reason,
            partition.log.directory,
        )
        shard.end(FAILED)
        return
    except Exception:
        log.exception("%s cannot be loaded, and this broker answers NOT_COORDINATOR for what is in it", shard.name)
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
    """The bytes that were read. Markers of transactions may be appended meanwhile, so the end is looked at again."""
    partition_log = partition.log
    offset = partition_log.log_start_offset
    count = 0

    def is_complete() -> bool:
        return offset >= partition_log.log_end_offset

    while not shard.begin(is_complete):
        if stopping() or shard.has_ended or partition.gone is not None:
            raise LoadStopped
        end = partition_log.log_end_offset
        read = partition_log.read(offset, block_bytes, min_one=True, max_offset=end)
        assert not isinstance(read, Busy)
        region = read.region
        if region is None:  # compaction has left nothing up to the end
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
    """The shards that wait to be loaded, and the threads that do it, which end when nothing waits."""

    def __init__(self, threads: int = THREADS) -> None:
        self._limit = threads
        self._changed = threading.Condition()
        self._waiting: dict[Any, Callable[[], None]] = {}  # in order; what is hastened is taken out and comes first
        self._first: dict[Any, Callable[[], None]] = {}
        self._running = 0
        self.stopped = False

    def put(self, key: Any, job: Callable[[], None]) -> None:
        """Runs `job` on a thread; jobs whose `key` is hastened come before others."""
        with self._changed:
            if self.stopped:
                return
            self._waiting[key] = job
            if self._running < self._limit:
                self._running += 1
                threading.Thread(target=self._run, name="kafkapy-coordinator-load", daemon=True).start()

    def hasten(self, key: Any) -> None:
        """A client asks for it. Harmless when it is loaded, or being loaded."""
        if key not in self._waiting:  # most calls; the lock is not for a network thread to wait for
            return
        with self._changed:
            job = self._waiting.pop(key, None)
            if job is not None:
                self._first[key] = job

    def stop(self) -> None:
        """Waits for those that are at it, which look at `stopped`."""
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
                log.exception("a load failed")

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            for jobs in (self._first, self._waiting):
                if jobs:
                    return jobs.pop(next(iter(jobs)))
            self._running -= 1
            self._changed.notify_all()
            return None
