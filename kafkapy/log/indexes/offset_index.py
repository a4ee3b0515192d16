"""The offset index: maps an offset to a position in the segment (Kafka's OffsetIndex).

An entry is 8 bytes, big-endian: relative offset and position. The offset is the last offset of an append, and the
position is where that append began. So a search for an offset begins at the last entry at or below that offset. In
memory an entry is one 64-bit number (relative offset << 32 | position). These numbers sort like the entries, and their
big-endian bytes are the entries.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

from kafkapy._ext.index_check import bad_offset_entry
from kafkapy.log import names
from kafkapy.log.indexes.index_file import IndexFile, Place, numbers_in, parts_of
from kafkapy.log.storage.files import Files

_LOW = 0xFFFFFFFF


class OffsetIndex(IndexFile):
    """The offset index of a segment. Lookups take no lock. IndexFile describes how an index is opened and sealed."""

    __slots__ = ("_entries", "_last")

    width = 8
    suffix = names.OFFSET_INDEX

    _entries: array[int] | None
    _last: int | None

    def __init__(self, files: Files, place: Place, base_offset: int, max_bytes: int) -> None:
        super().__init__(files, place, base_offset, max_bytes)
        self._entries = None
        self._last = None

    def _first_bad(self, data: bytes) -> int:
        return bad_offset_entry(data, self.place.size)

    def _clear(self) -> None:
        self._entries = array("Q")
        self._last = None

    def _load(self, data: bytes) -> None:
        entries = array("Q")
        for part in parts_of(data[: len(data) - len(data) % self.width], self.width):
            some = array("Q")
            some.frombytes(part)
            if sys.byteorder == "little":
                some.byteswap()
            entries.extend(some)
        self._entries = entries
        self._last = None

    def take(self, entries: bytes) -> None:
        """Replace all entries by `entries`, which is in the format that `segment_scan.scan` returns.

        Call `rebuild` first.
        """
        self._entries = numbers_in("Q", entries)
        self._count = len(self._entries)
        self._last = None

    def _encoded(self, first: int, end: int) -> bytes:
        assert self._entries is not None
        part = self._entries[first:end]
        if sys.byteorder == "little":
            part.byteswap()
        return part.tobytes()

    def _drop(self) -> None:
        self._entries = None

    def open(self, size_bytes: int | None, data: bytes | None = None) -> None:
        super().open(size_bytes, data)
        self._entries = None
        self._last = None

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset if there is none."""
        if self._last is None:
            self._last = self._read_last()
        return self._last

    def _read_last(self) -> int:
        entries = self._entries
        if not self._counted() or (entries is None and not self.check()):
            return self.base_offset
        if entries is not None:
            return self.base_offset + (entries[-1] >> 32)
        data = self.files.pread(self.handle(), 4, (self._count - 1) * self.width)
        return self.base_offset + int.from_bytes(data, "big", signed=True)

    def append(self, offset: int, position: int) -> None:
        """Add an entry: the batch that ends with `offset` begins at byte `position` of the segment.

        `offset` must be greater than that of the last entry, and at most 2^31 - 1 above the base offset.
        """
        entries = self._entries
        assert entries is not None
        entries.append((offset - self.base_offset) << 32 | position)
        self._last = offset
        self._added()

    def lookup(self, offset: int, nowait: bool = False) -> int:
        """Return the byte position at which a search for `offset` begins; 0 if no entry is at or below `offset`.

        Raises OSError; with `nowait`, BlockingIOError if the call would wait for the disk.
        """
        relative = offset - self.base_offset
        # The count first: the index may be reopened to grow between the two reads, and a count read after that could
        # include entries that are not in the file yet.
        count, entries = self._counted(nowait), self._entries
        if entries is not None:
            slot = bisect_right(entries, relative << 32 | _LOW) if relative >= 0 else 0
            return entries[slot - 1] & _LOW if slot else 0
        if not count or not self.check(nowait):
            return 0
        found = self.files.floor_entry(self.handle(nowait), count, self.width, relative, nowait)
        return found[2] if found is not None else 0

    def offset_after(self, position: int, nowait: bool = False) -> int | None:
        """Return the offset of the first entry whose position is at or after `position`, or None.

        All records before `position` have lower offsets. If the first entry of the index is exactly at `position`, the
        second entry is used instead, because Kafka's search never compares the first entry. Raises the errors of
        `lookup`.
        """
        count, entries = self._counted(nowait), self._entries
        if entries is not None:
            slot = bisect_left(entries, position, key=lambda entry: entry & _LOW)
            if slot == 0 and entries and entries[0] & _LOW == position:
                slot = 1
            return self.base_offset + (entries[slot] >> 32) if slot < len(entries) else None
        if not count or not self.check(nowait):
            return None
        file = self.handle(nowait)
        found = self.files.ceiling_position(file, count, position, nowait)
        if found is not None and found[1] == position:
            first = self.files.ceiling_position(file, count, 0, nowait)
            if first == found:
                found = self.files.ceiling_position(file, count, position + 1, nowait)
        return self.base_offset + found[0] if found is not None else None

    def truncate_to(self, offset: int) -> None:
        """Remove the entries for `offset` and later offsets. The entries must be in memory (`growing`)."""
        entries = self._entries
        assert entries is not None
        relative = offset - self.base_offset
        kept = bisect_left(entries, relative << 32) if relative > 0 else 0
        self._entries = entries[:kept]  # a new array: a reader may be searching the old one
        self._last = None
        self._cut(kept)
