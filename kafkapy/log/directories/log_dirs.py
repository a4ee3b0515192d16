"""The directories of log.dirs: which of them could be opened, which cluster and broker they belong to, and in which of
them a new log is created."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.directories import identity
from kafkapy.log.directories.log_dir import LogDir, TopicPartition
from kafkapy.log.directories.meta_properties import MetaProperties
from kafkapy.log.environment import Environment
from kafkapy.log.failures import Shortage
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.storage.files import Files
from kafkapy.runtime.config_def import ConfigError

_log = logging.getLogger(__name__)


class NoLogDir(RuntimeError):
    """Raised when none of the directories in log.dirs can be used."""


class LogDirs:
    """The log directories of a broker that could be opened, locked from construction to `unlock`."""

    def __init__(self, dirs: Sequence[Path | str], environment: Callable[[str], Environment]) -> None:
        """Open and lock the directories `dirs` of log.dirs. `environment(path)` returns the Environment of a directory.

        A directory with an OSError is logged and left out. Raises DirLocked if another broker uses one of the
        directories, NoLogDir if none can be used, ConfigError if one is named twice.
        """
        self.opened: list[LogDir] = []
        self._refused: dict[Path, BaseException] = {}  # directories that could not be opened
        try:
            self._open([os.path.abspath(path) for path in dirs], environment)
        except BaseException:
            self.unlock()
            raise

    def _open(self, paths: list[str], environment: Callable[[str], Environment]) -> None:
        if len({os.path.realpath(path) for path in paths}) < len(paths):
            raise ConfigError("log.dirs", ",".join(paths), "names a directory twice")
        for path in paths:
            try:
                self.opened.append(LogDir(environment(path)))
            except OSError as error:
                _log.error("log directory %s cannot be used: %s", path, error)
                self._refused[Path(path)] = error
        if not self.opened:
            reasons = "; ".join(f"{path}: {error}" for path, error in self._refused.items())
            raise NoLogDir(f"no log directory can be used ({reasons})")

    def unlock(self) -> None:
        for log_dir in self.opened:
            log_dir.release()

    @property
    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.opened if log_dir.online]

    def of(self, env: Environment) -> LogDir:
        return next(one for one in self.opened if one.env is env)

    def states(self) -> list[tuple[Path, BaseException | None]]:
        """Return (path, error) of every directory in log.dirs: the error that took the directory offline, None if it is
        online.
        """
        opened: list[tuple[Path, BaseException | None]] = [(one.path, one.env.failure) for one in self.opened]
        return opened + list(self._refused.items())

    # --- the content of the directories

    def stored_cluster_id(self) -> str | None:
        """Return the cluster id in the meta.properties files, None if no directory has one. Raises
        MetaPropertiesError.
        """
        stored = identity.stored(self.online)
        return stored.cluster_id if stored is not None else None

    def stored_broker_id(self) -> int | None:
        """Return the broker id in the meta.properties files, None if no directory has one. Raises
        MetaPropertiesError.
        """
        stored = identity.stored(self.online)
        return stored.broker_id if stored is not None else None

    def check_identity(self, broker_id: int, cluster_id: str) -> None:
        """Raise MetaPropertiesError if the meta.properties file of a directory names another broker or another
        cluster.
        """
        identity.check(self.online, MetaProperties(broker_id, cluster_id))

    def write_identity(self, broker_id: int, cluster_id: str, now_ms: int) -> None:
        """Write these ids to meta.properties in every directory whose file is missing or names no cluster.

        Call `check_identity` first.
        """
        identity.write(self.online, MetaProperties(broker_id, cluster_id), now_ms)

    def stored_partitions(self) -> list[TopicPartition]:
        """Return (topic, partition) of all logs in the online directories, sorted.

        Directories that are marked as stray or for deletion are left out.
        """
        found: list[TopicPartition] = []
        for log_dir in self.online:
            try:
                dirs = log_dir.partition_dirs()
            except OSError as error:
                log_dir.env.failed("listing it", error)
                continue
            found += [(name.topic, name.partition) for _, name in dirs if name.kind == names.LIVE_DIR]
        return sorted(found)

    def create_log(
        self,
        key: TopicPartition,
        topic_id: bytes | None,
        config: LogConfig,
        preferred: LogDir | None,
        reserve: Callable[[Sequence[LogDir]], LogDir],
        count: Callable[[LogDir, int], object],
    ) -> PartitionLog:
        """Create a log in the online log directory that has the fewest logs; if that fails, in the next one.

        Other threads create logs at the same time. So `reserve(directories)` chooses the one with the fewest logs and
        counts the new log there; `count(directory, -1)` takes that back when the creation has failed. With `preferred`,
        only that directory is tried, as in Kafka. Raises KafkaError KAFKA_STORAGE_ERROR if the log can be created in no
        directory. This is a Shortage if one of them may have room later.
        """
        reason = "no log directory is online"
        shortage: Shortage | None = None
        candidates = self.online if preferred is None else [preferred] if preferred.online else []
        while candidates:
            log_dir = reserve(candidates)
            candidates.remove(log_dir)
            path = os.path.join(log_dir.env.log_dir, names.dir_name(*key))
            was_there = log_dir.env.files.exists(path)
            made = False
            try:
                if not was_there:
                    log_dir.env.cleaner_offsets.remove(key)  # may be left from a log that was deleted by hand
                # A directory that appeared after the start is recovered: the clean-shutdown marker, which is read at
                # the start, does not cover it.
                log = PartitionLog.load(log_dir.env, path, *key, config, clean=not was_there, topic_id=topic_id)
                made = True
                return log
            except OSError as error:
                refusal = log_dir.env.disk_error(f"creating {path}", error)
            except KafkaError as error:
                if error.code != Errors.KAFKA_STORAGE_ERROR:
                    raise
                refusal = error
            finally:
                if not made:
                    count(log_dir, -1)
            reason = refusal.message
            if isinstance(refusal, Shortage):
                shortage = refusal
            if was_there:
                break
            _remove_incomplete(log_dir.env.files, path)
        if shortage is not None:
            raise shortage
        raise KafkaError(Errors.KAFKA_STORAGE_ERROR, reason)


def _remove_incomplete(files: Files, path: str) -> None:
    """Remove a partition directory whose log could not be created, because the log will be created in another log
    directory.

    Otherwise the next start would fail, as it does if a log is in two directories. An error is only logged.
    """
    try:
        files.remove_tree(path)
    except OSError as error:
        _log.error("%s is incomplete and must be removed by hand: %s", path, error)
