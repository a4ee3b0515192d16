"""Moves partitions between the log directories of this broker, on separate threads.

`num.replica.alter.log.dirs.threads` partitions are moved at a time, by default as many as there are log directories;
the others wait. Each copy is written a piece at a time until it has caught up, and then replaces the partition's log.
It does not matter whether this broker leads or follows the partition. Source: ReplicaManager.alterReplicaLogDirs,
ReplicaAlterLogDirsManager and ReplicaAlterLogDirsThread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.directories.log_dir import LogDir
from kafkapy.log.failures import LogDirFailure, Shortage
from kafkapy.log.manager import LogManager
from kafkapy.log.moves.copying import copy_piece
from kafkapy.log.partition_log import PartitionLog
from kafkapy.replica.throttles import Throttle
from kafkapy.replica.truncation import UNDEFINED, EpochEnd, divergence, truncation
from kafkapy.runtime.disk_pool import DiskPool, PoolStopped
from kafkapy.runtime.threads import NoThread

PIECE = 1 << 20  # bytes that are copied at a time, as replica.fetch.max.bytes in Kafka
_THROTTLED_S = 0.1  # between two checks if the throttle lets the copy continue
_RETRY_S = 10.0  # after an error such as a full disk

_log = logging.getLogger("kafkapy.replica.log_dir_moves")


class LogDirMoves:
    """The moves of partitions between log directories."""

    def __init__(
        self,
        log_manager: LogManager,
        *,
        threads: int,
        throttle: Throttle,
        is_known: Callable[[str, int], bool] = lambda topic, index: False,
        on_moved: Callable[[str, int], object] = lambda topic, index: None,
    ) -> None:
        """`throttle` limits the bytes per second. `is_known(topic, index)` returns True if the cluster has the
        partition. `on_moved(topic, index)` is called after each move.
        """
        self._logs = log_manager
        self._throttle = throttle
        self._is_known = is_known
        self._on_moved = on_moved
        self._pool = DiskPool(max(threads, 1), "log-dir-move")
        self._stopping = threading.Event()
        log_manager.futures.on_loaded = self._resume

    def alter(self, topic: str, index: int, path: str) -> None:
        """Begin to move a partition to the log directory `path`; a move of it to another directory ends.

        Waits for the disk, but not for the copy. Raises KafkaError: LOG_DIR_NOT_FOUND if `path` is not in log.dirs,
        KAFKA_STORAGE_ERROR if a log directory is offline, INVALID_TOPIC_EXCEPTION if the name is too long for a future
        log, UNKNOWN_TOPIC_OR_PARTITION. A partition whose log does not exist gets REPLICA_NOT_AVAILABLE, and its log
        will be created in that directory.
        """
        log_dir = self._directory(topic, index, path)
        log = self._log_of(topic, index, log_dir)
        log.env.check()
        if self._logs.futures.create(log, log_dir):
            _log.info("%s begins to move from %s to %s", log.name, log.env.log_dir, path)
            self._begin(log)

    def _directory(self, topic: str, index: int, path: str) -> LogDir:
        if len(names.future_dir_name(topic, index).encode()) > names.NAME_MAX:
            raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"the name of {topic} is too long to move its partitions")
        if path not in {str(one) for one, _ in self._logs.directories()}:
            raise KafkaError(Errors.LOG_DIR_NOT_FOUND, f"{path!r} is not one of the directories in log.dirs")
        log_dir = next((one for one in self._logs.online_dirs() if str(one.path) == path), None)
        if log_dir is None:
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, f"log directory {path} is offline")
        return log_dir

    def _log_of(self, topic: str, index: int, log_dir: LogDir) -> PartitionLog:
        log = self._logs.get(topic, index)
        if log is not None:
            return log
        if self._logs.is_loading(topic, index):
            raise KafkaError(Errors.REPLICA_NOT_AVAILABLE, f"the log of {topic}-{index} is being recovered")
        if not self._is_known(topic, index):
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        self._logs.preferred[topic, index] = log_dir
        raise KafkaError(Errors.REPLICA_NOT_AVAILABLE, f"this broker has no replica of {topic}-{index} yet")

    def _resume(self, log: PartitionLog) -> None:
        """Continue the move of a log that was just loaded, and was being moved when the broker stopped."""
        future = log.future
        if future is not None:
            _log.info("%s continues to move from %s to %s", log.name, log.env.log_dir, future.env.log_dir)
            self._begin(log)

    def moving(self) -> list[PartitionLog]:
        """Return the logs that are being moved, or wait for that."""
        return [log for log in self._logs if log.future is not None]

    def max_lag(self) -> int:
        """Return the largest number of offsets by which a copy is behind its log."""
        futures = ((log, log.future) for log in self.moving())
        return max((log.end[0] - future.end[0] for log, future in futures if future is not None), default=0)

    def stop(self) -> None:
        """Interrupt all moves, and return when no thread copies any more. The next start continues them."""
        self._stopping.set()
        self._pool.stop()

    # --- on a thread of the pool

    def _begin(self, log: PartitionLog) -> None:
        future = log.future
        try:
            self._pool.submit(self._run, log, future)
        except PoolStopped:
            return
        except NoThread as error:
            self._give_up(log, future, f"no thread: {error}")

    def _run(self, log: PartitionLog, future: PartitionLog) -> None:
        """Move a log. Errors are logged; only the partition's move ends."""
        where = future.env.log_dir
        try:
            with suppress(Interrupted):
                while log.future is future:
                    if self._try_to_move(log, future):
                        self._on_moved(log.topic, log.partition)
                        return
        except LogDirFailure as error:  # logged by Environment.failed
            if error.log_dir == where:
                self._give_up(log, future, error.message)
        except KafkaError as error:
            self._give_up(log, future, error.message)
        except Exception as error:
            _log.exception("moving %s", log.name)
            self._give_up(log, future, str(error))

    def _give_up(self, log: PartitionLog, future: PartitionLog | None, why: str) -> None:
        """Remove a future log, unless the log was deleted or closed, or goes to another directory by now."""
        if log.future is not future or log.closed:
            return
        _log.error("%s is not moved: %s", log.name, why)
        with suppress(KafkaError):  # reported by the log directory
            self._logs.futures.cancel(log)

    def _truncate(self, log: PartitionLog, future: PartitionLog) -> None:
        """Cut a future log, perhaps one of an earlier run, to what it has in common with its log (KIP-279)."""
        agree = False
        while not agree and future.end[0] > future.log_start_offset:
            epoch, end = future.leader_epochs.latest_epoch, future.end[0]
            if epoch == UNDEFINED:
                future.truncate_to(min(end, log.high_watermark))
                return
            diverging = divergence(EpochEnd(*log.end_offset_for_epoch(epoch)), epoch, end)
            if diverging is None or diverging.epoch == UNDEFINED:
                # An epoch later than all of the log's epochs has no records in the log.
                agree = diverging is None
                to = future.leader_epochs.entries[-1].start_offset if not agree else end
            else:
                own = EpochEnd(*future.end_offset_for_epoch(diverging.epoch))
                to, agree = truncation(diverging, own, end)
            if not agree or to < end:  # to the end as well: that removes an epoch without records
                future.truncate_to(to)

    def _try_to_move(self, log: PartitionLog, future: PartitionLog) -> bool:
        """Cut the future log, copy what is missing, and complete the move. Return False if this has to be repeated."""
        try:
            self._truncate(log, future)
            self._catch_up(log, future)
            self._logs.futures.prepare(log)
            self._catch_up(log, future)  # with what was appended during the syncs
            self._logs.futures.complete(log, PIECE)
        except Shortage as error:
            _log.warning("moving %s is tried again in %d s: %s", log.name, _RETRY_S, error.message)
            self._wait(_RETRY_S)
            return False
        return True

    def _catch_up(self, log: PartitionLog, future: PartitionLog) -> None:
        """Copy until less than a piece is missing. The end of the log may never be reached while producers are busy."""
        copied: int | None = PIECE
        while copied is not None and (copied >= PIECE // 2 or future.end[0] < log.segments.active.base_offset):
            while self._throttle.is_exceeded():
                self._wait(_THROTTLED_S)
            self._wait(0)
            with future.upkeep.interrupting():
                copied = copy_piece(log, future, PIECE)
            if copied:
                self._throttle.record(copied)

    def _wait(self, seconds: float) -> None:
        """Wait, and raise Interrupted if the broker stops."""
        if self._stopping.wait(seconds):
            raise Interrupted


class Interrupted(Exception):
    """Raised to end a move because the broker stops."""
