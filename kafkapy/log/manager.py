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
from pathlib import Path

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment, PoolLike, SchedulerLike
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.files import Files
from kafkapy.log.log_dir import LogDir, TopicPartition
from kafkapy.log.manager_tasks import ManagerTasks
from kafkapy.log.meta_properties import MetaProperties, MetaPropertiesError, check_meta, read_meta, write_meta
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
            on_failure=self._dir_failed,
        )

    # --- which cluster and broker the directories belong to

    def stored_cluster_id(self) -> str | None:
        """The cluster id in meta.properties; None in new directories. Raises MetaPropertiesError."""
        stored = self._stored()
        return stored.cluster_id if stored is not None else None

    def stored_broker_id(self) -> int | None:
        """The broker id in meta.properties; None in new directories. Raises MetaPropertiesError."""
        stored = self._stored()
        return stored.broker_id if stored is not None else None

    def _stored(self) -> MetaProperties | None:
        found = {meta: log_dir for log_dir, meta in self._read_metas().items() if meta is not None}
        if len(found) > 1:
            told = "; ".join(
                f"{log_dir.path}: broker {meta.broker_id} of {meta.cluster_id}" for meta, log_dir in found.items()
            )
            raise MetaPropertiesError(f"the directories in log.dirs do not belong together ({told})")
        return next(iter(found), None)

    def stamp(self, broker_id: int, cluster_id: str) -> None:
        """Checks meta.properties in every directory and writes it where there is none. Raises MetaPropertiesError."""
        wanted = MetaProperties(broker_id, cluster_id)
        metas = self._read_metas()
        for log_dir, meta in metas.items():
            if meta is not None:
                check_meta(meta, wanted, log_dir.env.log_dir)
        for log_dir, meta in metas.items():
            if meta != wanted:
                try:
                    write_meta(self._files, log_dir.env.log_dir, wanted, self.clock.time_ms() / 1000)
                except OSError as error:
                    log_dir.env.failed("writing meta.properties", error)

    def _read_metas(self) -> dict[LogDir, MetaProperties | None]:
        metas: dict[LogDir, MetaProperties | None] = {}
        for log_dir in self.online_dirs():
            try:
                metas[log_dir] = read_meta(self._files, log_dir.env.log_dir)
            except OSError as error:
                log_dir.env.failed("reading meta.properties", error)
        return metas

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
            try:
                found = log_dir.begin_loading()
            except OSError as error:
                log_dir.env.failed("loading it", error)
                continue
            _log.info(
                "%s: %d partitions, %s",
                log_dir.path,
                len(found),
                "stopped cleanly" if log_dir.was_clean else "not stopped cleanly: recovering",
            )
            jobs = [self._load_job(log_dir, path, name, config_of, is_stray) for path, name in found]
            run_all(jobs, self.settings.recovery_threads_per_dir, f"recovery of {log_dir.path}")
            log_dir.all_loaded = log_dir.online

    def _load_job(
        self,
        log_dir: LogDir,
        path: str,
        name: names.LogDirName,
        config_of: Callable[[str], LogConfig] | None,
        is_stray: Callable[[PartitionLog], bool] | None,
    ) -> Callable[[], None]:
        def job() -> None:
            if name.kind == names.DELETE_DIR:
                self._remove_later(log_dir, path)
            elif name.kind == names.LIVE_DIR and log_dir.online:
                config = config_of(name.topic) if config_of is not None else self.defaults
                self._load_one(log_dir, path, name, config, is_stray)
            else:
                _log.warning("%s is left alone", path)

        return job

    def _load_one(
        self,
        log_dir: LogDir,
        path: str,
        name: names.LogDirName,
        config: LogConfig,
        is_stray: Callable[[PartitionLog], bool] | None,
    ) -> None:
        key = (name.topic, name.partition)
        try:
            log = PartitionLog.load(
                log_dir.env,
                path,
                *key,
                config,
                clean=log_dir.was_clean,
                log_start_offset=log_dir.start_offsets.get(key, 0),
                recovery_point=log_dir.recovery_points.get(key, 0),
            )
        except OSError as error:
            log_dir.env.failed(f"loading {path}", error)
            return
        except KafkaError as error:
            _log.error("%s is not served: %s", path, error.message)
            self._unloadable[key] = error
            return
        log.set_high_watermark(log_dir.high_watermarks.get(key, log.log_start_offset))
        with self._lock:
            other = self._logs.setdefault(key, log)
        if other is not log:
            log.abandon()
            raise RuntimeError(f"{log.name} is in two directories, {other.directory} and {path}: remove one of them")
        if is_stray is not None and is_stray(log):
            self.set_aside_stray(*key)

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

    def create(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig) -> PartitionLog:
        """The log, made if there is none, in the directory with the fewest. Raises KafkaError."""
        key = (topic, partition)
        with self._lock:
            log = self._logs.get(key)
            if log is None:
                refusal = self._unloadable.get(key)
                if refusal is not None:
                    raise refusal
                log = self._logs[key] = self._create(key, topic_id, config)
            elif topic_id is not None:
                log.assign_topic_id(topic_id)
        return log

    def _create(self, key: TopicPartition, topic_id: bytes | None, config: LogConfig) -> PartitionLog:
        reason = "no log directory is online"
        for log_dir in sorted(self.online_dirs(), key=lambda one: len(self.logs_in(one.path))):
            path = os.path.join(log_dir.env.log_dir, names.dir_name(*key))
            try:
                return PartitionLog.load(log_dir.env, path, *key, config, topic_id=topic_id)
            except OSError as error:
                reason = log_dir.env.disk_error(f"making {path}", error).message
            except LogDirFailure as failure:
                reason = failure.message
        raise KafkaError(Errors.KAFKA_STORAGE_ERROR, reason)

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
        log_dir = next(one for one in self._dirs if one.env is log.env)
        path = os.path.join(log_dir.env.log_dir, names.marked_dir_name(topic, partition, kind))
        try:
            self._files.rename(log.directory, path)
            self._files.sync_dir(log_dir.env.log_dir)
        except OSError as error:
            raise log_dir.env.disk_error(f"renaming {log.directory}", error) from error
        self.checkpoint([log_dir])
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
