"""Load all logs in the background, on threads of their own for each log directory, while the broker handles requests.

After `Loading.begin` all existing partitions are known, so no new log is created for a partition whose log is not
loaded yet. Logs that clients request are loaded first, then those that were written last. After a clean shutdown
loading is fast, and logs are loaded in the order of the directory listing. Source: Kafka's LogManager.loadLogs, which
finishes loading before the broker serves requests.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.directories import partition_metadata
from kafkapy.log.directories.log_dir import LogDir, TopicPartition
from kafkapy.log.directories.partition_metadata import PartitionMetadataError
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.loading.found import find_logs
from kafkapy.log.loading.load_progress import DirProgress, LoadStopped, LoadWatch
from kafkapy.log.partition_log import PartitionLog
from kafkapy.runtime.threads import NoThread, Thread

if TYPE_CHECKING:
    from kafkapy.log.manager import LogManager

ConfigOf = Callable[[str], LogConfig]
IsStray = Callable[[str, int, "bytes | None"], bool]  # topic, partition, topic id in the log

_log = logging.getLogger(__name__)


class Loading:
    """Loads all logs of a LogManager on background threads. Call `begin`, then `start`, then `wait` or `stop`."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._jobs: dict[TopicPartition, LoadJob] = {}
        self._loads: list[DirLoad] = []
        self._left = 0  # directories that are still loading
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
        """List the log directories, so that all logs to load are known. Fast, no matter how much has to be recovered.

        Raises LogInTwoDirectories, see `find_logs`. `config_of(topic)` returns the settings of a log. If
        `is_stray(topic, partition, topic id)` is true, the cluster does not know the log; its directory is renamed to
        `-stray` and neither served nor deleted. `on_loaded(topic, partition)` is called on a loading thread
        when a log was loaded or cannot be served; in the second case the reason was logged, and `LogManager.create`
        raises it. `on_loaded` is not called for a log that was deleted or renamed before it was loaded, because the
        caller of the deletion may hold locks that `on_loaded` needs.
        """
        self._config_of = config_of or self._config_of
        self._is_stray = is_stray or self._is_stray
        self._on_loaded = on_loaded or self._on_loaded
        found = find_logs(self._manager.online_dirs(), self._manager.remove_later)
        for log_dir, live in found.logs:
            self._loads.append(
                DirLoad(
                    log_dir,
                    live.items(),
                    self._manager.settings.recovery_threads_per_dir,
                    run=self._load,
                    doomed=self._delete_doomed,
                    ended=self._ended,
                    finished=self._finished,
                )
            )
        self._jobs = {job.key: job for load in self._loads for job in load.jobs}
        self._manager.futures.not_loaded = found.futures
        self._left = len(self._loads)

    def start(self) -> None:
        """Start the threads that load the logs. Raises NoThread if a log directory gets no thread at all."""
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
        """Wait until loading ends; return True if all logs were handled.

        Return False after `timeout` seconds, or if loading was stopped before.
        """
        return self._over.wait(timeout) and not self._jobs

    def stop(self) -> None:
        """Stop loading, and return when all loading threads have ended. The next start recovers the remaining logs.
        Idempotent.
        """
        for load in self._loads:
            load.stop()

    # --- queries, without a lock

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._jobs

    def topics(self) -> list[str]:
        """Return the topics that have logs which are not loaded yet."""
        return list(dict.fromkeys(topic for topic, _ in list(self._jobs)))

    def hasten(self, key: TopicPartition) -> None:
        """Load the log `key` next, because a client requests it. Does nothing if the log is not waiting to be
        loaded.
        """
        job = self._jobs.get(key)
        if job is not None:
            job.load.hasten(job)

    def progress(self) -> dict[str, DirProgress]:
        """Return the loading progress of each log directory, by path."""
        return {str(load.log_dir.path): load.progress for load in self._loads}

    def in_dir(self, directory: Path) -> list[TopicPartition]:
        """Return the (topic, partition) of each log in the log directory `directory` that is not loaded yet."""
        return [job.key for job in list(self._jobs.values()) if job.load.log_dir.path == directory]

    # --- loading one log

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
            pass  # logged by Environment.failed
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
        log = self.open(key, job.path, log_dir, self._config_of(key[0]), watch)
        if self._is_stray(*key, log.topic_id):
            log.close()  # recovered before it is renamed, so that the log is intact if an administrator restores it
            log.abandon()
            self._set_aside(job)
        else:
            future = self._manager.futures.not_loaded.get(key)
            if future is not None:
                self._open_future(log, *future, watch)
            self._manager.take_in(log)
            if log.future is not None:
                self._manager.futures.on_loaded(log)

    def _open_future(self, log: PartitionLog, log_dir: LogDir, path: str, watch: LoadWatch) -> None:
        """Load a log's copy in another directory. If that fails, the log is served without it."""
        key = (log.topic, log.partition)
        try:
            if log_dir.online:
                future = self.open(key, path, log_dir, log.config, watch)
                if log.topic_id is not None:  # else the copy of a deleted topic of that name could replace the log
                    future.check_topic_id(log.topic_id)
                self._manager.futures.adopt(log, future, log_dir)
                log_dir.not_loaded.discard(key)
                log_dir.not_recovered.discard(key)
        except LogDirFailure:
            pass  # logged by Environment.failed
        except OSError as error:
            log_dir.env.failed(f"loading {path}", error)
        except KafkaError as refusal:
            _log.error("the copy %s cannot be loaded and is ignored: %s", path, refusal.message)
        except LoadStopped:
            raise
        except Exception:
            _log.exception("the copy %s cannot be loaded and is ignored", path)

    def _set_aside(self, job: LoadJob) -> None:
        """Set aside a log that the cluster does not know, and its copy in another directory if it has one."""
        self._manager.set_aside(job.key, job.load.log_dir, job.path)
        future = self._manager.futures.not_loaded.pop(job.key, None)
        if future is not None:
            self._manager.set_aside(job.key, *future)

    def open(
        self, key: TopicPartition, path: str, log_dir: LogDir, config: LogConfig, watch: LoadWatch
    ) -> PartitionLog:
        """Load a log from its directory `path`, recovering the log if necessary. Raises KafkaError, OSError,
        LoadStopped.
        """
        log = PartitionLog.load(
            log_dir.env,
            path,
            *key,
            config,
            clean=log_dir.was_clean,
            log_start_offset=log_dir.start_offsets.get(key, 0),
            recovery_point=log_dir.recovery_points.get(key, 0),
            watch=watch,
        )
        log.set_high_watermark(log_dir.high_watermarks.get(key, log.log_start_offset))
        if log.recovery_point < log_dir.recovery_points.get(key, 0):
            # Flushed records are lost, and new records will get their offsets. If a crash came before the new records
            # are flushed, a start with the old recovery point would trust them. So the lower recovery point is written
            # now.
            log_dir.recovery_points[key] = log.recovery_point
            self._manager.checkpoint([log_dir])
        return log

    def _refuse(self, job: LoadJob, log_dir: LogDir, reason: KafkaError) -> None:
        try:
            if not log_dir.env.files.exists(job.path):  # it is set aside; only its new name could not be synced
                return
            if self._is_stray(*job.key, _topic_id(log_dir, job.path)):
                self._set_aside(job)
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
            _log.exception("%s is loaded, but this broker cannot become its leader", job.path)

    # --- changes to logs that are not loaded yet

    def delete(self, key: TopicPartition) -> bool:
        """Delete a log that is not loaded yet. Return False if this log is not to be loaded.

        If a thread has begun to load the log, this method does not wait: that thread stops after the present segment,
        and then deletes the log. Raises the errors of LogManager.discard_log, and KafkaError NOT_LEADER_OR_FOLLOWER if
        the broker stops.
        """
        job = self._jobs.get(key)
        if job is None:
            return False
        if job.load.take(job):
            try:
                self._manager.discard_log(key, job.load.log_dir, job.path)
            finally:
                job.load.give_back(job)
            return True
        if job.load.doom(job):
            return True
        self._wait_for(job)  # a thread has begun to load it, and it is too late to stop that
        return False

    def _delete_doomed(self, job: LoadJob) -> None:
        try:
            self._manager.delete_loaded(job.key)
        except LogDirFailure:
            pass  # logged by Environment.failed
        except KafkaError as error:
            _log.error("%s is deleted, but stays on the disk until the next start: %s", job.path, error.message)

    def make_way(self, key: TopicPartition) -> None:
        """Wait until this partition has no log that is still to be loaded, so that a log may be created.

        If loading has not begun, the log is loaded on this thread, or its directory is renamed if it is stray. Raises
        KafkaError NOT_LEADER_OR_FOLLOWER if the broker stops meanwhile.
        """
        job = self._jobs.get(key)
        if job is None:
            return
        log_dir = job.load.log_dir
        # Load it on this thread: a loading thread could wait for a lock that this thread's caller holds.
        if job.load.take(job):
            try:
                if self._is_stray(*key, _topic_id(log_dir, job.path)):
                    self._set_aside(job)
                else:
                    self._load(job, LoadWatch())
            finally:
                job.load.give_back(job)
            return
        self._wait_for(job)

    def _wait_for(self, job: LoadJob) -> None:
        job.load.wait_for(job)
        if job.key in self._jobs:
            raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, f"{job.path} is not loaded: the broker stops")


def _topic_id(log_dir: LogDir, path: str) -> bytes | None:
    try:
        return partition_metadata.read_topic_id(log_dir.env.files, path)
    except (PartitionMetadataError, OSError):  # loading the log reports the OSError
        return None


class LoadJob:
    """One partition directory that is to be loaded. `begun` and `ended` change under the lock of the directory's
    DirLoad.
    """

    __slots__ = (
        "begun",
        "bytes_left",
        "ended",
        "key",
        "load",
        "over",
        "path",
        "stopped",
        "taken",
        "wanted",
        "written_ms",
    )

    def __init__(self, key: TopicPartition, path: str, load: DirLoad) -> None:
        self.key = key
        self.path = path
        self.load = load
        self.begun = False
        self.ended = False
        self.taken = False  # taken out of the queue by `take`
        self.stopped = False  # the log will be deleted: stop loading after the present segment
        self.over = False  # loading has ended: it is too late for `stopped`
        self.wanted = False  # a client has requested the log
        self.bytes_left = 0
        self.written_ms = 0  # modification time of the newest segment


class DirLoad:
    """The threads that load the logs of one log directory. Call `start`; later `stop`, or wait for the call of
    `finished`.

    `run(job, watch)` loads one log and returns False only if stopping the broker interrupted it. `doomed(job)` deletes
    a log for which `doom` was called meanwhile. `ended(job)` is called after each log, including those taken out of the
    queue, and `finished()` once, at the end.
    """

    def __init__(
        self,
        log_dir: LogDir,
        found: Iterable[tuple[TopicPartition, str]],
        threads: int,
        *,
        run: Callable[[LoadJob, LoadWatch], bool],
        doomed: Callable[[LoadJob], None],
        ended: Callable[[LoadJob], None],
        finished: Callable[[], None],
    ) -> None:
        self.log_dir = log_dir
        self.jobs = [LoadJob(key, path, self) for key, path in found]
        self.progress = DirProgress(str(log_dir.path), threads, len(self.jobs), log_dir.env.clock.monotonic)
        self._run = run
        self._doomed = doomed
        self._ended = ended
        self._finished = finished
        self._queue: deque[LoadJob] = deque(self.jobs)
        self._wanted: deque[LoadJob] = deque()  # network threads append to it
        self._limit = min(threads, len(self.jobs))
        self._changed = threading.Condition()
        self._stopping = False
        self._over = False
        self._working = 0
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start the first loading thread. Raises NoThread if the thread cannot be started; then no log is loaded."""
        if self.jobs:
            state = "stopped cleanly" if self.log_dir.was_clean else "not stopped cleanly: recovering"
            _log.info("%s: partitions: %d, %s", self.log_dir.path, len(self.jobs), state)
            with self._changed:
                self._begin_thread(0, self._first)
        else:
            self._maybe_finish()

    def _begin_thread(self, number: int, target: Callable[[int], None]) -> None:
        """Start a loading thread and count it in `_working`. Raises NoThread.

        Called with the lock held: the thread needs the lock before it can end, so it cannot end before it is counted.
        """
        thread = Thread(target, f"recovery-{number}-{self.log_dir.path}", (number,))
        thread.start()
        self._threads.append(thread)
        self._working += 1

    # --- the threads

    def _first(self, number: int) -> None:
        if not self.log_dir.was_clean:
            self._arrange()
        with self._changed:
            if not self._stopping:
                self._begin_others()
        self._work(number)

    def _begin_others(self) -> None:
        for number in range(1, self._limit):
            try:
                self._begin_thread(number, self._work)
            except NoThread as error:
                path = self.log_dir.path
                _log.warning("%s is loaded with %d of %d threads: %s", path, number, self._limit, error)
                return

    def _arrange(self) -> None:
        """Compute how many bytes of each log have to be checked, and sort the queue so that logs written last are
        loaded first.
        """
        for job in self.jobs:
            if self._stopping:
                return
            try:
                self._look_at(job)
            except OSError:
                continue  # loading gets the same error and handles it
        with self._changed:
            self.progress.bytes = self.progress.bytes_left = sum(job.bytes_left for job in self.jobs)
            self._queue = deque(sorted(self._queue, key=lambda job: -job.written_ms))

    def _look_at(self, job: LoadJob) -> None:
        segments = []
        for entry in self.log_dir.env.files.entries(job.path):
            base = names.offset_of(entry.name)
            if base is not None and entry.name.endswith(names.LOG):
                segments.append((base, entry.size, entry.modified_ms))
        if segments:
            segments.sort()
            job.written_ms = segments[-1][2]
            point = self.log_dir.recovery_points.get(job.key, 0)
            first = max(sum(base <= point for base, _, _ in segments) - 1, 0)
            job.bytes_left = sum(size for _, size, _ in segments[first:])

    def _work(self, number: int) -> None:
        while (job := self._next()) is not None:
            watch = _Watch(self, job, number)
            was_loaded = self._run(job, watch)
            watch.finished()
            if self._is_doomed(job):
                self._doomed(job)
            if was_loaded:
                self._end(job)
        with self._changed:
            self._working -= 1
        self._maybe_finish()

    def _next(self) -> LoadJob | None:
        with self._changed:
            while not self._stopping and (self._wanted or self._queue):
                job = (self._wanted or self._queue).popleft()
                if not job.begun:
                    job.begun = True
                    return job
            return None

    def _is_doomed(self, job: LoadJob) -> bool:
        """Note that loading the log has ended. Return True if `doom` was called before."""
        with self._changed:
            job.over = True
            return job.stopped

    def _end(self, job: LoadJob) -> None:
        with self._changed:
            self.progress.bytes_left -= job.bytes_left
            self.progress.logs_left -= 1
            job.bytes_left = 0
        self._ended(job)  # before waking the threads that wait for this log
        with self._changed:
            job.ended = True
            self._changed.notify_all()
        self.progress.maybe_log()

    def _maybe_finish(self) -> None:
        with self._changed:
            if self._over or self._working or (self.progress.logs_left and not self._stopping):
                return
            self._over = True
            self._changed.notify_all()
        if not self.progress.logs_left:
            self.log_dir.all_loaded = True
            if self.jobs:
                self.progress.log_end(len(self.log_dir.not_recovered))
        self._finished()

    def passed(self, job: LoadJob, number: int, size: int) -> None:
        """Count a segment of `size` bytes of `job`, which thread `number` has checked, in the progress.

        Raises LoadStopped if loading this log must end.
        """
        with self._changed:
            size = min(size, job.bytes_left)
            job.bytes_left -= size
            self.progress.bytes_left -= size
            self.progress.segments_left[number] -= 1
        self.progress.maybe_log()
        if self._stopping or job.stopped:
            raise LoadStopped(job.path)

    # --- called by other threads

    def hasten(self, job: LoadJob) -> None:
        """Have a log loaded before those that no client has requested. Takes no lock, because network threads
        call it.
        """
        if not job.wanted:
            job.wanted = True
            self._wanted.append(job)

    def take(self, job: LoadJob) -> bool:
        """Take a log out of the queue, so that no thread loads it; the caller must call `give_back`.

        Returns False, and changes nothing, if a thread has begun to load the log, or the broker stops.
        """
        with self._changed:
            if job.begun or self._stopping:
                return False
            job.begun = job.taken = True
            return True

    def give_back(self, job: LoadJob) -> None:
        """Count a log that `take` has taken out of the queue as loaded. Wakes the threads that wait for this log."""
        if self._is_doomed(job):
            self._doomed(job)
        self._end(job)
        self._maybe_finish()

    def doom(self, job: LoadJob) -> bool:
        """Have the thread that loads this log stop after the present segment, and delete the log. Return False if no
        thread has begun to load it, if loading has ended, or if the broker stops.
        """
        with self._changed:
            if not job.begun or job.over or self._stopping:
                return False
            job.stopped = True
            return True

    def wait_for(self, job: LoadJob) -> None:
        """Have a log loaded soon, and wait until it was loaded or refused, or loading has stopped."""
        self.hasten(job)
        with self._changed:
            while not job.ended and not self._over:
                self._changed.wait()

    def stop(self) -> None:
        """Make the loading threads stop after their present segments, and return when all have ended. Idempotent."""
        with self._changed:
            self._stopping = True
        while self._threads:
            self._threads.pop().join()
        self._maybe_finish()


class _Watch(LoadWatch):
    """Counts the segments of one log that are checked during recovery in the progress of the log directory."""

    def __init__(self, load: DirLoad, job: LoadJob, number: int) -> None:
        self._load = load
        self._job = job
        self._number = number

    def recovering(self, segments: int) -> None:
        self._load.progress.segments_left[self._number] = segments

    def checked(self, size: int) -> None:
        self._load.passed(self._job, self._number, size)

    def finished(self) -> None:
        self._load.progress.segments_left[self._number] = 0
