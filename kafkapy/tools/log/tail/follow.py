"""Reads the last records of a partition's log, and then new records as a broker appends them, across segment rolls and
truncation.

The files are polled instead of watched with inotify: a poll is one fstat per partition and works on every file system.
A broker's append may be visible in part, so an incomplete batch is read again at the next poll.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.lookups import Found, end_offset_of, position_of, records_of
from kafkapy.log.offline.places import Place, Segment, places_in
from kafkapy.log.offline.stored_batches import LogReader, StoredBatch
from kafkapy.tools.common.errors import ToolError

Show = Callable[[Found], object]


class Follower:
    """Reads the log of one partition as it grows. `next_offset` is the offset after the last record passed to `show`.
    `note` is called with sentences about truncation and deletion. With `control`, transaction markers are passed to
    `show` too."""

    def __init__(self, place: Place, note: Callable[[str], object], *, control: bool = False) -> None:
        """Raise ToolError for a log that cannot be read, and OSError."""
        self.place = place
        self._note = note
        self._control = control
        self._log: LogReader | None = None
        self._position = 0
        self._last: tuple[int, int] | None = None  # position and checksum of the last batch read
        self._failed_at = -1
        self.next_offset = end_offset_of(place.segments[-1])

    def close(self) -> None:
        """Close the segment file that is open."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def last(self, count: int, show: Show) -> None:
        """Call `show` with each of the last `count` records in the log. Raises ToolError, OfflineError, OSError."""
        if not count:
            return
        end, start = self.next_offset, self.place.segments[0].base_offset
        span = count
        while True:
            begin = max(start, end - span)
            records = _between(self.place.segments, begin, end)
            found = deque((one for one in records if self._control or not one.control), maxlen=count)
            if len(found) == count or begin == start:
                break
            span *= 4  # compaction and markers: there may be fewer records than offsets
        for one in found:
            show(one)

    def poll(self, show: Show) -> bool:
        """Call `show` with each new record. Return True if there may be more records to read at once, without a pause.
        Raises ToolError, OfflineError, OSError."""
        if self._log is None:
            self._find()
        log = self._log
        assert log is not None
        if log.refresh() < self._position or not self._is_the_same(log):
            self._start_again()
            return True
        before = self._position
        try:
            for batch in log.batches(self._position):
                self._hand_out(batch, show)
        except OfflineError:
            # A log that was truncated and written to during this poll looks damaged, too: read it once more.
            if self._failed_at == self._position:
                raise
            self._failed_at = self._position
            self._start_again()
            return True
        if self._position == before == log.size:
            return self._roll(log)
        return self._position > before

    def _hand_out(self, batch: StoredBatch, show: Show) -> None:
        control = bool(batch.header.is_control)
        for record in records_of(self.place.directory, batch):
            if record.offset >= self.next_offset and (self._control or not control):
                show(Found(record, control))
        self.next_offset = max(self.next_offset, batch.header.last_offset + 1)
        self._last = batch.position, batch.header.crc
        self._position = batch.end

    def _is_the_same(self, log: LogReader) -> bool:
        """Return False if the last batch read is gone: the segment was deleted (its file is renamed), or the log
        truncated (its bytes change)."""
        try:
            if not os.path.samestat(os.stat(log.path), os.fstat(log.fd)):
                return False
        except FileNotFoundError:
            return False
        if self._last is None or log.size == self._position:
            return True
        header = log.header_at(self._last[0])
        return header is not None and header.crc == self._last[1]

    def _roll(self, log: LogReader) -> bool:
        """Open the next segment, whose name is `next_offset`. Return False if there is none yet."""
        path = self.place.directory / f"{self.next_offset:020d}.log"
        if path == log.path or not path.exists():
            return False
        self.close()
        self._open(path, 0)
        return True

    def _open(self, path: Path, position: int) -> None:
        self._log = LogReader(path)
        self._position = position
        self._last = None

    def _start_again(self) -> None:
        self.close()
        self._find()

    def _find(self) -> None:
        """Open the segment that contains `next_offset` or that will contain it. Call `note` if records before that
        offset were deleted or the log was truncated."""
        segments = self._segments()
        if segments[0].base_offset > self.next_offset:
            self._note(f"{self.place.name}: records before offset {segments[0].base_offset} have been deleted.")
            self.next_offset = segments[0].base_offset
        segment = [one for one in segments if one.base_offset <= self.next_offset][-1]
        end = end_offset_of(segment)
        if end < self.next_offset:
            self._note(f"{self.place.name}: the log was truncated to offset {end}.")
            self.next_offset = end
        self._open(segment.path, position_of(segment, self.next_offset))

    def _segments(self) -> list[Segment]:
        try:
            return places_in([self.place.directory])[0].segments
        except (OfflineError, FileNotFoundError):
            raise ToolError(f"{self.place.name} is gone: its directory or its last segment was removed.") from None


def _between(segments: list[Segment], begin: int, end: int) -> Iterator[Found]:
    """Yield the records with begin <= offset < end in the segments."""
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= begin:
            continue
        with LogReader(segment.path) as log:
            for batch in log.batches(position_of(segment, begin)):
                for record in records_of(log.path, batch):
                    if begin <= record.offset < end:
                        yield Found(record, bool(batch.header.is_control))
