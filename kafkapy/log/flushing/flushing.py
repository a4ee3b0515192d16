"""Make a log's records durable up to its recovery point (Kafka's UnifiedLog.flush).

A flush syncs the records but not the indexes of the active segment, because acknowledgements may wait for the flush.
After a crash, a start rebuilds the indexes of the segment that contains the recovery point and of all later segments.
The indexes are synced after a roll, and before the recovery point is written to its checkpoint, because later starts
trust everything below that recovery point.

A sync that failed is not repeated: the kernel may have dropped the pages that it could not write, and reports that only
once. The log directory goes offline instead.
"""

from __future__ import annotations

import errno
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog
    from kafkapy.log.segments.segment import Segment

_NOWHERE = -1
_NOT_OPENED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # no sync fails with these


class _Taken(NamedTuple):
    """The files that one sync covers, apart from the active segment.

    `done` contains rolled segments, each once, and `snapshots` the paths of producer snapshots. `names_changed` says
    that the directory must be synced too.
    """

    done: list[Segment]
    snapshots: list[str]
    names_changed: bool


class Flusher:
    """Makes the records of one log durable by syncing its files.

    Only one flush runs at a time. A flush that waited for another flush may find that its records are already durable.
    """

    __slots__ = ("_done", "_indexed", "_lock", "_log", "_names_changed", "_snapshots", "_truncations", "flushed_at")

    def __init__(self, log: PartitionLog, *, durable: bool) -> None:
        """`durable`: when the log was loaded, its files were undamaged and durable, and loading changed no file."""
        # a proxy, to avoid a reference cycle: the caller of a flush keeps the log alive
        self._log: PartitionLog = weakref.proxy(log)
        self._lock = threading.Lock()
        # What the next sync has to include; changed under the log's lock.
        self._done: list[Segment] = []
        self._snapshots: list[str] = []
        self._names_changed = not durable
        # the active segment's indexes are durable below this offset
        self._indexed = log.end[0] if durable else _NOWHERE
        self._truncations = 0
        # Every record that was appended before this moment (seconds, Clock.monotonic) is flushed.
        self.flushed_at = log.clock.monotonic()

    def sync_snapshot_later(self, path: str) -> None:
        """Add a producer snapshot that was just written to `path` to the files of the next flush.

        Called under the log's lock.
        """
        self._snapshots.append(path)
        self._names_changed = True

    def sync_later(self, sealed: Segment) -> None:
        """Add a segment that a roll has sealed to the files of the next flush. Called under the log's lock.

        This is necessary even if the segment's records are already flushed: once the recovery point is past a segment,
        a start trusts the segment's indexes, so they must be durable too.
        """
        self._done.append(sealed)
        self._names_changed = True

    @property
    def has_pending(self) -> bool:
        """Return True if the next sync has to include more than the records and indexes of the active segment, because
        a file was created, renamed or sealed since the last one.
        """
        return self._names_changed or bool(self._done)

    def truncated(self) -> None:
        """Record that the log was truncated, so that a flush in progress does not move the recovery point.

        Called under the log's lock.
        """
        self._names_changed = True
        self._indexed = _NOWHERE
        self._truncations += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for the flush in progress, and let none begin while the `with` block runs."""
        with self._lock:
            yield

    def moved(self) -> None:
        """Forget what is pending, because the log now uses other files, whose records are durable.

        Called under the log's lock, while flushes are paused.
        """
        self.truncated()
        self._done, self._snapshots = [], []

    def flush_to(self, offset: int, *, active: bool) -> None:
        """Make all records below `offset` durable. With `active`, also all records that were appended before the sync.

        Without `active`, only rolled segments are synced; `offset` must then be the base offset of the active segment.
        Raises LogDirFailure, or KafkaError for a shortage (disk full, too many open files).
        """
        log = self._log
        with self._lock:
            log.env.check()
            began = log.clock.monotonic()
            with log.lock:
                if active:
                    offset = max(offset, log.end[0])  # includes records appended while this call waited for the lock
                if (offset <= log.recovery_point and not self._done and not self._snapshots) or log.closed:
                    if active:
                        self.flushed_at = began
                    # the log was closed or deleted while this call waited; a deleted log's files have been renamed
                    return
                segments = log.segments.between(log.recovery_point, offset)
                growing = log.segments.active
                taken = self._take(segments, growing)
                truncations = self._truncations
            try:
                self._sync_taken(taken)
                if growing in segments:
                    self._sync_unless_gone(growing, growing.sync_records)
                if taken.names_changed:
                    log.env.files.sync_dir(log.directory)
            except OSError as error:
                doing = f"flushing {log.name} up to offset {offset}"
                self._failed(doing, error, taken)
                if log.closed:
                    return
                raise log.disk_error(doing, error) from error
            except BaseException:
                self._put_back(taken)
                raise
            with log.lock:
                # A truncation during the sync may be followed by an append of other records at the same offsets. Those
                # records are not synced, so the recovery point must not move past them. A truncation before the sync
                # may have moved the end of the log below `offset`; flushed_locked handles that.
                if truncations == self._truncations:
                    log.flushed_locked(offset)
            if active:  # only records appended before `began`: later ones may have missed the sync
                self.flushed_at = began

    def synced_recovery_point(self) -> int:
        """Return the recovery point to write to the checkpoint.

        First sync the indexes and snapshots below it, which a start after a crash trusts.

        Raises LogDirFailure, and OSError if the indexes do not fit on the disk.
        """
        log = self._log
        with self._lock:
            log.env.check()
            with log.lock:
                point = log.recovery_point
                growing = log.segments.active
                trusted = max(self._indexed, growing.base_offset)
                if log.closed or (point <= trusted and not self._done and not self._snapshots):
                    return point
                growing.write_behind()
                taken = self._take((), growing)
                truncations = self._truncations
            try:
                self._sync_taken(taken)
                self._sync_unless_gone(growing, growing.sync_indexes)
                if taken.names_changed:
                    log.env.files.sync_dir(log.directory)
            except OSError as error:
                self._failed(f"syncing the indexes of {log.name}", error, taken)
                if not log.closed:
                    raise
            except BaseException:
                self._put_back(taken)
                raise
            else:
                with log.lock:
                    if truncations == self._truncations:
                        self._indexed = point
            return point

    def end(self, *, is_synced: bool) -> None:
        """Make everything durable that a closed log has written, indexes and producer snapshots included. Idempotent.

        `is_synced`: the whole file system was synced after the last write. Raises LogDirFailure, or KafkaError for a
        shortage.
        """
        log = self._log
        with self._lock:
            with log.lock:
                end, growing = log.end[0], log.segments.active
                segments = log.segments.between(log.recovery_point, end)
                taken = self._take(segments, growing)
            if not is_synced:
                try:
                    self._sync_taken(taken)
                    if growing.preallocated or growing in segments:
                        growing.sync_records()
                    growing.sync_indexes()
                    if taken.names_changed:
                        log.env.files.sync_dir(log.directory)
                except OSError as error:
                    if log.abandoned:  # deleted meanwhile
                        return
                    self._put_back(taken)
                    doing = f"closing {log.name}"
                    raise (log.disk_error if error.errno in _NOT_OPENED else log.env.failed)(doing, error) from error
            with log.lock:
                log.flushed_locked(end)

    def _take(self, segments: Iterable[Segment], growing: Segment) -> _Taken:
        """Return the files for the next sync: the pending segments and snapshots, and `segments`.

        Nothing is pending afterwards. `growing` is the active segment, which is left out. Called under the log's lock.
        """
        done = [segment for segment in dict.fromkeys((*self._done, *segments)) if segment is not growing]
        taken = _Taken(done, self._snapshots, self._names_changed)
        self._done, self._snapshots, self._names_changed = [], [], False
        return taken

    def _sync_taken(self, taken: _Taken) -> None:
        log = self._log
        for path in taken.snapshots:
            log.env.files.sync_path(path)
        for segment in taken.done:
            self._sync_unless_gone(segment, segment.sync)

    def _sync_unless_gone(self, segment: Segment, sync: Callable[[], None]) -> None:
        """Call `sync`, which syncs the segment's files. Ignore FileNotFoundError if the segment was deleted meanwhile.

        This also covers the segment that was active when the flush chose its segments: it may have been rolled, and
        then deleted by retention or a truncation.
        """
        try:
            sync()
        except FileNotFoundError:
            if segment in self._log.segments.items:
                raise

    def _failed(self, doing: str, error: OSError, taken: _Taken) -> None:
        """Raise LogDirFailure because of a failed sync, except if the log was deleted or a file could not be opened.

        A file that could not be opened was not synced, so no error was lost: the next flush syncs all of `taken` again.
        """
        log = self._log
        if log.closed:
            return
        if error.errno not in _NOT_OPENED:
            raise log.env.failed(doing, error) from error
        self._put_back(taken)

    def _put_back(self, taken: _Taken) -> None:
        """Add the files in `taken` to the files of the next sync, because this sync was interrupted."""
        with self._log.lock:
            self._done += taken.done
            self._snapshots += taken.snapshots
            self._names_changed = self._names_changed or taken.names_changed

    @property
    def has_unsynced(self) -> bool:
        """Return True if the log has records above its recovery point, which no completed flush has covered."""
        return self._log.recovery_point < self._log.end[0]

    @property
    def ms_since_flush(self) -> float:
        """Return the milliseconds since the last complete flush began. Every record that is not flushed is younger."""
        return (self._log.clock.monotonic() - self.flushed_at) * 1000
