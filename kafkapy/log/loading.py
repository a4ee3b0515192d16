"""The logs that are on their way: from the listing of the directories until each is ready, while the broker serves.

From `begin` on it is known which partitions there are, so that no log is made anew in the place of one that is only
not there yet. Source: Kafka's LogManager.loadLogs, which serves nothing before it is done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names, partition_metadata
from kafkapy.log.config import LogConfig
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.load_dir import DirLoad, LoadJob
from kafkapy.log.load_progress import DirProgress, LoadStopped, LoadWatch
from kafkapy.log.log_dir import LogDir, TopicPartition
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.partition_metadata import PartitionMetadataError

if TYPE_CHECKING:
    from kafkapy.log.manager import LogManager

ConfigOf = Callable[[str], LogConfig]
IsStray = Callable[[str, int, "bytes | None"], bool]  # topic, partition, topic id in the log

_log = logging.getLogger(__name__)


class Loading:
    """Life: `begin`, `start`, then `wait` or `stop`."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._jobs: dict[TopicPartition, LoadJob] = {}
        self._loads: list[DirLoad] = []
        self._left = 0  # directories that still load
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._config_of: ConfigOf = lambda topic: manager.defaults
        self._is_stray: IsStray = lambda topic, partition, topic_id: False
        self._on_loaded: Callable[[str, int], object] = lambda topic, partition: None

    def begin(
        self,
        config_of: ConfigOf | None = None,
        is_stray: IsStray | None = None,
        on_loaded: Callable[[str, int], object] | None = None,
    ) -> None:
        """Lists the directories: quick, however much has to be recovered. RuntimeError if a log is in two of them.

        `config_of(topic)` gives a log its settings. A log for which `is_stray(topic, partition, topic id)` is true
        (the cluster does not know it) is renamed `-stray` and not served, never deleted.
        `on_loaded(topic, partition)` is called on a loading thread when a log is not loading any more: it is ready, or
        it is not to be served, which was said in one line and `LogManager.create` raises. Not of a log that was deleted
        or set aside before its turn: who did that knows, and may hold what the callee needs.
        """
        self._config_of = config_of or self._config_of
        self._is_stray = is_stray or self._is_stray
        self._on_loaded = on_loaded or self._on_loaded
        places: dict[TopicPartition, str] = {}
        for log_dir in self._manager.online_dirs():
            try:
                found = log_dir.begin_loading()
            except OSError as error:
                log_dir.env.failed("loading it", error)
                continue
            live = []
            for path, name in found:
                key = (name.topic, name.partition)
                if name.kind == names.DELETE_DIR:
                    self._manager.remove_later(log_dir, path)
                elif name.kind != names.LIVE_DIR:
                    _log.warning("%s is left alone", path)
                elif key in places:
                    raise RuntimeError(
                        f"{names.dir_name(*key)} is in two directories, {places[key]} and {path}: remove one of them"
                    )
                else:
                    places[key] = path
                    live.append((key, path))
            self._loads.append(
                DirLoad(
                    log_dir,
                    live,
                    self._manager.settings.recovery_threads_per_dir,
                    run=self._load,
                    ended=self._ended,
                    finished=self._finished,
                )
            )
        self._jobs = {job.key: job for load in self._loads for job in load.jobs}
        self._left = len(self._loads)

    def start(self) -> None:
        """Loads all of them, on threads of their own."""
        if not self._loads:
            self._over.set()
        for load in self._loads:
            load.start()

    def _finished(self) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self._over.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether all logs are ready, or refused: not if the time is up, or the loading was stopped before."""
        return self._over.wait(timeout) and not self._jobs

    def stop(self) -> None:
        """Returns when no thread is at it; what is not recovered by then is at the next start. Idempotent."""
        for load in self._loads:
            load.stop()

    # --- questions, without a lock

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._jobs

    def hasten(self, key: TopicPartition) -> None:
        """Somebody asks for it: it comes first."""
        job = self._jobs.get(key)
        if job is not None:
            job.load.hasten(job)

    def progress(self) -> dict[str, DirProgress]:
        """By log directory."""
        return {str(load.log_dir.path): load.progress for load in self._loads}

    def in_dir(self, directory: Path) -> list[TopicPartition]:
        """The logs in one of log.dirs that are not ready yet."""
        return [job.key for job in list(self._jobs.values()) if job.load.log_dir.path == directory]

    # --- one log

    def _load(self, job: LoadJob, watch: LoadWatch) -> bool:
        log_dir = job.load.log_dir
        clean = log_dir.was_clean
        try:
            if log_dir.online:
                self._open(job, log_dir, watch)
                return True
        except LoadStopped:
            log_dir.not_recovered.add(job.key)
            if not job.stopped:
                return False
            reason = KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{job.path} is being deleted")
            self._manager.refuse(job.key, log_dir, job.path, reason)
            return True
        except LogDirFailure:
            pass  # told already
        except OSError as error:
            log_dir.env.failed(f"loading {job.path}", error)
        except KafkaError as refusal:
            _log.error("%s cannot be served: %s", job.path, refusal.message)
            self._refuse(job, log_dir, refusal)
        except Exception as error:
            _log.exception("%s cannot be served", job.path)
            clean = False
            self._refuse(job, log_dir, KafkaError(Errors.KAFKA_STORAGE_ERROR, f"{job.path}: {error}"))
        if not clean:
            log_dir.not_recovered.add(job.key)
        return True

    def _open(self, job: LoadJob, log_dir: LogDir, watch: LoadWatch) -> None:
        key = job.key
        log = PartitionLog.load(
            log_dir.env,
            job.path,
            *key,
            self._config_of(key[0]),
            clean=log_dir.was_clean,
            log_start_offset=log_dir.start_offsets.get(key, 0),
            recovery_point=log_dir.recovery_points.get(key, 0),
            watch=watch,
        )
        log.set_high_watermark(log_dir.high_watermarks.get(key, log.log_start_offset))
        if log.recovery_point < log_dir.recovery_points.get(key, 0):
            # What was flushed is not there any more. What takes its place is not, yet: after a crash a start would go
            # by the old point, and not look at it.
            log_dir.recovery_points[key] = log.recovery_point
            self._manager.checkpoint([log_dir])
        if self._is_stray(*key, log.topic_id):
            log.close()  # recovered before it goes aside: whoever brings it back finds it in order
            log.abandon()
            self._manager.set_aside(key, log_dir, job.path)
        else:
            self._manager.take_in(log)

    def _refuse(self, job: LoadJob, log_dir: LogDir, reason: KafkaError) -> None:
        try:
            if self._is_stray(*job.key, _topic_id(log_dir, job.path)):
                self._manager.set_aside(job.key, log_dir, job.path)
                return
        except KafkaError as error:
            _log.error("%s cannot be set aside: %s", job.path, error.message)
        self._manager.refuse(job.key, log_dir, job.path, reason)

    def _ended(self, job: LoadJob) -> None:
        if self._manager.get(*job.key) is not None:
            job.load.log_dir.not_loaded.discard(job.key)
        self._jobs.pop(job.key, None)
        if job.taken:
            return
        try:
            self._on_loaded(*job.key)
        except Exception:
            _log.exception("%s is loaded, and cannot be led", job.path)

    # --- changes to logs that are not there yet

    @contextmanager
    def taken(self, key: TopicPartition) -> Iterator[LoadJob | None]:
        """Takes a log that nobody has begun to load out of the queue, for as long as the block runs.

        None if no such log is loading. Raises KafkaError if a thread is at it, which is asked to stop.
        """
        job = self._jobs.get(key)
        if job is None:
            yield None
            return
        if not job.load.take(job):
            job.stopped = True
            raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, f"{job.path} is being recovered; that ends soon")
        try:
            yield job
        finally:
            job.load.give_back(job)

    def make_way(self, key: TopicPartition) -> None:
        """Before a log is made: returns when none of that name is on its way. A stray is set aside.

        May wait; raises KafkaError if the broker stops meanwhile.
        """
        job = self._jobs.get(key)
        if job is None:
            return
        log_dir = job.load.log_dir
        if job.load.take(job):  # not left to the threads: one may wait for something that the caller holds
            try:
                if self._is_stray(*key, _topic_id(log_dir, job.path)):
                    self._manager.set_aside(key, log_dir, job.path)
                else:
                    self._load(job, LoadWatch())
            finally:
                job.load.give_back(job)
            return
        job.load.wait_for(job)
        if key in self._jobs:
            raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, f"{job.path} is not loaded: the broker stops")


def _topic_id(log_dir: LogDir, path: str) -> bytes | None:
    try:
        return partition_metadata.read_topic_id(log_dir.env.files, path)
    except PartitionMetadataError:
        return None
