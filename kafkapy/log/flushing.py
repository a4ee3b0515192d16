"""Making a log's records durable, and how far they are: the recovery point (Kafka's UnifiedLog.flush).

A sync that failed is never tried again as if nothing had happened: the kernel may have dropped the pages that it
could not write and reports that only once. The directory goes offline instead.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.log.log_state import LogState
    from kafkapy.log.segment import Segment


class Flusher:
    """One a log. Flushes run one after the other; whoever waited finds his records flushed and returns."""

    __slots__ = ("_lock", "_log", "_sealed", "_snapshots", "flushed_ms")

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._sealed: list[Segment] = []
        self._snapshots: list[str] = []
        self.flushed_ms = log.clock.time_ms()

    def sync_later(self, sealed: Segment, snapshot: str | None) -> None:
        """A roll has trimmed the segment's indexes and written a producer snapshot: the next flush syncs them.

        Also where the records in it are flushed already: a recovery point behind a segment says that its indexes are
        good. Under the log's lock.
        """
        self._sealed.append(sealed)
        if snapshot is not None:
            self._snapshots.append(snapshot)

    def flush_to(self, offset: int, *, active: bool) -> None:
        """Syncs all segments with records below `offset`; `active`: up to now.

        Raises LogDirFailure, and KafkaError if the indexes do not fit on the disk.

        Without `active` this is for rolled segments: `offset` is where the active one began.
        """
        log = self._log
        with self._lock:
            log.env.check()
            if active:
                offset = max(offset, log.end[0])  # what came while we waited goes along
            if (offset <= log.recovery_point and not self._sealed) or log.closed:
                return
            doing = f"flushing {log.name} up to offset {offset}"
            with log.lock:
                if log.closed:  # deleted while we waited: its files have other names now
                    return
                segments = log.segments.between(log.recovery_point, offset)
                try:
                    for segment in segments:
                        segment.write_behind()
                except OSError as error:
                    raise log.disk_error(doing, error) from error
                sealed, self._sealed = self._sealed, []
                snapshots, self._snapshots = self._snapshots, []
            segments = (*(segment for segment in sealed if segment not in segments), *segments)
            try:
                self._sync(segments, snapshots, log.recovery_point)
            except OSError as error:
                if log.closed:
                    return  # renamed or removed for deletion meanwhile
                raise log.env.failed(doing, error) from error
            with log.lock:
                # A truncation since may have moved the end back; what is behind it is not flushed then.
                log.recovery_point = max(log.recovery_point, min(offset, log.end[0]))
            self.flushed_ms = log.clock.time_ms()

    def _sync(self, segments: tuple[Segment, ...], snapshots: list[str], start: int) -> None:
        log = self._log
        for path in snapshots:
            log.env.files.sync_path(path)
        for segment in segments:
            try:
                segment.sync()
            except FileNotFoundError:
                if segment in log.segments.items:
                    raise
                continue  # retention or a truncation has taken it meanwhile
        if any(segment.base_offset >= start for segment in segments):
            log.env.files.sync_dir(log.directory)  # the new files' names

    @property
    def ms_since_flush(self) -> int:
        return self._log.clock.time_ms() - self.flushed_ms
