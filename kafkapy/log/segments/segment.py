"""One segment: a .log file with its offset index, time index and transaction index (Kafka's LogSegment).

Sizes are tracked here and not asked of the file system. The files of an inactive segment are opened on first use.
PartitionLog makes appended offsets and positions visible to readers; this module does not.
"""

from __future__ import annotations

import errno
import mmap
import os
from array import array
from collections.abc import Mapping

from kafkapy._ext.segment_scan import CorruptSegment, Scan
from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.indexes.time_index import NO_TIMESTAMP
from kafkapy.log.indexes.txn_index import TxnIndexError
from kafkapy.log.segments.segment_files import SegmentFiles
from kafkapy.log.storage.files import Buffer, Entry, Files
from kafkapy.runtime.clock import Clock

MAX_RELATIVE_OFFSET = 0x7FFFFFFF  # a relative offset in an index entry is an int32
_MISSING = Entry("", 0, False)
WITHOUT_ENTRIES = 1 << 62  # an index interval that is never reached, for scans that need no index entries


class Segment(SegmentFiles):
    """A segment: a .log file and its three indexes. The caller holds the log's lock to write; reads need no lock."""

    __slots__ = (
        "_clock",
        "_max_timestamp",
        "bytes_since_entry",
        "created_ms",
        "first_timestamp_in_memory",
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
        self.preallocated = False  # the file is longer than `size` until the segment is sealed
        # The max timestamp of the first batch, from which segment.ms counts. None if it was not read from the file yet.
        self.first_timestamp_in_memory: int | None = None
        self._max_timestamp: tuple[int, int] | None = None  # (largest timestamp, last offset of its batch)

    # --- life

    @classmethod
    def create(
        cls, files: Files, directory: str, base_offset: int, config: LogConfig, clock: Clock, *, suffix: str = ""
    ) -> Segment:
        """Create the files of an empty active segment. If files with these names exist, they are emptied.

        `suffix` (such as `.cleaned`) is added to the file names, until `rename` changes it. If this raises OSError or
        any other exception, the files are removed.
        """
        segment = cls(files, directory, base_offset, config, clock)
        segment._suffix = suffix
        try:
            segment._create_files(config)
        except BaseException:
            segment.delete()
            raise
        return segment

    def _create_files(self, config: LogConfig) -> None:
        file = self.files.open(self.path(names.LOG), create=True)
        self._keep(file)
        self.files.truncate(file, 0)
        if config.preallocate:
            self.files.truncate(file, config.segment_bytes)
            self.preallocated = True
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self.offset_index.create()
        self.time_index.create()
        self.txn_index.reset()

    def open(self, found: Mapping[str, Entry]) -> str | None:
        """Take over the segment's existing files.

        `found` has the directory entry of each file by its suffix (such as .log).

        Return a sentence that says why the indexes must be rebuilt, None if they need not be. A missing time index
        counts as empty, as in Kafka. Raises OSError.
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
        """Finish a segment that gets no more appends: add the last time index entry and trim the files to their size.

        If this raises OSError, the segment is still active.
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

    def lost_part_of_roll(self) -> str | None:
        """Return a sentence that says which part of the segment's roll a crash has lost, None if the roll is complete.

        Called for a segment that was just loaded. After a crash the last time index entry may be missing, or a
        preallocated file may not be cut. If the log was truncated right before the roll, the indexes may still have
        entries for records that were cut off. Raises OSError.
        """
        end = self.tail()
        if end.stopped_by is not None:
            return end.stopped_by
        name, (timestamp, offset) = os.path.basename(self.time_index.path), self.time_index.last_entry
        if end.max_timestamp > timestamp:
            return f"{name} does not reach timestamp {end.max_timestamp}"
        if timestamp >= 0 and offset >= end.next_offset:
            return f"{name} has an entry for offset {offset}, the segment ends before {end.next_offset}"
        aborted = self.txn_index.entries[-1:]
        if aborted and aborted[0].last_offset >= end.next_offset:
            return f"its transaction index has {aborted[0]}, the segment ends before {end.next_offset}"
        return None

    def indexes_changed(self) -> None:
        """Drop the cached largest timestamp, because the index files were replaced."""
        self._max_timestamp = None

    @property
    def growing(self) -> bool:
        """Return True if the offset index and the time index are in memory, as appends require."""
        return self.time_index.growing and self.offset_index.growing

    def make_active(self) -> None:
        """Load the offset index and the time index into memory for appends.

        Done at the first append, as most logs may never get one.
        """
        self.offset_index.reopen_to_grow()
        self.time_index.reopen_to_grow()

    # --- timestamps

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of its batch; (-1, base offset) if no record has a timestamp."""
        # A reader must not cache the index entry: an append could set a newer timestamp after the reader has read the
        # entry, and the reader would overwrite that timestamp.
        known = self._max_timestamp
        if known is not None:
            return known
        entry = self.time_index.last_entry
        if entry[0] < 0 and self.time_index.damage is not None:  # it is being rebuilt
            return self._scanned_max_timestamp()
        return entry

    @max_timestamp.setter
    def max_timestamp(self, value: tuple[int, int]) -> None:
        self._max_timestamp = value

    def max_timestamp_before(self, offset: int) -> tuple[int, int]:
        """Return (largest timestamp, last offset of its batch) of the batches before the batch that contains `offset`.

        The result is (-1, base offset) if no record there has a timestamp. Raises CorruptSegment, OSError.
        """
        largest = self.max_timestamp
        if largest[1] < offset:
            return largest
        entry = self.time_index.entry_before(offset)
        found = self.locate(offset, self.size)
        return self._find_max_timestamp(entry, found[0] if found is not None else self.size)

    def largest_timestamp(self) -> int:
        """Return the segment's largest timestamp in milliseconds, for retention and searches by time.

        If no record has a timestamp, return the modification time of the .log file.
        """
        stamp = self.max_timestamp[0]
        return stamp if stamp >= 0 else self.modified_ms()

    def first_timestamp(self) -> int:
        """Return the max timestamp of the segment's first batch in milliseconds; -1 if the segment is empty.

        Raises OSError.
        """
        if self.first_timestamp_in_memory is None and self.size:
            found = self.files.scan(self.handle(), 0, self._end_of_first(), self.base_offset, WITHOUT_ENTRIES, False)
            self.first_timestamp_in_memory = found.max_timestamp
        return -1 if self.first_timestamp_in_memory is None else self.first_timestamp_in_memory

    def _end_of_first(self) -> int:
        try:
            found = self.files.locate(self.handle(), 0, self.size, 0)
        except CorruptSegment:  # not checked after a clean shutdown; appends continue as if there were no timestamp
            return 0
        return found[0] + found[1] if found is not None else 0

    # --- appends

    def ends_in_memory(self) -> bool:
        """Return True if the last page of the .log file is in the page cache or full, so that an append reads nothing.

        Otherwise an append may wait for the disk: the system reads a partly filled page before it writes into the page.
        """
        if self.size % mmap.PAGESIZE == 0:
            return True
        try:
            return self.files.in_memory(self.handle(nowait=True), self.size - 1)
        except BlockingIOError:
            return False

    def entries_left(self) -> int:
        """Return the number of entries for which both the offset index and the time index have room.

        One time index entry is reserved for `seal`.
        """
        offsets, times = self.offset_index, self.time_index
        return min(offsets.capacity - offsets.count, times.capacity - 1 - times.count)

    def write(self, buffers: list[Buffer]) -> int:
        """Write the buffers after the end of the segment and return their size in bytes. Does not change `size`.

        The first append after a start reads the indexes. If this raises OSError, the file is cut back to its old end.
        If cutting fails too, the errno is EIO, whatever the first error was: nothing more may be written to this file.
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
        """Update the size, the largest timestamp and the indexes after a batch of `size` bytes was written at the end.

        `last_offset` and `max_timestamp` are those of the batch. `offset_of_max` is the offset that the time index gets
        for `max_timestamp`.
        """
        position = self.size
        self.size = position + size
        if position == 0:
            self.first_timestamp_in_memory = max_timestamp
        largest = self._max_timestamp or self.max_timestamp
        if max_timestamp > largest[0]:
            largest = (max_timestamp, offset_of_max)
        self._max_timestamp = largest
        if self.bytes_since_entry > self.index_interval:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*largest)
            self.bytes_since_entry = 0
        self.bytes_since_entry += size

    def appended_many(self, size: int, found: Scan) -> None:
        """Account for an append of `size` bytes of batches, whose `found` comes from `scan_buffer`."""
        if self.size == 0:
            self.first_timestamp_in_memory = found.first_timestamp
        if found.offset_entries:
            base = self.base_offset
            for entry in array("Q", found.offset_entries):
                self.offset_index.append(base + (entry >> 32), entry & 0xFFFFFFFF)
            for stamp, offset in zip(array("q", found.time_stamps), array("i", found.time_offsets), strict=True):
                self.time_index.maybe_append(stamp, base + offset)
        self._max_timestamp = found.max_timestamp, found.max_timestamp_offset
        self.bytes_since_entry = found.since_entry
        self.size += size

    def cut(self, offset: int, size: int) -> None:
        """Cut the .log file to `size` bytes, and remove the index entries for `offset` and later offsets.

        The segment must be active. Raises OSError.
        """
        self.make_active()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.truncate_file(size)
        self.size = size
        if self.size == 0:
            self.created_ms = self._clock.time_ms()
            self.first_timestamp_in_memory = None
        self.bytes_since_entry = 0
        self._max_timestamp = self._find_max_timestamp(self.time_index.last_entry, self.size)

    def _scanned_max_timestamp(self) -> tuple[int, int]:
        """Return `max_timestamp` without the time index, and remember it. Reads all batch headers of the segment.

        If a batch is damaged, the result is (-1, base offset), since the timestamps behind it are unknown.
        """
        found = self.files.scan(self.handle(), 0, self.size, self.base_offset, WITHOUT_ENTRIES, False)
        if found.stopped_by is not None or found.max_timestamp < 0:
            return NO_TIMESTAMP, self.base_offset
        self._max_timestamp = found.max_timestamp, found.max_timestamp_offset
        return self._max_timestamp

    def _find_max_timestamp(self, entry: tuple[int, int], end: int) -> tuple[int, int]:
        """Return (largest timestamp, last offset of its batch) of the batches before byte position `end`.

        `entry` is the last time index entry before that position; only the batches after this entry are scanned.
        """
        position = self.offset_index.lookup(entry[1])
        found = self.files.scan(self.handle(), position, end, self.base_offset, WITHOUT_ENTRIES, False)
        if found.max_timestamp > entry[0]:
            return found.max_timestamp, found.max_timestamp_offset
        return entry

    # --- searches

    def locate(self, offset: int, end: int, nowait: bool = False) -> tuple[int, int, int] | None:
        """Return (position, size, base offset) of the first batch that ends at `offset` or later, or None.

        Only batches before byte position `end` count. Raises CorruptSegment, OSError; with `nowait`, BlockingIOError if
        the call would wait for the disk.
        """
        position = self.offset_index.lookup(offset, nowait)
        return self.files.locate(self.handle(nowait), position if position < end else 0, end, offset, nowait)

    def tail(self) -> Scan:
        """Scan the batch headers from the last offset index entry to the end of the segment, and return the Scan.

        The Scan says where the last valid batch ends, and why the scan stopped there if that is not the end of the
        segment.
        """
        begin = min(self.offset_index.lookup(self.offset_index.last_offset), self.size)
        return self.files.scan(self.handle(), begin, self.size, self.base_offset, WITHOUT_ENTRIES, False)
