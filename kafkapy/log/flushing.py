"""Making a log's records durable, and how far they are: the recovery point (Kafka's UnifiedLog.flush).

A flush syncs records, for that is what an acknowledgement may wait for. The indexes of the active segment are left
out: a start after a crash makes them anew from the segment that holds the recovery point on. They are synced before
that point is written down, since later starts trust what lies below it, and when the segment is done.

A sync that failed is never tried again as if nothing had happened: the kernel may have dropped the pages that it
could not write and reports that only once. The directory goes offline instead.
"""

from __future__ import annotations

import errno
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkapy.log.log_state import LogState
    from kafkapy.log.segment import Segment

_NOWHERE = -1
_NOT_OPENED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # no sync fails with these


class _Taken(NamedTuple):
    """What a sync takes along besides records of the active segment: each segment that is done, once."""

    done: list[Segment]
    snapshots: list[str]
    names_changed: bool


class Flusher:
    """One a log. Flushes run one after the other; whoever waited finds his records flushed and returns."""

    __slots__ = ("_done", "_indexed", "_lock", "_log", "_names_changed", "_snapshots", "_truncations", "flushed_ms")

    def __init__(self, log: LogState, *, settled: bool) -> None:
        """`settled`: loading has found everything in order and on the disk, and changed nothing."""
        self._log: LogState = weakref.proxy(log)  # whoever asks for a flush has the log; no circle with it
        self._lock = threading.Lock()
        # These under the log's lock: what the next sync has to take along.
        self._done: list[Segment] = []
        self._snapshots: list[str] = []
        self._names_changed = not settled
        self._indexed = log.end[0] if settled else _NOWHERE  # up to here the indexes of the active segment are durable
        self._truncations = 0
        self.flushed_ms = log.clock.time_ms()

    def sync_later(self, sealed: Segment, snapshot: str | None) -> None:
        """A roll has trimmed the segment's indexes and written a producer snapshot: the next flush syncs them.

        Also where the records in it are flushed already: a recovery point behind a segment says that its indexes are
        good. Under the log's lock.
        """
        self._done.append(sealed)
        if snapshot is not None:
            self._snapshots.append(snapshot)
        self._names_changed = True

    @property
    def settled(self) -> bool:
        """Whether nothing but records and the indexes of the active segment may have changed since the last sync."""
        return not self._names_changed and not self._done

    def truncated(self) -> None:
        """The log has lost its end, and will have another one. Under the log's lock."""
        self._names_changed = True
        self._indexed = _NOWHERE
        self._truncations += 1

    def flush_to(self, offset: int, *, active: bool) -> None:
        """Syncs all records below `offset`; `active`: up to now. Raises LogDirFailure, KafkaError (a shortage).

        Without `active` this is for rolled segments: `offset` is where the active one began.
        """
        log = self._log
        with self._lock:
            log.env.check()
            with log.lock:
                if active:
                    offset = max(offset, log.end[0])  # what came while we waited goes along
                if (offset <= log.recovery_point and not self._done) or log.closed:
                    return  # closed: deleted while we waited, its files have other names now
                segments = log.segments.between(log.recovery_point, offset)
                growing = log.segments.active
                taken = self._take(segments, growing)
                truncations = self._truncations
            try:
                self._sync_taken(taken)
                if growing in segments:
                    growing.sync_records()
                if taken.names_changed:
                    log.env.files.sync_dir(log.directory)
            except OSError as error:
                doing = f"flushing {log.name} up to offset {offset}"
                self._failed(doing, error, taken)
                if log.closed:
                    return
                raise log.disk_error(doing, error) from error
            with log.lock:
                # After a truncation since, other records may have these offsets, which this sync did not see. One
                # before may have moved the end below what a roll has asked to be flushed.
                if truncations == self._truncations:
                    log.recovery_point = max(log.recovery_point, min(offset, log.end[0]))
            self.flushed_ms = log.clock.time_ms()

    def point_to_note(self) -> int:
        """The recovery point, to be written down: what a start trusts below it is durable when this returns.

        Raises LogDirFailure, and OSError if the indexes do not fit on the disk.
        """
        log = self._log
        with self._lock:
            log.env.check()
            with log.lock:
                point = log.recovery_point
                growing = log.segments.active
                trusted = max(self._indexed, growing.base_offset)
                if log.closed or (point <= trusted and not self._done):
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
            else:
                with log.lock:
                    if truncations == self._truncations:
                        self._indexed = point
            return point

    def _take(self, segments: Iterable[Segment], growing: Segment) -> _Taken:
        """Under the log's lock."""
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
        """Retention or a truncation may take it meanwhile."""
        try:
            sync()
        except FileNotFoundError:
            if segment in self._log.segments.items:
                raise

    def _failed(self, doing: str, error: OSError, taken: _Taken) -> None:
        """Raises LogDirFailure, unless the log was deleted meanwhile, or only a file could not be opened.

        Then nothing of it was synced, and the next flush takes it along again.
        """
        log = self._log
        if log.closed:
            return
        if error.errno not in _NOT_OPENED:
            raise log.env.failed(doing, error) from error
        with log.lock:
            self._done += taken.done
            self._snapshots += taken.snapshots
            self._names_changed = self._names_changed or taken.names_changed

    @property
    def ms_since_flush(self) -> int:
        return self._log.clock.time_ms() - self.flushed_ms
