"""The time index: maps a timestamp to an offset (Kafka's TimeIndex, KIP-33).

An entry is 12 bytes, big-endian: a timestamp and a relative offset. No record up to this offset has a later timestamp.
The offset is the last offset of the batch that has the timestamp. Entries ascend in both fields.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from kafkapy._ext.index_check import bad_time_entry
from kafkapy.log import names
from kafkapy.log.indexes.index_file import IndexFile, Place, numbers_in, parts_of
from kafkapy.log.storage.files import Files

NO_TIMESTAMP = -1

_ENTRY = Struct(">qi")


# An index may have hundreds of thousands of entries. So entries are converted with one strided copy for each byte of a
# field, over all entries at once.


def _lanes_in(data: bytearray, at: int, numbers: array[int]) -> None:
    """Write the numbers, big-endian, at byte `at` of each 12-byte entry in `data`."""
    if sys.byteorder == "little":
        numbers.byteswap()
    source, width = numbers.tobytes(), numbers.itemsize
    for lane in range(width):
        data[at + lane :: _ENTRY.size] = source[lane::width]


def _lanes_out(data: memoryview, at: int, code: str) -> array[int]:
    """Return the big-endian numbers at byte `at` of each 12-byte entry in `data`, as an array of type `code`."""
    numbers = array(code)
    width = numbers.itemsize
    found = bytearray(len(data) // _ENTRY.size * width)
    for lane in range(width):
        found[lane::width] = data[at + lane :: _ENTRY.size]
    numbers.frombytes(bytes(found))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


class TimeIndex(IndexFile):
    """The time index of a segment. Lookups take no lock. IndexFile describes how an index is opened and sealed."""

    __slots__ = ("_entries", "_last")

    width = _ENTRY.size
    suffix = names.TIME_INDEX

    def __init__(self, files: Files, place: Place, base_offset: int, max_bytes: int) -> None:
        super().__init__(files, place, base_offset, max_bytes)
        # (timestamps, relative offsets) of a growing index. One attribute for both: a reader must not get one array
        # from before a truncation or roll and the other from after it.
        self._entries: tuple[array[int], array[int]] | None = None
        # For a sealed index: (number of entries, the last entry).
        self._last: tuple[int, tuple[int, int]] | None = None

    def _first_bad(self, data: bytes) -> int:
        return bad_time_entry(data)

    def _clear(self) -> None:
        self._entries = array("q"), array("i")

    def _load(self, data: bytes) -> None:
        data = data[: len(data) - len(data) % self.width]
        offsets, stamps = array("i"), array("q")
        for part in parts_of(data, self.width):
            offsets.extend(_lanes_out(part, 8, "i"))
            stamps.extend(_lanes_out(part, 0, "q"))
        self._entries = stamps, offsets

    def take(self, stamps: bytes, offsets: bytes) -> None:
        """Replace all entries by `stamps` and `offsets`, in the format that `segment_scan.scan` returns.

        Call `rebuild` first.
        """
        self._entries = entries = numbers_in("q", stamps), numbers_in("i", offsets)
        self._count = len(entries[0])

    def _encoded(self, first: int, end: int) -> bytes:
        assert self._entries is not None
        stamps, offsets = (numbers[first:end] for numbers in self._entries)
        data = bytearray(len(stamps) * self.width)
        _lanes_in(data, 0, stamps)
        _lanes_in(data, 8, offsets)
        return bytes(data)

    def _drop(self) -> None:
        self._entries = None

    def open(self, size_bytes: int | None, data: bytes | None = None) -> None:
        super().open(size_bytes, data)
        self._drop()
        self._last = None

    @property
    def last_entry(self) -> tuple[int, int]:
        """The (timestamp, offset) of the last entry; (-1, base offset) if there is no entry."""
        # The count first: the index may be reopened to grow between the two reads, and a count read after that could
        # include entries that are not in the file yet.
        count, entries = self._counted(), self._entries
        if entries is not None:
            return self._before(len(entries[0]), entries)
        if not count or not self.check():
            return NO_TIMESTAMP, self.base_offset
        last = self._last
        # Other threads may reopen the index, add entries and seal it while this thread reads. So the cached entry is
        # only valid for one count.
        if last is None or last[0] != count:
            last = self._last = count, self._read(count - 1)
        return last[1]

    def entry_before(self, offset: int) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry whose offset is below `offset`.

        The result is (-1, base offset) if there is no such entry. Raises OSError if reading fails.
        """
        # The count first: the index may be reopened to grow between the two reads, and a count read after that could
        # include entries that are not in the file yet.
        count, entries = self._counted(), self._entries
        if entries is not None:
            stamps, offsets = entries
            return self._before(bisect_left(offsets, offset - self.base_offset, 0, len(stamps)), entries)
        slot = bisect_left(range(count), offset, key=lambda one: self._read(one)[1]) if count and self.check() else 0
        return self._read(slot - 1) if slot else (NO_TIMESTAMP, self.base_offset)

    def _before(self, slot: int, entries: tuple[array[int], array[int]]) -> tuple[int, int]:
        """Return (timestamp, offset) of in-memory entry number `slot` - 1; (-1, base offset) if `slot` is 0."""
        if not slot:
            return NO_TIMESTAMP, self.base_offset
        return entries[0][slot - 1], self.base_offset + entries[1][slot - 1]

    def _read(self, slot: int) -> tuple[int, int]:
        """Return (timestamp, offset) of entry number `slot`, read from the file. Raises OSError."""
        stamp, relative = _ENTRY.unpack(self.files.pread(self.handle(), self.width, slot * self.width))
        return stamp, self.base_offset + relative

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` is larger than the timestamp of the last entry; otherwise do nothing."""
        assert self._entries is not None
        stamps, offsets = self._entries
        if timestamp > (stamps[-1] if stamps else NO_TIMESTAMP):
            # first, so that a reader that finds the timestamp also finds the offset
            offsets.append(offset - self.base_offset)
            stamps.append(timestamp)
            self._added()

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry whose timestamp is not above `timestamp`.

        The result is (-1, base offset) if there is no such entry. Raises OSError if reading fails.
        """
        # The count first: the index may be reopened to grow between the two reads, and a count read after that could
        # include entries that are not in the file yet.
        count, entries = self._counted(), self._entries
        if entries is not None:
            return self._before(bisect_right(entries[0], timestamp), entries)
        usable = count and self.check()
        found = self.files.floor_entry(self.handle(), count, self.width, timestamp) if usable else None
        if found is None:
            return NO_TIMESTAMP, self.base_offset
        return found[1], self.base_offset + found[2]

    def truncate_to(self, offset: int) -> None:
        """Remove the entries for `offset` and later offsets. The entries must be in memory (`growing`)."""
        assert self._entries is not None
        stamps, offsets = self._entries
        # An append that ran out of memory may have extended only one of the arrays.
        kept = min(bisect_left(offsets, offset - self.base_offset), len(stamps))
        self._entries = stamps[:kept], offsets[:kept]  # new arrays: a reader may be searching the old ones
        self._cut(kept)
