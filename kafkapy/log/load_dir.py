"""Loading the logs of one directory on threads of their own, while the broker serves (Kafka's LogManager.loadLogs).

What a client asks for comes first, then the log that was written last. Where the last stop was clean loading takes
moments, and the order is that of the listing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from kafkapy.log import names
from kafkapy.log.load_progress import DirProgress, LoadStopped, LoadWatch
from kafkapy.log.log_dir import LogDir, TopicPartition

_log = logging.getLogger(__name__)


class LoadJob:
    """One partition's directory. `begun` and `ended` change under the lock of its DirLoad."""

    __slots__ = ("begun", "bytes_left", "ended", "key", "load", "path", "stopped", "taken", "wanted", "written_ms")

    def __init__(self, key: TopicPartition, path: str, load: DirLoad) -> None:
        self.key = key
        self.path = path
        self.load = load
        self.begun = False
        self.ended = False
        self.taken = False  # out of the queue, by somebody who deletes it or sets it aside
        self.stopped = False  # nobody wants it any more: it ends between two segments
        self.wanted = False  # a client has asked for it
        self.bytes_left = 0
        self.written_ms = 0  # when its newest segment was last written


class DirLoad:
    """Life: construct with what the listing found, `start`, then `stop`, or wait until `finished` is called.

    `run(job, watch)` loads one log, and answers whether that is over: not when the broker stops in the middle.
    `ended(job)` is called after each, also of those that were taken, and `finished()` once, at the end.
    """

    def __init__(
        self,
        log_dir: LogDir,
        found: Iterable[tuple[TopicPartition, str]],
        threads: int,
        *,
        run: Callable[[LoadJob, LoadWatch], bool],
        ended: Callable[[LoadJob], None],
        finished: Callable[[], None],
    ) -> None:
        self.log_dir = log_dir
        self.jobs = [LoadJob(key, path, self) for key, path in found]
        self.progress = DirProgress(str(log_dir.path), threads, len(self.jobs), log_dir.env.clock.monotonic)
        self._run = run
        self._ended = ended
        self._finished = finished
        self._queue: deque[LoadJob] = deque(self.jobs)
        self._wanted: deque[LoadJob] = deque()  # network threads append to it
        self._limit = min(threads, len(self.jobs))
        self._changed = threading.Condition()
        self._stopping = False
        self._over = False
        self._working = 0
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        if self.jobs:
            state = "stopped cleanly" if self.log_dir.was_clean else "not stopped cleanly: recovering"
            _log.info("%s: partitions: %d, %s", self.log_dir.path, len(self.jobs), state)
            self._working = 1
            self._begin_thread(0, self._first)
        else:
            self._maybe_finish()

    def _begin_thread(self, number: int, target: Callable[[int], None]) -> None:
        name = f"log-recovery-{self.log_dir.path}-{number}"
        thread = threading.Thread(target=target, args=(number,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    # --- the threads

    def _first(self, number: int) -> None:
        if not self.log_dir.was_clean:
            self._arrange()
        with self._changed:
            if not self._stopping:
                self._working = self._limit
                for other in range(1, self._limit):
                    self._begin_thread(other, self._work)
        self._work(number)

    def _arrange(self) -> None:
        """Finds out how much there is to check, and puts what was written last first."""
        for job in self.jobs:
            if self._stopping:
                return
            try:
                self._look_at(job)
            except OSError:
                continue  # the loading will meet it again, and knows what to do
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
            over = self._run(job, watch)
            watch.finished()
            if over:
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

    def _end(self, job: LoadJob) -> None:
        with self._changed:
            self.progress.bytes_left -= job.bytes_left
            self.progress.logs_left -= 1
            job.bytes_left = 0
        self._ended(job)  # before those are woken that wait for it
        with self._changed:
            job.ended = True
            self._changed.notify_all()
        self.progress.tell()

    def _maybe_finish(self) -> None:
        with self._changed:
            if self._over or self._working or (self.progress.logs_left and not self._stopping):
                return
            self._over = True
            self._changed.notify_all()
        if not self.progress.logs_left:
            self.log_dir.all_loaded = True
            if self.jobs:
                self.progress.tell_end(len(self.log_dir.not_recovered))
        self._finished()

    def passed(self, job: LoadJob, number: int, size: int) -> None:
        """A segment of `job` was checked. Raises LoadStopped if nobody wants more."""
        with self._changed:
            size = min(size, job.bytes_left)
            job.bytes_left -= size
            self.progress.bytes_left -= size
            self.progress.segments_left[number] -= 1
        self.progress.tell()
        if self._stopping or job.stopped:
            raise LoadStopped(job.path)

    # --- from outside

    def hasten(self, job: LoadJob) -> None:
        """Puts it first; for network threads, so without a lock."""
        if not job.wanted:
            job.wanted = True
            self._wanted.append(job)

    def take(self, job: LoadJob) -> bool:
        """Takes a log out of the queue: `give_back` when it is done with.

        False if a thread has begun with it, or the broker stops.
        """
        with self._changed:
            if job.begun or self._stopping:
                return False
            job.begun = job.taken = True
            return True

    def give_back(self, job: LoadJob) -> None:
        """What was taken is deleted, or set aside."""
        self._end(job)
        self._maybe_finish()

    def wait_for(self, job: LoadJob) -> None:
        """Until its loading is over, one way or another."""
        self.hasten(job)
        with self._changed:
            while not job.ended and not self._over:
                self._changed.wait()

    def stop(self) -> None:
        """Ends the loading between two segments, and returns when it has ended. Idempotent."""
        with self._changed:
            self._stopping = True
        while self._threads:
            self._threads.pop().join()
        self._maybe_finish()


class _Watch(LoadWatch):
    """One log's loading, on one thread."""

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
