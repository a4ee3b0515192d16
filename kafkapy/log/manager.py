"""All logs of a broker, in one or more log directories (Kafka's LogManager).

If a disk fails, its log directory goes offline with all its logs, and the other directories stay online.
`on_dir_failure(directory, error)` is called once per directory, on the thread that found the failure. Every method may
wait for a disk, except `get`, `is_loading`, iteration and `directories`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.cleaner.compaction import Compaction
from kafkapy.log.config import LogConfig
from kafkapy.log.directories.checkpoints import CheckpointError
from kafkapy.log.directories.log_dir import LogDir, TopicPartition
from kafkapy.log.directories.log_dirs import LogDirs, NoLogDir
from kafkapy.log.environment import Environment, PoolLike, SchedulerLike
from kafkapy.log.failures import LogDirFailure, Shortage
from kafkapy.log.flushing.timed_flush import TimedFlush
from kafkapy.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
from kafkapy.log.loading.background_load import ConfigOf, IsStray, Loading
from kafkapy.log.loading.load_progress import LoadWatch
from kafkapy.log.manager_tasks import ManagerTasks
from kafkapy.log.moves.futures import FutureLogs
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.settings import LogSettings
from kafkapy.log.storage.files import Files
from kafkapy.log.storage.open_files import OpenFiles
from kafkapy.runtime.clock import Clock
from kafkapy.runtime.threads import run_all

__all__ = ["LogManager", "NoLogDir"]

# Closing a log waits for several syncs. Syncs that wait at the same time share a commit of the file system's journal: 8
# ms per log with one thread, 0.5 ms with four, hardly less with more (ext4).
_CLOSING_THREADS = 8
# So many written logs are synced with the rest of their file system, by one system call, and not file by file.
_MANY_WRITTEN = 100

_log = logging.getLogger(__name__)


class RefusedLog(NamedTuple):
    """A log that exists on disk in `path` but could not be opened. `reason` is the error that says why. `is_deleted` is
    True if it was to be deleted, and a shortage prevented that."""

    log_dir: LogDir
    path: str
    reason: KafkaError
    is_deleted: bool = False


class LogManager:
    """The logs of a broker, by topic and partition. The constructor locks the log directories against other brokers.

    After that, call `dirs.check_identity`, `dirs.write_identity`, `load` (or the steps of `loading`), `start`, and at
    the end `close`.
    """

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
        """Lock the log directories `dirs`.

        Raise DirLocked if another broker uses one of them, NoLogDir if none can be used. `defaults` are the settings of
        topics without overrides.
        """
        self.defaults = defaults  # may be replaced; open logs change only by update_config
        self.clock = clock
        self.settings = settings if settings is not None else LogSettings()
        self.on_dir_failure = on_dir_failure
        self._scheduler = scheduler
        self._pool = disk_pool
        self._files = files if files is not None else Files()
        self._files.open_files = OpenFiles(self.settings.max_open_files)
        self._lock = threading.Condition(threading.Lock())
        # Logs that are being created, without the lock: each waits for the disk, and several wait together. The lock's
        # condition is notified when one is complete.
        self._being_created: set[TopicPartition] = set()
        # Held while a refused log is opened or deleted, which may take minutes: too long for `_lock`. Taken before it.
        self._opening = threading.Lock()
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._refused: dict[TopicPartition, RefusedLog] = {}
        self._tasks: ManagerTasks | None = None
        self._timed_flushes: list[TimedFlush] = []  # one a directory, so that no disk waits for another
        self.dirs = LogDirs(dirs, self._environment)
        self.loading = Loading(self)
        self.futures = FutureLogs(self)
        # The log directories that clients have chosen for logs that do not exist yet.
        self.preferred: dict[TopicPartition, LogDir] = {}
        self.compaction = Compaction(self, scheduler, clock)

    def _environment(self, path: str) -> Environment:
        logs = partial(self.logs_in, Path(path))
        timed_flush = TimedFlush(logs, self.each_log, self._scheduler, self.clock, self.settings.flush_check_ms)
        self._timed_flushes.append(timed_flush)
        return Environment(
            path,
            self._files,
            self.clock,
            self._scheduler,
            pool=self._pool,
            producer_expiration_ms=self.settings.producer_expiration_ms,
            max_producers=self.settings.max_producers,
            max_decompressed=self.settings.max_decompressed,
            retention=self.settings.retention,
            on_failure=self._dir_failed,
            on_flush_ms=timed_flush.wanted,
        )

    def load(self, config_of: ConfigOf | None = None, is_stray: IsStray | None = None) -> None:
        """Open every log, recover the logs that were not closed cleanly, and return when all are ready.

        `config_of(topic)` returns the settings of a topic's logs. `is_stray(topic, partition, topic id)` returns True
        for a log that the cluster does not know; its directory is renamed to `-stray`. See Loading for the errors.
        """
        self.loading.begin(config_of, is_stray)
        self.loading.start()
        self.loading.wait()

    def is_loading(self, topic: str, partition: int) -> bool:
        """Return True if the partition's log exists but is not ready yet. Takes no lock."""
        return (topic, partition) in self.loading

    # --- logs

    @property
    def files(self) -> Files:
        """The file operations of all logs, with their limit of open files."""
        return self._files

    @property
    def open_files(self) -> int:
        """Return the number of log files that the broker keeps open."""
        return len(self._files.open_files)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def last_leader_epoch(self, topic: str, partition: int) -> int:
        """Return the latest leader epoch recorded for the partition's log, -1 if there is none.

        If the log is not loaded, its leader epoch checkpoint is read from the disk.
        """
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
        """Return every directory of log.dirs with the error that took the directory offline, None if it is online."""
        return self.dirs.states()

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """Change producer.id.expiration.ms: for open logs from the next check for expired producers on, and for logs
        that are loaded later.
        """
        for log_dir in self.dirs.opened:
            log_dir.env.producer_expiration_ms = expiration_ms

    def logs_in(self, directory: Path) -> list[PartitionLog]:
        """Return the open logs and future logs whose files are in `directory`, one of the directories of log.dirs."""
        wanted = os.path.abspath(directory)
        found = []
        for log in self:
            future = log.future  # read first: a log that moves meanwhile is found twice, and not in neither place
            if log.env.log_dir == wanted:
                found.append(log)
            if future is not None and future.env.log_dir == wanted:
                found.append(future)
        return found

    def count_log(self, log_dir: LogDir, change: int) -> None:
        """Change the number of logs in a directory, by which `create` chooses one, by 1 or -1."""
        with self._lock:
            log_dir.open_logs += change

    def _reserve(self, dirs: Sequence[LogDir]) -> LogDir:
        """Return the one of these directories that has the fewest logs, and count one more log there."""
        with self._lock:
            chosen = min(dirs, key=lambda one: one.open_logs + len(one.not_loaded))
            chosen.open_logs += 1
            return chosen

    def take_in(self, log: PartitionLog) -> None:
        """Add a loaded log, so that `get` returns it from now on."""
        with self._lock:
            self._logs[log.topic, log.partition] = log
            self.dirs.of(log.env).open_logs += 1
        log.env.on_flush_ms(log.config.flush_ms)

    def refuse(
        self, key: TopicPartition, log_dir: LogDir, path: str, reason: KafkaError, *, is_deleted: bool = False
    ) -> None:
        """Record that a partition's log cannot be opened because of `reason`. So no new log is created in its place."""
        with self._lock:
            self._refused[key] = RefusedLog(log_dir, path, reason, is_deleted)

    def create(
        self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, *, is_new: bool = False
    ) -> PartitionLog:
        """Return the partition's log. If there is none, create it in the directory that has the fewest logs.

        While a directory is offline, only a partition that the caller knows to be new (`is_new`) is created. The log of
        any other partition may be in the offline directory, and an empty log in its place would look like the loss of
        all records. Raises KafkaError, usually KAFKA_STORAGE_ERROR, if the log can be neither opened nor created.
        """
        key = (topic, partition)
        self.loading.make_way(key)
        if key in self._refused:
            self._open_refused(key, config)
        with self._lock:
            self._wait_until_created(key)
            log = self._logs.get(key)
            if log is None:
                offline = [str(path) for path, error in self.directories() if error is not None]
                if offline and not is_new:
                    raise KafkaError(
                        Errors.KAFKA_STORAGE_ERROR,
                        f"{topic}-{partition} is not created: its log may be in {', '.join(offline)}, which is offline",
                    )
                # A log of the same name may have been deleted. If its start offset were still in a checkpoint after a
                # crash, the new log would begin at that offset, and all its records below would be lost. So the
                # checkpoints are written first.
                self.checkpoint([one for one in self.online_dirs() if one.is_in_checkpoints(key)])
                self._being_created.add(key)
                preferred = self.preferred.pop(key, None)
        if log is None:
            log = self._create(key, topic_id, config, preferred)
        elif topic_id is not None:
            log.assign_topic_id(topic_id)
        log.env.on_flush_ms(log.config.flush_ms)
        return log

    def _create(
        self, key: TopicPartition, topic_id: bytes | None, config: LogConfig, preferred: LogDir | None
    ) -> PartitionLog:
        created: PartitionLog | None = None
        try:
            created = self.dirs.create_log(key, topic_id, config, preferred, self._reserve, self.count_log)
            return created
        finally:
            with self._lock:
                if created is not None:
                    self._logs[key] = created
                self._being_created.discard(key)
                self._lock.notify_all()

    def _wait_until_created(self, key: TopicPartition) -> None:
        while key in self._being_created:
            self._lock.wait()

    def _open_refused(self, key: TopicPartition, config: LogConfig) -> None:
        """Open a log that could not be opened before because of its topic's settings, which have changed since; or
        delete one that a shortage has kept from being deleted.

        This may recover the log for minutes. Raises KafkaError if the log was refused for another reason, or cannot be
        opened or deleted now either.
        """
        with self._opening:
            refused = self._refused.get(key)
            if refused is None:  # another thread has opened or deleted it
                return
            log_dir, path, reason, is_deleted = refused
            if is_deleted:
                log_dir.env.check()
                try:
                    self.discard_log(key, log_dir, path)
                finally:
                    if not self._files.exists(path):
                        del self._refused[key]
                return
            if reason.code != Errors.INVALID_CONFIG:
                raise KafkaError(reason.code, reason.message)
            log_dir.env.check()
            try:
                log = self.loading.open(key, path, log_dir, config, LoadWatch())
            except OSError as error:
                log_dir.not_recovered.add(key)  # it may be half recovered
                raise log_dir.env.disk_error(f"loading {path}", error) from error
            except KafkaError:
                raise
            except Exception as error:  # for instance damage, as when logs are loaded at the start
                _log.exception("%s cannot be served", path)
                log_dir.not_recovered.add(key)
                raise KafkaError(Errors.KAFKA_STORAGE_ERROR, f"{path}: {error}") from error
            self.take_in(log)
            del self._refused[key]
            log_dir.not_loaded.discard(key)
            log_dir.not_recovered.discard(key)

    def truncate_to(self, log: PartitionLog, offset: int, leader_epoch: int | None = None) -> bool:
        """Remove the records of a log from `offset` on. Return True if there were any.

        Raises LogDirFailure, and KafkaError NOT_LEADER_OR_FOLLOWER if an epoch later than `leader_epoch` has begun.

        The lower recovery point is checkpointed first; Kafka does it last. A start after a crash trusts everything
        below the checkpointed recovery point, so with the old one it would not notice that a truncation was only half
        done.
        """
        self._lower_recovery_point(log, offset)
        return log.truncate_to(offset, leader_epoch)

    def truncate_fully(self, log: PartitionLog, offset: int, leader_epoch: int | None = None) -> None:
        """Remove all records of a log, which then begins and ends at `offset`. Raises the errors of `truncate_to`."""
        self._lower_recovery_point(log, min(offset, log.log_start_offset))
        log.truncate_fully(offset, leader_epoch)

    def _lower_recovery_point(self, log: PartitionLog, offset: int) -> None:
        for one in (log.future, log):
            if one is not None and one.recovery_point > offset:
                one.move_recovery_point_back(offset)
                self.checkpoint([self.dirs.of(one.env)])

    def delete(self, topic: str, partition: int) -> None:
        """Rename the log's directory to `-delete`, and remove the files after file.delete.delay.ms.

        Does nothing if the partition has no log. If the log is being recovered, the recovery stops soon, and the log is
        deleted then. Raises LogDirFailure, and KafkaError: NOT_LEADER_OR_FOLLOWER if the broker stops meanwhile, or for
        a full disk.
        """
        key = (topic, partition)
        if not self.loading.delete(key):
            self.delete_loaded(key)

    def delete_loaded(self, key: TopicPartition) -> None:
        """Delete a log that is loaded, or could not be loaded; see `delete`."""
        with self._opening if key in self._refused else nullcontext(), self._lock:
            self._wait_until_created(key)
            log = self._logs.pop(key, None)
            refused = self._refused.pop(key, None)
            self.preferred.pop(key, None)
        if log is not None:
            log.abandon()  # ends a move to another directory, after which the log's directory does not change
            with suppress(LogDirFailure, Shortage):  # already logged; the next start ignores a copy without its log
                self.futures.cancel(log)
            self.count_log(self.dirs.of(log.env), -1)
            log.env.check()
            log_dir, path = self.dirs.of(log.env), log.directory
        elif refused is not None:
            log_dir, path = refused.log_dir, refused.path
        else:
            return
        self.discard_log(key, log_dir, path)

    def discard_log(self, key: TopicPartition, log_dir: LogDir, path: str) -> None:
        """Discard a log that is not open, and its copy in another log directory if that was not loaded.

        If a shortage prevents that, the next `delete` or `create` tries it again, and no log is created in its place
        before. Raises LogDirFailure, or a Shortage.
        """
        # The copy goes first: a start after a crash in between would only ignore a copy without its log. An error is
        # already logged.
        with suppress(LogDirFailure, Shortage):
            self.futures.discard_not_loaded(key)
        try:
            self.discard(key, log_dir, path)
        except Shortage as shortage:
            if self._files.exists(path):  # else only the new name is not durable yet
                log_dir.not_recovered.add(key)  # it was closed without a sync, or never recovered
                self.refuse(key, log_dir, path, shortage, is_deleted=True)
            raise

    def discard(self, key: TopicPartition, log_dir: LogDir, path: str) -> None:
        """Rename a log's directory to `-delete`, and remove it after file.delete.delay.ms.

        Raises LogDirFailure, or a Shortage.
        """
        self.remove_later(log_dir, self._rename(key, log_dir, path, names.DELETE_DIR))
        self._sync_names(log_dir)

    def set_aside(self, key: TopicPartition, log_dir: LogDir, path: str) -> None:
        """Rename the directory of a log that the cluster does not know to `-stray`.

        The broker never deletes that directory. Raises LogDirFailure, or a Shortage.
        """
        new = self._rename(key, log_dir, path, names.STRAY_DIR)
        self._sync_names(log_dir)
        _log.warning("%s-%d is not known to the cluster: set aside as %s", *key, new)

    def _rename(self, key: TopicPartition, log_dir: LogDir, path: str, kind: str) -> str:
        """Rename a log's directory to a unique name that ends with `kind` (`-delete` or `-stray`). Return the new path.

        The log is also removed from its log directory's checkpoints. Raises LogDirFailure, or a Shortage.
        """
        new = os.path.join(log_dir.env.log_dir, names.marked_dir_name(*key, kind))
        log_dir.forget(key)
        self._forget_cleaned(key, log_dir)
        try:
            self._files.rename(path, new)
        except OSError as error:
            raise log_dir.env.disk_error(f"renaming {path}", error) from error
        return new

    def _forget_cleaned(self, key: TopicPartition, log_dir: LogDir) -> None:
        """Remove a log from cleaner-offset-checkpoint.

        If the disk is too full to write that file, the log stays in it, since logs are deleted to make space. The next
        log of that name is removed from the file before it is created. Raises LogDirFailure.
        """
        try:
            log_dir.env.cleaner_offsets.remove(key)
        except OSError as error:
            refusal = log_dir.env.disk_error(f"removing {names.dir_name(*key)} from the cleaner's checkpoint", error)
            if isinstance(refusal, LogDirFailure):
                raise refusal from error
            _log.debug("%s", refusal.message)  # the shortage itself is already reported

    def _sync_names(self, log_dir: LogDir) -> None:
        """Make the renames in a log directory durable. Raises LogDirFailure, or a Shortage."""
        try:
            self._files.sync_dir(log_dir.env.log_dir)
        except OSError as error:
            raise log_dir.env.disk_error(f"syncing {log_dir.path}", error) from error

    def remove_later(self, log_dir: LogDir, path: str) -> None:
        """Remove the directory `path`, which is marked for deletion, and its files after file.delete.delay.ms."""
        _log.info("%s is deleted in %d ms", path, self.defaults.file_delete_delay_ms)
        log_dir.env.later(
            f"delete {path}", lambda: self._files.remove_tree(path), max(self.defaults.file_delete_delay_ms, 1)
        )

    # --- upkeep

    def each_log(
        self,
        act: Callable[[PartitionLog], object],
        what: str,
        logs: Iterable[PartitionLog] | None = None,
        *,
        threads: int = 1,
    ) -> None:
        """Call `act` with every open log of an online directory, or with those of `logs`, on up to `threads` threads.

        An exception from `act` is logged, with `what` as the name of the operation, and does not affect the other logs.
        """

        def guarded(log: PartitionLog) -> None:
            if log.env.failure is None and not log.closed:
                try:
                    act(log)
                except LogDirFailure:
                    return  # reported by Environment.failed
                except Shortage as error:  # reported for the whole directory
                    _log.debug("%s of %s: %s", what, log.name, error.message)
                except KafkaError as error:
                    _log.warning("%s of %s: %s", what, log.name, error.message)
                except Exception:  # for instance in a retention policy that a user wrote
                    _log.exception("%s of %s", what, log.name)

        run_all([partial(guarded, log) for log in (self if logs is None else logs)], threads, what)

    def start(self) -> None:
        """Start the background tasks: retention, checkpoints, producer expiry and log cleaning."""
        self._tasks = ManagerTasks(self, self._scheduler)
        self.compaction.start()

    def checkpoint(self, log_dirs: Iterable[LogDir] | None = None) -> None:
        """Write the checkpoint files of the given directories, or of all online directories.

        The files contain the recovery points, log start offsets and high watermarks of all logs in a directory.
        """
        for log_dir in self.online_dirs() if log_dirs is None else log_dirs:
            logs = partial(self.logs_in, log_dir.path)
            try:
                log_dir.write_recovery_points(logs)
                log_dir.write_start_offsets(logs)
                log_dir.write_high_watermarks(logs)
            except LogDirFailure:
                continue  # already reported by Environment.failed; continue with the other directories

    def _dir_failed(self, failure: LogDirFailure) -> None:
        _log.error("%s", failure.message)
        if self.on_dir_failure is not None:
            self.on_dir_failure(Path(failure.log_dir), failure)

    # --- the end

    def close(self) -> None:
        """Flush and close every log, mark each cleanly closed directory as such, and unlock the directories.

        Idempotent. A directory that contains a log whose recovery did not finish, for whatever reason, gets no
        clean-shutdown marker.
        """
        self.loading.stop()
        self.compaction.stop()
        if self._tasks is not None:
            self._tasks.cancel()
            self._tasks = None
        for timed_flush in self._timed_flushes:
            timed_flush.stop()
        try:
            for log_dir in self.online_dirs():
                self._close_dir(log_dir)
        finally:
            self.dirs.unlock()

    def _close_dir(self, log_dir: LogDir) -> None:
        logs = self.logs_in(log_dir.path)
        is_listed, log_dir.listed = log_dir.listed, False  # closed a second time, the directory gets no marker
        doing = f"closing {log_dir.path}"
        threads = max(_CLOSING_THREADS, self.settings.recovery_threads_per_dir)
        try:
            try:
                run_all([log.finish for log in logs], 1, doing)
            finally:  # an error of one log does not keep the others from being closed
                written = sum(log.flusher.has_pending or log.flusher.has_unsynced for log in logs)
                is_synced = written >= _MANY_WRITTEN and log_dir.sync_all()
                closing = partial(_close, log_dir, is_synced)
                run_all([partial(closing, log) for log in logs], 1 if is_synced else threads, doing)
        except KafkaError as error:
            _log.error("%s is not stopped cleanly: %s", log_dir.path, error.message)
            return
        if not is_listed:
            return
        self.checkpoint([log_dir])
        if log_dir.online and log_dir.is_clean:
            try:
                log_dir.mark_clean()
            except OSError as error:
                _log.error("%s is not marked as stopped cleanly: %s", log_dir.path, error)


def _close(log_dir: LogDir, is_synced: bool, log: PartitionLog) -> None:
    log.close(is_synced=is_synced and log_dir.shares_file_system(log.directory))
