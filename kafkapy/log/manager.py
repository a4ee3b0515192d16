"""All logs of a broker, over several directories (Kafka's LogManager).

A directory whose disk fails goes offline with its logs and the others go on. `on_dir_failure(directory, error)` is
called once for each, on the thread that noticed. Every method may wait for a disk, but for `get`, iteration and
`directories`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import identity, names
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment, PoolLike, SchedulerLike
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.files import Files
from kafkapy.log.load_dir import load_dir
from kafkapy.log.log_dir import LogDir, TopicPartition
from kafkapy.log.manager_tasks import ManagerTasks
from kafkapy.log.meta_properties import MetaProperties
from kafkapy.log.parallel import run_all
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.settings import LogSettings
from kafkapy.runtime.clock import Clock

_log = logging.getLogger(__name__)


class NoLogDir(RuntimeError):
    """None of the log directories can be used."""


class LogManager:
    """Life: construct (locks the directories), `stamp`, `load`, `start`, `close`."""

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
        self._lock = threading.Lock()
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._unloadable: dict[TopicPartition, KafkaError] = {}
        self._refused: dict[Path, BaseException] = {}  # directories that could not even be opened
        self._dirs: list[LogDir] = []
        self._tasks: ManagerTasks | None = None
        try:
            self._open_dirs(dirs)
        except BaseException:
            self._unlock()
            raise

    def _open_dirs(self, dirs: Sequence[Path | str]) -> None:
        paths = [os.path.abspath(path) for path in dirs]
        if len({os.path.realpath(path) for path in paths}) < len(paths):
            raise ValueError(f"log.dirs names a directory twice: {', '.join(paths)}")
        for path in paths:
            try:
                self._dirs.append(LogDir(self._environment(path)))
            except OSError as error:
                _log.error("log directory %s cannot be used: %s", path, error)
                self._refused[Path(path)] = error
        if not self._dirs:
            reasons = "; ".join(f"{path}: {error}" for path, error in self._refused.items())
            raise NoLogDir(f"no log directory can be used ({reasons})")

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

    # --- which cluster and broker the directories belong to

    def stored_cluster_id(self) -> str | None:
        """The cluster id in meta.properties; None in new directories. Raises MetaPropertiesError."""
        stored = identity.stored(self.online_dirs())
        return stored.cluster_id if stored is not None else None

    def stored_broker_id(self) -> int | None:
        """The broker id in meta.properties; None in new directories. Raises MetaPropertiesError."""
        stored = identity.stored(self.online_dirs())
        return stored.broker_id if stored is not None else None

    def stamp(self, broker_id: int, cluster_id: str) -> None:
        """Checks meta.properties in every directory and writes it where there is none. Raises MetaPropertiesError."""
        identity.stamp(self.online_dirs(), MetaProperties(broker_id, cluster_id), self.clock.time_ms())

    def stored_partitions(self) -> list[TopicPartition]:
        """The partitions that the directories hold, before `load`: without those set aside or marked for deletion."""
        found: list[TopicPartition] = []
        for log_dir in self.online_dirs():
            try:
                dirs = log_dir.partition_dirs()
            except OSError as error:
                log_dir.env.failed("listing it", error)
                continue
            found += [(name.topic, name.partition) for _, name in dirs if name.kind == names.LIVE_DIR]
        return sorted(found)

    # --- loading

    def load(
        self,
        config_of: Callable[[str], LogConfig] | None = None,
        is_stray: Callable[[PartitionLog], bool] | None = None,
    ) -> None:
        """Opens every log, recovering those that were not closed; returns when all are ready.

        A log for which `is_stray` is true (the cluster does not know it) is renamed `-stray` and not served, never
        deleted. A log that cannot be served says so in one line, and `create` for it raises why.
        """
        for log_dir in self.online_dirs():
            strays: list[TopicPartition] = []
            load_dir(
                log_dir,
                config_of if config_of is not None else lambda topic: self.defaults,
                self.settings.recovery_threads_per_dir,
                opened=partial(self._opened, is_stray, strays),
                refused=self._unloadable.__setitem__,
                doomed=partial(self._remove_later, log_dir),
            )
            # Not one by one while the others load: the checkpoints are written with it, from the logs that are open.
            for stray in strays:
                try:
                    self.set_aside_stray(*stray)
                except KafkaError as error:
                    _log.error("%s-%d could not be set aside: %s", *stray, error.message)
                    self._unloadable[stray] = error

    def _opened(
        self, is_stray: Callable[[PartitionLog], bool] | None, strays: list[TopicPartition], log: PartitionLog
    ) -> None:
        with self._lock:
            other = self._logs.setdefault((log.topic, log.partition), log)
        if other is not log:
            log.abandon()
            raise RuntimeError(
                f"{log.name} is in two directories, {other.directory} and {log.directory}: remove one of them"
            )
        if is_stray is not None and is_stray(log):
            strays.append((log.topic, log.partition))

    # --- logs

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def online_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self._dirs if log_dir.online]

    def directories(self) -> list[tuple[Path, BaseException | None]]:
        """Every directory of log.dirs, with why it is offline."""
        opened: list[tuple[Path, BaseException | None]] = [(one.path, one.env.failure) for one in self._dirs]
        return opened + list(self._refused.items())

    def logs_in(self, directory: Path) -> list[PartitionLog]:
        """The logs in one of log.dirs."""
        wanted = os.path.abspath(directory)
        return [log for log in self if log.env.log_dir == wanted]

    def create(
        self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, *, is_new: bool = False
    ) -> PartitionLog:
        """The log, made if there is none, in the directory with the fewest. Raises KafkaError.

        While a directory is offline only a partition that the caller knows to be new (`is_new`) is made: the log of
        any other may be in that directory, and an empty one in its place would look like the loss of all records.
        """
        key = (topic, partition)
        with self._lock:
            log = self._logs.get(key)
            if log is None:
                refusal = self._unloadable.get(key)
                if refusal is not None:
                    raise refusal
                offline = [str(path) for path, error in self.directories() if error is not None]
                if offline and not is_new:
                    raise KafkaError(
                        Errors.KAFKA_STORAGE_ERROR,
                        f"{topic}-{partition} is not made: it may be in {', '.join(offline)}, which is offline",
                    )
                log = self._logs[key] = self._create(key, topic_id, config)
            elif topic_id is not None:
                log.assign_topic_id(topic_id)
        return log

    def _create(self, key: TopicPartition, topic_id: bytes | None, config: LogConfig) -> PartitionLog:
        reason = "no log directory is online"
        for log_dir in sorted(self.online_dirs(), key=lambda one: len(self.logs_in(one.path))):
            path = os.path.join(log_dir.env.log_dir, names.dir_name(*key))
            was_there = self._files.exists(path)
            try:
                return PartitionLog.load(log_dir.env, path, *key, config, topic_id=topic_id)
            except OSError as error:
                reason = log_dir.env.disk_error(f"making {path}", error).message
            except KafkaError as refusal:
                if refusal.code != Errors.KAFKA_STORAGE_ERROR:
                    raise
                reason = refusal.message
            if was_there:
                break
            self._remove_half_made(path)
        raise KafkaError(Errors.KAFKA_STORAGE_ERROR, reason)

    def _remove_half_made(self, path: str) -> None:
        """The log is made in another directory now, or later: the next start must not find it in two."""
        try:
            self._files.remove_tree(path)
        except OSError as error:
            _log.error("%s is half made and has to be removed by hand: %s", path, error)

    def delete(self, topic: str, partition: int) -> None:
        """Renames the log's directory `-delete`; its files go after file.delete.delay.ms. Nothing if there is none."""
        moved = self._move_away(topic, partition, names.DELETE_DIR)
        if moved is not None:
            self._remove_later(*moved)

    def set_aside_stray(self, topic: str, partition: int) -> None:
        """Renames the log's directory `-stray`; nothing deletes it."""
        moved = self._move_away(topic, partition, names.STRAY_DIR)
        if moved is not None:
            _log.warning("%s-%d is not known to the cluster: set aside as %s", topic, partition, moved[1])

    def _move_away(self, topic: str, partition: int, kind: str) -> tuple[LogDir, str] | None:
        with self._lock:
            log = self._logs.pop((topic, partition), None)
        if log is None:
            return None
        log.abandon()
        log.env.check()
        log_dir = next(one for one in self._dirs if one.env is log.env)
        path = os.path.join(log_dir.env.log_dir, names.marked_dir_name(topic, partition, kind))
        # First the checkpoints, without this log: an old start offset that a crash leaves in them would be taken for
        # that of a new topic of this name, whose records all lie below it.
        self.checkpoint([log_dir])
        try:
            self._files.rename(log.directory, path)
            self._files.sync_dir(log_dir.env.log_dir)
        except OSError as error:
            raise log_dir.env.disk_error(f"renaming {log.directory}", error) from error
        return log_dir, path

    def _remove_later(self, log_dir: LogDir, path: str) -> None:
        _log.info("%s is deleted in %d ms", path, self.defaults.file_delete_delay_ms)
        log_dir.env.later(
            f"delete {path}", lambda: self._files.remove_tree(path), max(self.defaults.file_delete_delay_ms, 1)
        )

    # --- upkeep

    def start(self) -> None:
        """Begins retention, flushes by time, checkpoints and the expiry of producers."""
        self._tasks = ManagerTasks(self, self._scheduler)

    def checkpoint(self, log_dirs: Iterable[LogDir] | None = None) -> None:
        """Writes recovery points, log start offsets and high watermarks."""
        for log_dir in self.online_dirs() if log_dirs is None else log_dirs:
            logs = self.logs_in(log_dir.path)
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

        A directory that was not loaded to the end is not marked, whatever stopped the start. Idempotent.
        """
        if self._tasks is not None:
            self._tasks.cancel()
            self._tasks = None
        try:
            for log_dir in self.online_dirs():
                self._close_dir(log_dir)
        finally:
            self._unlock()

    def _close_dir(self, log_dir: LogDir) -> None:
        logs = self.logs_in(log_dir.path)
        try:
            run_all([log.close for log in logs], self.settings.recovery_threads_per_dir, f"closing {log_dir.path}")
        except KafkaError as error:
            _log.error("%s is not stopped cleanly: %s", log_dir.path, error.message)
            return
        if not log_dir.all_loaded:
            return
        log_dir.all_loaded = False
        self.checkpoint([log_dir])
        if log_dir.online:
            try:
                log_dir.mark_clean()
            except OSError as error:
                _log.error("%s is not marked as stopped cleanly: %s", log_dir.path, error)

    def _unlock(self) -> None:
        for log_dir in self._dirs:
            log_dir.release()
