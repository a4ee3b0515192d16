"""The time index: from a timestamp to an offset (Kafka's TimeIndex, KIP-33).

An entry is 12 bytes, big-endian: a timestamp and a relative offset. It says that up to this offset (the last one
of the batch that has the largest timestamp) no record is younger than this timestamp. Entries grow in both.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from kafkapy._ext.index_check import bad_time_entry
from kafkapy.log import names
from kafkapy.log.files import Files
from kafkapy.log.index_file import IndexFile, Place, numbers_in, parts_of

NO_TIMESTAMP = -1

_ENTRY = Struct(">qi")
_NONE = array("i")  # of all indexes that are only in their files; nothing is ever added to it


# An index may have hundreds of thousands of entries: byte k of all numbers at once is moved by one strided copy.


def _lanes_in(data: bytearray, at: int, numbers: array[int]) -> None:
    """Puts the numbers, big-endian, at byte `at` of each entry."""
    if sys.byteorder == "little":
        numbers.byteswap()
    source, width = numbers.tobytes(), numbers.itemsize
    for lane in range(width):
        data[at + lane :: _ENTRY.size] = source[lane::width]


def _lanes_out(data: memoryview, at: int, code: str) -> array[int]:
    """The numbers at byte `at` of each entry, as an array of type `code`."""
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
    """See IndexFile for its life; lookups take no lock."""

    __slots__ = ("_last", "_offsets", "_stamps")

    width = _ENTRY.size
    suffix = names.TIME_INDEX

    def __init__(self, files: Files, place: Place, base_offset: int, max_bytes: int) -> None:
        super().__init__(files, place, base_offset, max_bytes)
        self._stamps: array[int] | None = None
        self._offsets: array[int] = _NONE
        self._last: tuple[int, int] | None = None

    def _first_bad(self, data: bytes) -> int:
        return bad_time_entry(data)

    def _clear(self) -> None:
        self._stamps, self._offsets = array("q"), array("i")
        self._last = (NO_TIMESTAMP, self.base_offset)

    def _load(self, data: bytes) -> None:
        data = data[: len(data) - len(data) % self.width]
        offsets, stamps = array("i"), array("q")
        for part in parts_of(data, self.width):
            offsets.extend(_lanes_out(part, 8, "i"))
            stamps.extend(_lanes_out(part, 0, "q"))
        self._offsets, self._stamps = offsets, stamps
        self._last = None

    def take(self, stamps: bytes, offsets: bytes) -> None:
        """All entries at once, as `segment_scan.scan` makes them; after `rebuild`."""
        self._offsets = numbers_in("i", offsets)
        self._stamps = numbers_in("q", stamps)
        self.count = len(self._stamps)
        self._last = None

    def _encoded(self, first: int, end: int) -> bytes:
        assert self._stamps is not None
        stamps, offsets = self._stamps[first:end], self._offsets[first:end]
        data = bytearray(len(stamps) * self.width)
        _lanes_in(data, 0, stamps)
        _lanes_in(data, 8, offsets)
        return bytes(data)

    def _drop(self) -> None:
        self._stamps = None
        self._offsets = _NONE

    def open(self, size_bytes: int, data: bytes | None = None) -> None:
        super().open(size_bytes, data)
        self._drop()
        self._last = None

    @property
    def usable_capacity(self) -> int:
        """One entry stays free: the one that sealing adds."""
        return self.capacity - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset); (-1, base offset) if there is none."""
        if self._last is None:
            self._last = self._read_last()
        return self._last

    def _read_last(self) -> tuple[int, int]:
        stamps = self._stamps
        if not self.count or (stamps is None and not self.check()):
            return NO_TIMESTAMP, self.base_offset
        if stamps is not None:
            return stamps[-1], self.base_offset + self._offsets[-1]
        data = self.files.pread(self.handle(), self.width, (self.count - 1) * self.width)
        stamp, relative = _ENTRY.unpack(data)
        return stamp, self.base_offset + relative

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if its timestamp is larger than the last one's."""
        if timestamp > self.last_entry[0]:
            assert self._stamps is not None
            self._offsets.append(offset - self.base_offset)  # first, so that a reader who sees the stamp finds it
            self._stamps.append(timestamp)
            self._last = (timestamp, offset)
            self._added()

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry with a timestamp up to the asked one; (-1, base offset) if there is none.

        Raises OSError if reading fails.
        """
        count, stamps = self.count, self._stamps  # in this order: it may begin to grow in between
        if stamps is not None:
            slot = bisect_right(stamps, timestamp)
            if not slot:
                return NO_TIMESTAMP, self.base_offset
            return stamps[slot - 1], self.base_offset + self._offsets[slot - 1]
        usable = count and self.check()
        found = self.files.floor_entry(self.handle(), count, self.width, timestamp) if usable else None
        if found is None:
            return NO_TIMESTAMP, self.base_offset
        return found[1], self.base_offset + found[2]

    def truncate_to(self, offset: int) -> None:
        """Forgets the entries for `offset` and later ones. The index must be growing."""
        assert self._stamps is not None
        kept = bisect_left(self._offsets, offset - self.base_offset)
        self._stamps, self._offsets = self._stamps[:kept], self._offsets[:kept]
        self._last = None
        self._cut(kept)
