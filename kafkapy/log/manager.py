"""All logs of a broker, over several directories (Kafka's LogManager).

A directory whose disk fails goes offline with its logs and the others go on. `on_dir_failure(directory, error)` is
called once for each, on the thread that noticed. Every method may wait for a disk, but for `get`, `is_loading`,
iteration and `directories`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.checkpoints import CheckpointError
from kafkapy.log.compaction import Compaction
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment, PoolLike, SchedulerLike
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.files import Files
from kafkapy.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
from kafkapy.log.loading import ConfigOf, IsStray, Loading
from kafkapy.log.log_dir import LogDir, TopicPartition
from kafkapy.log.log_dirs import LogDirs, NoLogDir
from kafkapy.log.making import make_log
from kafkapy.log.manager_tasks import ManagerTasks
from kafkapy.log.open_files import OpenFiles
from kafkapy.log.parallel import run_all
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.settings import LogSettings
from kafkapy.runtime.clock import Clock

__all__ = ["LogManager", "NoLogDir"]

# A stop waits for a handful of syncs a log. Those that wait at the same time share a commit of the file system's
# journal: 8 ms a log on one thread, 0.5 on four, hardly less on more (ext4).
_CLOSING_THREADS = 8

_log = logging.getLogger(__name__)


class RefusedLog(NamedTuple):
    """A log that is there and cannot be served."""

    log_dir: LogDir
    path: str
    reason: KafkaError


class LogManager:
    """Life: construct (locks the directories), `dirs.stamp`, `load` or the steps of `loading`, `start`, `close`."""

    def __init__(
        self,
        dirs: Sequence[Path | str],
        defaults: LogConfig,
        *,
        clock: Clock,
        scheduler: SchedulerLike,
        disk_pool: PoolLike | None = None,
        settings: LogSettings | None = None,
        files: Files | None = None,
        on_dir_failure: Callable[[Path, BaseException], None] | None = None,
    ) -> None:
        """Raises DirLocked if another broker has one of the directories, NoLogDir if none can be used."""
        self.defaults = defaults  # may be replaced; open logs get theirs by update_config
        self.clock = clock
        self.settings = settings if settings is not None else LogSettings()
        self.on_dir_failure = on_dir_failure
        self._scheduler = scheduler
        self._pool = disk_pool
        self._files = files if files is not None else Files()
        self._files.open_files = OpenFiles(self.settings.max_open_files)
        self._lock = threading.Lock()
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._refused: dict[TopicPartition, RefusedLog] = {}
        self._tasks: ManagerTasks | None = None
        self.dirs = LogDirs(dirs, self._environment)
        self.loading = Loading(self)
        self.compaction = Compaction(self, scheduler, clock)

    def _environment(self, path: str) -> Environment:
        return Environment(
            path,
            self._files,
            self.clock,
            self._scheduler,
            pool=self._pool,
            producer_expiration_ms=self.settings.producer_expiration_ms,
            max_decompressed=self.settings.max_decompressed,
            retention=self.settings.retention,
            on_failure=self._dir_failed,
        )

    def load(self, config_of: ConfigOf | None = None, is_stray: IsStray | None = None) -> None:
        """Opens every log, recovering those that were not closed; returns when all are ready. See Loading."""
        self.loading.begin(config_of, is_stray)
        self.loading.start()
        self.loading.wait()

    def is_loading(self, topic: str, partition: int) -> bool:
        """Whether there is such a log and it is not ready yet. Takes no lock."""
        return (topic, partition) in self.loading

    # --- logs

    @property
    def open_files(self) -> int:
        """Files of logs that are kept open."""
        return len(self._files.open_files)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def last_leader_epoch(self, topic: str, partition: int) -> int:
        """The last that the partition's log has seen, as its file says before it is loaded; -1 for none."""
        log = self.get(topic, partition)
        if log is not None:
            return log.leader_epochs.latest_epoch
        epochs = [UNDEFINED_EPOCH]
        for log_dir in self.dirs.online:
            found = LeaderEpochCache(self._files, os.path.join(log_dir.path, names.dir_name(topic, partition)))
            try:
                found.load()
            except (OSError, CheckpointError) as error:
                _log.error("the leader epochs of %s-%d cannot be read: %s", topic, partition, error)
            epochs.append(found.latest_epoch)
        return max(epochs)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def online_dirs(self) -> list[LogDir]:
        return self.dirs.online

    def directories(self) -> list[tuple[Path, BaseException | None]]:
        """Every directory of log.dirs, with why it is offline."""
        return self.dirs.states()

    def logs_in(self, directory: Path) -> list[PartitionLog]:
        """The logs in one of log.dirs."""
        wanted = os.path.abspath(directory)
        return [log for log in self if log.env.log_dir == wanted]

    def take_in(self, log: PartitionLog) -> None:
        """A log is ready."""
        with self._lock:
            self._logs[log.topic, log.partition] = log
            self.dirs.of(log.env).open_logs += 1

    def refuse(self, key: TopicPartition, log_dir: LogDir, path: str, reason: KafkaError) -> None:
        """A log cannot be served, and must not be made anew."""
        with self._lock:
            self._refused[key] = RefusedLog(log_dir, path, reason)

    def create(
        self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, *, is_new: bool = False
    ) -> PartitionLog:
        """The log, made if there is none, in the directory with the fewest. Raises KafkaError.

        While a directory is offline only a partition that the caller knows to be new (`is_new`) is made: the log of
        any other may be in that directory, and an empty one in its place would look like the loss of all records.
        """
        key = (topic, partition)
        self.loading.make_way(key)
        with self._lock:
            log = self._logs.get(key)
            if log is None:
                refused = self._refused.get(key)
                if refused is not None:
                    raise KafkaError(refused.reason.code, refused.reason.message)
                offline = [str(path) for path, error in self.directories() if error is not None]
                if offline and not is_new:
                    raise KafkaError(
                        Errors.KAFKA_STORAGE_ERROR,
                        f"{topic}-{partition} is not made: it may be in {', '.join(offline)}, which is offline",
                    )
                # An old start offset that a crash leaves in a checkpoint would be taken for that of the new log, whose
                # records all lie below it.
                self.checkpoint([one for one in self.online_dirs() if one.is_in_checkpoints(key)])
                emptiest_first = sorted(self.online_dirs(), key=lambda one: one.open_logs + len(one.not_loaded))
                log = self._logs[key] = make_log(emptiest_first, self._files, key, topic_id, config)
                self.dirs.of(log.env).open_logs += 1
            elif topic_id is not None:
                log.assign_topic_id(topic_id)
        return log

    def truncate_to(self, topic: str, partition: int, offset: int) -> bool:
        """See PartitionLog.truncate_to. First the recovery point goes back, and is written down (in Kafka afterwards).

        A start after a crash trusts what lies below the point that it finds, and would take half a truncation for it.
        """
        log = self._logs[topic, partition]
        if log.recovery_point > offset:
            log.move_recovery_point_back(offset)
            self.checkpoint([self.dirs.of(log.env)])
        return log.truncate_to(offset)

    def delete(self, topic: str, partition: int) -> None:
        """Renames the log's directory `-delete`; its files go after file.delete.delay.ms. Nothing if there is none.

        Raises LogDirFailure, or KafkaError NOT_LEADER_OR_FOLLOWER if the log is being recovered: that is stopped, and
        the deletion has to be asked for again when the log is no longer loading.
        """
        key = (topic, partition)
        with self.loading.taken(key) as job:
            if job is not None:
                self.remove_later(job.load.log_dir, self._rename(key, job.load.log_dir, job.path, names.DELETE_DIR))
                return
        with self._lock:
            log = self._logs.pop(key, None)
            refused = self._refused.pop(key, None)
            if log is not None:
                self.dirs.of(log.env).open_logs -= 1
        if log is not None:
            log.abandon()
            log.env.check()
            log_dir, path = self.dirs.of(log.env), log.directory
        elif refused is not None:
            log_dir, path = refused.log_dir, refused.path
        else:
            return
        self.remove_later(log_dir, self._rename(key, log_dir, path, names.DELETE_DIR))

    def set_aside(self, key: TopicPartition, log_dir: LogDir, path: str) -> None:
        """Renames the directory of a log that the cluster does not know `-stray`; nothing deletes it."""
        new = self._rename(key, log_dir, path, names.STRAY_DIR)
        _log.warning("%s-%d is not known to the cluster: set aside as %s", *key, new)

    def _rename(self, key: TopicPartition, log_dir: LogDir, path: str, kind: str) -> str:
        """Returns the new path. Raises LogDirFailure, KafkaError."""
        new = os.path.join(log_dir.env.log_dir, names.marked_dir_name(*key, kind))
        log_dir.forget(key)
        try:
            log_dir.env.cleaner_offsets.remove(key)
            self._files.rename(path, new)
            self._files.sync_dir(log_dir.env.log_dir)
        except OSError as error:
            raise log_dir.env.disk_error(f"renaming {path}", error) from error
        return new

    def remove_later(self, log_dir: LogDir, path: str) -> None:
        """Removes a directory that is marked for deletion."""
        _log.info("%s is deleted in %d ms", path, self.defaults.file_delete_delay_ms)
        log_dir.env.later(
            f"delete {path}", lambda: self._files.remove_tree(path), max(self.defaults.file_delete_delay_ms, 1)
        )

    # --- upkeep

    def start(self) -> None:
        """Begins retention, flushes by time, checkpoints and the expiry of producers."""
        self._tasks = ManagerTasks(self, self._scheduler)
        self.compaction.start()

    def checkpoint(self, log_dirs: Iterable[LogDir] | None = None) -> None:
        """Writes recovery points, log start offsets and high watermarks."""
        for log_dir in self.online_dirs() if log_dirs is None else log_dirs:
            logs = partial(self.logs_in, log_dir.path)
            try:
                log_dir.write_recovery_points(logs)
                log_dir.write_start_offsets(logs)
                log_dir.write_high_watermarks(logs)
            except LogDirFailure:
                continue  # told already; the other directories go on

    def _dir_failed(self, failure: LogDirFailure) -> None:
        _log.error("%s", failure.message)
        if self.on_dir_failure is not None:
            self.on_dir_failure(Path(failure.log_dir), failure)

    # --- the end

    def close(self) -> None:
        """Flushes and closes every log, marks the directories as stopped cleanly where that is true, unlocks them.

        A directory with a log that was not recovered to the end is not marked, whatever stopped that. Idempotent.
        """
        self.loading.stop()
        self.compaction.stop()
        if self._tasks is not None:
            self._tasks.cancel()
            self._tasks = None
        try:
            for log_dir in self.online_dirs():
                self._close_dir(log_dir)
        finally:
            self.dirs.unlock()

    def _close_dir(self, log_dir: LogDir) -> None:
        logs = self.logs_in(log_dir.path)
        try:
            threads = max(_CLOSING_THREADS, self.settings.recovery_threads_per_dir)
            run_all([log.close for log in logs], threads, f"closing {log_dir.path}")
        except KafkaError as error:
            _log.error("%s is not stopped cleanly: %s", log_dir.path, error.message)
            return
        if not log_dir.listed:
            return
        log_dir.listed = False
        self.checkpoint([log_dir])
        if log_dir.online and log_dir.is_clean:
            try:
                log_dir.mark_clean()
            except OSError as error:
                _log.error("%s is not marked as stopped cleanly: %s", log_dir.path, error)
