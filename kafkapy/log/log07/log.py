"""A log of Kafka 0.7: append, read, flush and roll."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from contextlib import suppress
from mmap import PAGESIZE
from operator import attrgetter

from kafkapy.log.environment import Environment
from kafkapy.log.log07.segment import DIGITS, Segment, segment_name
from kafkapy.log.log07.settings import Settings
from kafkapy.log.results import BUSY, Busy
from kafkapy.log.storage.files import Buffer
from kafkapy.record.file_region import FileRegion

LATEST, EARLIEST = -1, -2  # times in `offsets_before`

_start = attrgetter("start")


class OffsetOutOfRange(Exception):
    """Raised for an offset that the log does not have."""


class Log07:
    """One partition's log. Readers take no lock: `segments` is an immutable list that is replaced when it changes.

    Two locks guard changes. `flushing` is held during a flush or a roll, which wait for the disk; `lock` is held while
    anything changes, and is taken second. So appends go on during a flush.
    """

    def __init__(
        self,
        directory: str,
        topic: str,
        partition: int,
        segments: list[Segment],
        settings: Settings,
        env: Environment,
        digits: int = DIGITS,
    ) -> None:
        """`segments` are those of the directory, in order, at least one. `digits` is the width of the positions in
        names of new segments."""
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.settings = settings
        self.env = env
        self.segments: tuple[Segment, ...] = tuple(segments)
        self.lock = threading.Lock()
        self.flushing = threading.Lock()
        self.write_seconds = 0.0  # how long the last write took
        # Since the log was opened, for metrics. Readers count bytes_out without a lock, so it may miss a few.
        self.messages_in = self.bytes_in = self.bytes_out = 0
        self._digits = digits
        self._unflushed = 0  # messages
        self._flushed_at = env.clock.monotonic()

    @property
    def name(self) -> str:
        return os.path.basename(self.directory)

    @property
    def start(self) -> int:
        return self.segments[0].start

    @property
    def end(self) -> int:
        """The position after the last flushed byte, where readers wait for more."""
        return self.segments[-1].end

    @property
    def size(self) -> int:
        """The number of flushed bytes in all segments."""
        return sum(segment.flushed for segment in self.segments)

    # --- append

    def append(self, data: Buffer, messages: int, *, blocking: bool = True) -> Busy | None:
        """Append `data`, a set of whole, valid messages, with one write. Roll before, and flush afterwards, if that is
        due. `messages` is the number of messages, including those inside compressed ones.

        If not `blocking`, return BUSY, without a change, if the append would wait for a lock or a disk. Raises
        LogDirFailure, and KafkaError for a shortage (of disk space, descriptors); the log is then unchanged.
        """
        if not blocking:
            if not self.lock.acquire(blocking=False):
                return BUSY
            try:
                if self._roll_is_due() or self._flush_is_due(messages) or not self._tail_is_in_memory():
                    return BUSY
                self._write(data, messages)
            finally:
                self.lock.release()
            return None
        with self.lock:
            roll = self._roll_is_due()
            if not roll:
                self._write(data, messages)
        if roll:
            with self.flushing, self.lock:
                if self._roll_is_due():  # no other thread has rolled the log meanwhile
                    self.roll_locked()
                self._write(data, messages)
        if self._flush_is_due(0):
            self.flush()
        return None

    def _write(self, data: Buffer, messages: int) -> None:
        self.env.check()
        if not data:
            return
        segment, files = self.segments[-1], self.env.files
        began = time.perf_counter()
        try:
            file = segment.handle()
            try:
                files.write_all(file, [data], segment.size)
            except OSError:
                files.truncate(file, segment.size)  # a failed append leaves nothing
                raise
        except OSError as error:
            raise self.env.disk_error(f"appending to {self.name}", error) from error
        self.write_seconds = time.perf_counter() - began
        segment.size += len(data)
        self.bytes_in += len(data)
        self.messages_in += messages
        if segment.first_append_ms is None:
            segment.first_append_ms = self.env.clock.time_ms()
        self._unflushed += messages

    def _tail_is_in_memory(self) -> bool:
        """Return True if a write reads nothing from the disk: the file is open, and its last page is full or in memory.
        The system reads a partly filled page before it writes into it."""
        segment = self.segments[-1]
        try:
            file = segment.handle(nowait=True)
        except BlockingIOError:
            return False
        return segment.size % PAGESIZE == 0 or self.env.files.in_memory(file, segment.size - 1)

    # --- roll

    def _roll_is_due(self) -> bool:
        segment = self.segments[-1]
        if segment.size > self.settings.segment_bytes:
            return True
        first = segment.first_append_ms
        return first is not None and self.env.clock.time_ms() - first > self.settings.roll_ms

    def roll_locked(self) -> None:
        """Flush the newest segment, and create the next one, where appends go from now on. The caller holds `flushing`
        and `lock`. Raises the errors of `append`."""
        self._flush_locked()
        files, last = self.env.files, self.segments[-1]
        path = os.path.join(self.directory, segment_name(last.end, self._digits))
        try:
            files.truncate(files.open(path, create=True), 0)
            files.sync_dir(self.directory)
        except OSError as error:
            with suppress(OSError):  # else the file would overlap with later appends to the last segment
                files.unlink(path)
            raise self.env.disk_error(f"rolling {self.name}", error) from error
        self.segments = (*self.segments, Segment(files, path, last.end))

    # --- flush

    def _flush_is_due(self, more_messages: int) -> bool:
        return 0 < self.settings.flush_messages <= self._unflushed + more_messages

    @property
    def ms_since_flush(self) -> float:
        return (self.env.clock.monotonic() - self._flushed_at) * 1000

    @property
    def has_unflushed(self) -> bool:
        return self.segments[-1].flushed < self.segments[-1].size

    def flush(self) -> None:
        """Make everything that was appended before this call durable, and show it to readers. Raises LogDirFailure,
        and KafkaError for a shortage."""
        with self.flushing:
            with self.lock:
                segment, size, messages = self.segments[-1], self.segments[-1].size, self._unflushed
            if segment.flushed == size:
                return
            self._sync(segment)
            with self.lock:
                self._flushed(segment, size, messages)

    def _flush_locked(self) -> None:
        segment = self.segments[-1]
        if segment.flushed < segment.size:
            self._sync(segment)
            self._flushed(segment, segment.size, self._unflushed)

    def _sync(self, segment: Segment) -> None:
        self.env.check()
        try:
            file = segment.handle()
        except OSError as error:
            raise self.env.disk_error(f"flushing {self.name}", error) from error
        try:
            self.env.files.sync(file)
        except OSError as error:  # never repeated: the system reports a page that it could not write only once
            raise self.env.failed(f"flushing {self.name}", error) from error

    def _flushed(self, segment: Segment, size: int, messages: int) -> None:
        segment.flushed = size
        self._unflushed -= messages
        self._flushed_at = self.env.clock.monotonic()

    # --- read

    def read(self, offset: int, max_bytes: int, *, blocking: bool = True) -> FileRegion | None:
        """Return up to `max_bytes` (at least 1) flushed bytes from `offset` on, at most to the end of the segment; None
        at the end of the log.

        An offset inside a message is not detected. Raises OffsetOutOfRange, OSError, and if not `blocking`
        BlockingIOError if the file is not open.
        """
        segments = self.segments
        end = segments[-1].end
        if offset == end:
            return None
        if not segments[0].start <= offset < end:
            raise OffsetOutOfRange(f"offset {offset} is not in {self.name}, which has {segments[0].start} to {end}")
        segment = segments[bisect_right(segments, offset, key=_start) - 1]
        try:
            handle = segment.handle(nowait=not blocking)
        except FileNotFoundError:  # retention has deleted it since this call read the list
            if self.segments[0].start <= offset:
                raise
            raise OffsetOutOfRange(f"offset {offset} was just deleted from {self.name}") from None
        return FileRegion(handle, offset - segment.start, min(max_bytes, segment.end - offset))

    def offsets_before(self, time_ms: int, most: int) -> list[int]:
        """Return up to `most` offsets at which a read can begin, descending: the starts of segments that were last
        changed at `time_ms` or before, and the end of the log, which counts as changed now.

        LATEST stands for all these offsets, EARLIEST for the first one. Raises OSError, and ValueError if `most` is
        negative.
        """
        segments = self.segments
        offsets = [segment.start for segment in segments]
        if segments[-1].flushed:
            offsets.append(segments[-1].end)
        count = len(offsets)
        if time_ms == EARLIEST:
            count = 1
        elif time_ms != LATEST:
            now = self.env.clock.time_ms()
            try:
                while count and (segments[count - 1].modified_ms() if count <= len(segments) else now) > time_ms:
                    count -= 1
            except FileNotFoundError:  # retention has deleted a segment since this call read the list
                if self.segments is segments:
                    raise
                return self.offsets_before(time_ms, most)
        if min(most, count) < 0:
            raise ValueError(f"{most} offsets are requested: the number must not be negative")
        return offsets[:count][::-1][:most]

    # --- end of life

    def close(self) -> None:
        """Flush the log and close its files. Raises the errors of `flush`."""
        self.flush()
        for segment in self.segments:
            segment.release()
