"""One segment: a .log file with its offset, time and transaction index (Kafka's LogSegment).

The sizes are kept here; the file is never asked. An inactive segment's files are opened when they are first
read. Offsets and positions of what is being appended become visible to readers through PartitionLog, not here.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Mapping

from kafkapy._ext.segment_scan import CorruptSegment, Scan
from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.files import Buffer, Entry, Files
from kafkapy.log.segment_files import SegmentFiles
from kafkapy.log.time_index import NO_TIMESTAMP
from kafkapy.log.txn_index import TxnIndexError
from kafkapy.runtime.clock import Clock

MAX_RELATIVE_OFFSET = 0x7FFFFFFF  # an index entry has four bytes for it
_MISSING = Entry("", 0, False)
WITHOUT_ENTRIES = 1 << 62  # an index interval that no scan reaches


class Segment(SegmentFiles):
    """Written under the log's lock; read without one."""

    __slots__ = (
        "_clock",
        "_first_timestamp",
        "_max_timestamp",
        "bytes_since_entry",
        "created_ms",
        "index_interval",
        "preallocated",
        "roll_jitter_ms",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, config: LogConfig, clock: Clock) -> None:
        super().__init__(files, directory, base_offset, config.segment_index_bytes)
        self.index_interval = config.index_interval_bytes
        self.roll_jitter_ms = config.random_segment_jitter()
        self.bytes_since_entry = 0
        self.created_ms = clock.time_ms()
        self._clock = clock
        self.preallocated = False  # until it is done its file is longer than `size`
        self._first_timestamp: int | None = None  # of the first batch: what rolling by time counts from
        self._max_timestamp: tuple[int, int] | None = None  # (largest timestamp, last offset of its batch)

    # --- life

    @classmethod
    def create(
        cls, files: Files, directory: str, base_offset: int, config: LogConfig, clock: Clock, *, suffix: str = ""
    ) -> Segment:
        """A new, empty, active segment. Files of these names that are there already are emptied.

        `suffix`: what the names end in (`.cleaned`) until `rename`.
        """
        segment = cls(files, directory, base_offset, config, clock)
        segment._suffix = suffix
        file = files.open(segment.path(names.LOG), create=True)
        segment._keep(file)
        files.truncate(file, 0)
        if config.preallocate:
            files.truncate(file, config.segment_bytes)
            segment.preallocated = True
        segment._max_timestamp = (NO_TIMESTAMP, base_offset)
        segment.offset_index.create()
        segment.time_index.create()
        segment.txn_index.reset()
        return segment

    def open(self, found: Mapping[str, Entry]) -> str | None:
        """Takes over files that are there, by suffix. Returns a sentence if the indexes have to be rebuilt.

        A missing time index counts as empty, as in Kafka.
        """
        self.size = found[names.LOG].size
        offsets, times = found.get(names.OFFSET_INDEX, _MISSING), found.get(names.TIME_INDEX, _MISSING)
        self.offset_index.open(offsets.size, offsets.content)
        self.time_index.open(times.size, times.content)
        if names.TXN_INDEX in found:
            try:
                self.txn_index.load()
            except TxnIndexError as reason:
                return str(reason)
        if names.OFFSET_INDEX not in found:
            return "it has no offset index"
        if names.TIME_INDEX not in found:
            self.time_index.create()
            self.time_index.trim()
            self.time_index.seal()
        return None

    def seal(self) -> None:
        """The segment takes no more appends: the last time index entry is added, the indexes are trimmed.

        If it raises OSError the segment is still the active one.
        """
        if self.time_index.growing:
            self.time_index.maybe_append(*self.max_timestamp)
        self.offset_index.trim()
        self.time_index.trim()
        self.txn_index.write_behind()
        if self.preallocated:
            self.files.truncate(self.handle(), self.size)
        self.offset_index.seal()
        self.time_index.seal()

    def half_rolled(self) -> str | None:
        """What `seal` did that has not reached the disk, of a segment that was loaded; None if all has. Raises OSError.

        For a crash after the roll: the last entry of the time index, the end of a segment that was preallocated.
        """
        end = self.tail()
        if end.stopped_by is not None:
            return end.stopped_by
        if end.max_timestamp > self.time_index.last_entry[0]:
            return f"{os.path.basename(self.time_index.path)} does not reach timestamp {end.max_timestamp}"
        return None

    def indexes_changed(self) -> None:
        """The index files were replaced."""
        self._max_timestamp = None

    @property
    def growing(self) -> bool:
        """Whether its indexes are in memory, as appends need them."""
        return self.time_index.growing and self.offset_index.growing

    def make_active(self) -> None:
        """Opens the last segment of a loaded log for appends: at the first one, for most logs may never have any."""
        self.offset_index.reopen_to_grow()
        self.time_index.reopen_to_grow()

    # --- timestamps

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """(largest timestamp, last offset of the batch that has it); (-1, base offset) if there is none."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last_entry
        return self._max_timestamp

    @max_timestamp.setter
    def max_timestamp(self, value: tuple[int, int]) -> None:
        self._max_timestamp = value

    def largest_timestamp(self) -> int:
        """What retention and searches by time go by: without a timestamp, when the file was last written."""
        stamp = self.max_timestamp[0]
        return stamp if stamp >= 0 else self.modified_ms()

    @property
    def first_timestamp_in_memory(self) -> int | None:
        """The same as `first_timestamp`, None where that would have to be read."""
        return self._first_timestamp

    def first_timestamp(self) -> int:
        """The max timestamp of the first batch; -1 if there is none."""
        if self._first_timestamp is None and self.size:
            found = self.files.scan(self.handle(), 0, self._end_of_first(), self.base_offset, WITHOUT_ENTRIES, False)
            self._first_timestamp = found.max_timestamp
        return -1 if self._first_timestamp is None else self._first_timestamp

    def _end_of_first(self) -> int:
        try:
            found = self.files.locate(self.handle(), 0, self.size, 0)
        except CorruptSegment:  # nothing was checked after a clean stop; appends go on, as if it had no timestamp
            return 0
        return found[0] + found[1] if found is not None else 0

    # --- appends

    def ends_in_memory(self) -> bool:
        """Whether an append needs no read: a write into a page that has bytes already reads it first, if it must."""
        if self.size % mmap.PAGESIZE == 0:
            return True
        try:
            return self.files.in_memory(self.handle(nowait=True), self.size - 1)
        except BlockingIOError:
            return False

    def entries_left(self) -> int:
        """How many more entries fit into both indexes."""
        offsets, times = self.offset_index, self.time_index
        return min(offsets.capacity - offsets.count, times.usable_capacity - times.count)

    def write(self, buffers: list[Buffer]) -> int:
        """Puts the buffers behind the end and returns their size; does not move the end.

        The first append after a start reads the indexes. If it raises OSError the file ends where it ended before; if
        even that cannot be had, the errno is EIO, whatever went wrong first: nothing more may be written here.
        """
        if not self.growing:
            self.make_active()
        file = self.handle()
        try:
            return self.files.write_all(file, buffers, self.size)
        except OSError as error:
            try:
                self.files.truncate(file, self.size)
            except OSError as cut:
                raise OSError(errno.EIO, f"{error}, and cutting it back failed: {cut}") from error
            raise

    def appended(self, size: int, last_offset: int, max_timestamp: int, offset_of_max: int) -> None:
        """Accounts for one append of `size` bytes at the end: the size, the largest timestamp, the indexes."""
        position = self.size
        self.size = position + size
        if position == 0:
            self._first_timestamp = max_timestamp
        largest = self.max_timestamp
        if max_timestamp > largest[0]:
            self._max_timestamp = largest = (max_timestamp, offset_of_max)
        if self.bytes_since_entry > self.index_interval:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*largest)
            self.bytes_since_entry = 0
        self.bytes_since_entry += size

    def truncate_to(self, offset: int) -> int:
        """Removes the batches that reach `offset` and later ones; returns how many bytes. The segment is active."""
        found = self.locate(offset, self.size)
        self.make_active()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        removed = 0
        if found is not None:
            removed = self.size - found[0]
            self.files.truncate(self.handle(), found[0])
            self.size = found[0]
        if self.size == 0:
            self.created_ms = self._clock.time_ms()
            self._first_timestamp = None
        self.bytes_since_entry = 0
        self._max_timestamp = self._find_max_timestamp()
        return removed

    def _find_max_timestamp(self) -> tuple[int, int]:
        """That of the time index's last entry, or of a batch behind it."""
        last = self.time_index.last_entry
        position = self.offset_index.lookup(last[1])
        found = self.files.scan(self.handle(), position, self.size, self.base_offset, WITHOUT_ENTRIES, False)
        if found.max_timestamp > last[0]:
            return found.max_timestamp, found.max_timestamp_offset
        return last

    # --- searches

    def locate(self, offset: int, end: int, nowait: bool = False) -> tuple[int, int, int] | None:
        """The first batch that reaches `offset`, before position `end`: (position, size, base offset), or None.

        Raises CorruptSegment, OSError; with `nowait` BlockingIOError where it would wait for the disk.
        """
        position = self.offset_index.lookup(offset, nowait)
        return self.files.locate(self.handle(nowait), position if position < end else 0, end, offset, nowait)

    def tail(self) -> Scan:
        """The headers from the last index entry on: where the batches end, and what stands behind them."""
        begin = min(self.offset_index.lookup(self.offset_index.last_offset), self.size)
        return self.files.scan(self.handle(), begin, self.size, self.base_offset, WITHOUT_ENTRIES, False)
