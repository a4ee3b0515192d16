"""The future logs of a broker: create, load and delete them, and let them replace their logs.

A future log is the copy of a log in another log directory, named TOPIC-PARTITION.UNIQUE-future as in Kafka. The log
refers to it (`PartitionLog.future`). Clients do not read it, and only the copying appends to it. A log with a future
log is not compacted: otherwise a tombstone could be removed before it was copied, when older records of its key already
were. Source: LogManager.getOrCreateLog, replaceCurrentWithFutureLog and abortAndPauseCleaning.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.moves.swapping import prepare, swap
from kafkapy.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from kafkapy.log.directories.log_dir import LogDir, TopicPartition
    from kafkapy.log.manager import LogManager

_log = logging.getLogger(__name__)


class FutureLogs:
    """Creates and removes the future logs of a LogManager. All methods may wait for the disk."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        # Called on a loading thread with each log that was loaded with a future log, so that the copy is continued.
        self.on_loaded: Callable[[PartitionLog], object] = lambda log: None
        # The log directories and paths of the future logs that were found at the start, until they are adopted.
        self.not_loaded: dict[TopicPartition, tuple[LogDir, str]] = {}
        self._changing = threading.Lock()  # held while a future log is created, so that a log gets only one

    def create(self, log: PartitionLog, log_dir: LogDir) -> bool:
        """Create an empty future log in `log_dir`. Return False if the log is there already, or is being copied there.

        A copy to a third directory is removed. Raises KafkaError KAFKA_STORAGE_ERROR while a log directory is offline,
        because the partition's future log may be there, or if the log cannot be created.
        """
        with self._changing:
            if log.env.log_dir == log_dir.env.log_dir:
                self.cancel(log)
                return False
            if log.future is not None and log.future.env.log_dir == log_dir.env.log_dir:
                return False
            offline = [str(path) for path, error in self._manager.directories() if error is not None]
            if offline:
                raise KafkaError(
                    Errors.KAFKA_STORAGE_ERROR, f"{log.name} is not moved: {', '.join(offline)} is offline"
                )
            self.cancel(log)
            self._attach(log, self._make(log, log_dir), log_dir)
            return True

    def _make(self, log: PartitionLog, log_dir: LogDir) -> PartitionLog:
        key, env = (log.topic, log.partition), log_dir.env
        path = os.path.join(env.log_dir, names.future_dir_name(*key))
        try:
            if env.files.exists(os.path.join(env.log_dir, log.name)):
                raise KafkaError(Errors.KAFKA_STORAGE_ERROR, f"{env.log_dir} has a directory {log.name} already")
            if log_dir.is_in_checkpoints(key):  # offsets of an earlier log of that name: see LogManager.create
                self._manager.checkpoint([log_dir])
            env.cleaner_offsets.remove(key)
            return PartitionLog.load(
                env, path, *key, log.config, log_start_offset=log.log_start_offset, topic_id=log.topic_id
            )
        except OSError as error:
            raise env.disk_error(f"creating {path}", error) from error

    def adopt(self, log: PartitionLog, future: PartitionLog, log_dir: LogDir) -> None:
        """Attach a future log that was found on the disk to `log`, which no other thread uses yet.

        If the future log is longer, the log has lost records that were not flushed. They are removed from the future
        log, too, because other records may get their offsets, in the same leader epoch. After an unclean stop the
        future log's records above its recovery point are not trusted either: a power cut may have lost some of them but
        not later ones, and recovery does not detect a gap.
        """
        end = log.log_end_offset
        if not log_dir.was_clean:
            end = min(end, future.recovery_point)
        if future.log_end_offset > end:
            future.truncate_to(end)
        self.not_loaded.pop((log.topic, log.partition), None)
        self._attach(log, future, log_dir)

    def discard_not_loaded(self, key: TopicPartition) -> None:
        """Remove a future log that was found at the start and not loaded, because it is damaged or its log was not
        loaded. Does nothing if there is none. Raises LogDirFailure or a Shortage if it cannot be renamed.
        """
        found = self.not_loaded.pop(key, None)
        if found is not None:
            self._manager.discard(key, *found)

    def _attach(self, log: PartitionLog, future: PartitionLog, log_dir: LogDir) -> None:
        try:
            with log.upkeep.interrupting():  # ends a cleaning in progress
                log.check_open()
                log.future = future
        except KafkaError:
            future.abandon()
            self._remove(future, log_dir)
            raise
        self._manager.count_log(log_dir, 1)
        future.env.on_flush_ms(log.config.flush_ms)

    def prepare(self, log: PartitionLog) -> None:
        """Do in advance what takes long in `complete`: make the future log and its offsets durable.

        Called when the future log has nearly caught up. Raises LogDirFailure, or a Shortage.
        """
        future = self._future_of(log)
        prepare(future)
        # Otherwise a crash after the swap would lose the log start offset.
        self._manager.checkpoint([self._manager.dirs.of(future.env)])
        self._copy_cleaner_offset(log, future)

    def complete(self, log: PartitionLog, piece: int) -> None:
        """Replace `log` by its future log, after `prepare`. Raises the errors of `swap`."""
        future = self._future_of(log)
        manager, key = self._manager, (log.topic, log.partition)
        old_dir, new_dir = manager.dirs.of(log.env), manager.dirs.of(future.env)
        old_directory = os.path.join(old_dir.env.log_dir, names.marked_dir_name(*key, names.DELETE_DIR))
        future.flush()  # so that little is left for the flush during which appends wait
        swap(log, future, old_directory, piece)
        manager.count_log(old_dir, -1)
        old_dir.forget(key)
        _log.info("%s has moved from %s to %s", log.name, old_dir.path, new_dir.path)
        manager.remove_later(old_dir, old_directory)
        for log_dir, tidy in (
            (new_dir, lambda: new_dir.env.files.unlink(os.path.join(log.directory, names.MOVED_IN))),
            (old_dir, lambda: old_dir.env.cleaner_offsets.remove(key)),
        ):
            try:
                tidy()
            except OSError as error:
                _log.error("%s", log_dir.env.disk_error(f"tidying up after the move of {log.name}", error).message)

    def _future_of(self, log: PartitionLog) -> PartitionLog:
        if log.future is None:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{log.name} is not being moved any more")
        return log.future

    def _copy_cleaner_offset(self, log: PartitionLog, future: PartitionLog) -> None:
        key = (log.topic, log.partition)
        try:
            cleaned_to = log.env.cleaner_offsets.get(key)
            if cleaned_to is not None:
                future.env.cleaner_offsets.put(key, cleaned_to)
        except OSError as error:
            raise future.disk_error(f"copying the cleaner's checkpoint of {log.name}", error) from error

    def cancel(self, log: PartitionLog) -> None:
        """Remove the future log of `log`, if it has one. Raises LogDirFailure or a Shortage if it cannot be renamed."""
        with log.upkeep.interrupting():
            future, log.future = log.future, None
        if future is None:
            return
        log_dir = self._manager.dirs.of(future.env)
        self._manager.count_log(log_dir, -1)
        future.abandon()
        if log_dir.online:
            self._remove(future, log_dir)

    def _remove(self, future: PartitionLog, log_dir: LogDir) -> None:
        self._manager.discard((future.topic, future.partition), log_dir, future.directory)
