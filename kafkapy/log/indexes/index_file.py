"""The common part of the offset index and the time index: the file, how entries are added to it, and how it is trimmed.

Entries of the active segment's index are appended in memory and written to the file a page at a time. The file has its
full length (segment.index.bytes) from the start and is sparse until written, as in Kafka, which preallocates it. Kafka
writes through a memory mapping. kafkapy does not, for two reasons: on a full disk a store into an unwritten page of a
mapping kills the process (SIGBUS), and a page fault on a mapping would wait for the disk while holding the GIL. Entries
that a crash of the process loses do not matter: the segment was not flushed either, and recovery rebuilds its indexes.

A sealed index exists only as its file, trimmed to its entries, and is searched there. An index that was already there
when the broker started is checked before its first search: another broker may have written it, or the disk may have
lost a part. A damaged index is not fatal, because every search can begin at the start of the segment. The segment is
notified, and the index is rebuilt in the background.
"""

from __future__ import annotations

import errno
import logging
from array import array
from collections.abc import Iterator
from typing import Protocol

from kafkapy.log.failures import is_shortage
from kafkapy.log.storage.files import Files
from kafkapy.log.storage.named_file import NamedFile
from kafkapy.record.file_region import FileHandle

_PAGE = 512  # entries that are buffered in memory before they are written
_PART = 16384  # entries that are encoded or decoded at a time

_log = logging.getLogger(__name__)


def parts_of(data: bytes, width: int) -> Iterator[memoryview]:
    """Yield `data` in parts of whole `width`-byte entries, for work that would hold the GIL too long over all of it."""
    view = memoryview(data)
    for at in range(0, len(view), _PART * width):
        yield view[at : at + _PART * width]


def numbers_in(code: str, data: bytes) -> array[int]:
    """Return array(code, data), built in parts so that the GIL is never held for long."""
    numbers = array(code)
    for part in parts_of(data, numbers.itemsize):
        numbers.frombytes(part)
    return numbers


class Place(Protocol):
    """The location of an index file: the segment that the index belongs to, which may be renamed."""

    @property
    def size(self) -> int:
        """The size of the segment's .log file in bytes."""
        ...

    def path(self, suffix: str) -> str: ...
    def damaged(self) -> None:
        """Called when a search finds that the index is damaged. May be called more than once."""
        ...


class _Nowhere:
    """The Place of an index whose segment is deleted."""

    size = 0

    def path(self, suffix: str) -> str:
        raise FileNotFoundError(errno.ENOENT, f"the segment of this {suffix} file is deleted")

    def damaged(self) -> None:
        pass


NOWHERE: Place = _Nowhere()


class IndexFile(NamedFile):
    """An index file with one writer and readers that take no lock. Sizes are in entries unless the name says bytes."""

    __slots__ = (
        "_changed",
        "_trusted",
        "_written",
        "base_offset",
        "capacity",
        "count",
        "damage",
        "growing",
        "place",
    )

    width: int
    suffix: str

    def __init__(self, files: Files, place: Place, base_offset: int, max_bytes: int) -> None:
        super().__init__(files)
        self._trusted = True
        self.damage: str | None = None  # what is wrong with the index, None while no damage is known
        self.base_offset = base_offset
        self.capacity = max_bytes // self.width
        self.count = 0
        self.growing = False
        self.place = place
        self._written = 0
        self._changed = False  # since the last sync

    @property
    def path(self) -> str:
        return self.place.path(self.suffix)

    # --- where the entries are: for the subclasses

    def _clear(self) -> None:
        """Start an empty in-memory list of entries."""
        raise NotImplementedError

    def _load(self, data: bytes) -> None:
        """Load the entries of a file into memory."""
        raise NotImplementedError

    def _encoded(self, first: int, end: int) -> bytes:
        """Return the entries from number `first` up to, but not including, `end` as they are encoded in the file."""
        raise NotImplementedError

    def _drop(self) -> None:
        """Drop the in-memory entries, all of which are in the file now."""
        raise NotImplementedError

    def _first_bad(self, data: bytes) -> int:
        """Return the number of the first entry that cannot be right, -1 if there is none."""
        raise NotImplementedError

    # --- life

    def create(self) -> None:
        """Create the file at full length. An existing file of that name is emptied."""
        file = self._emptied()
        self.files.truncate(file, self.capacity * self.width)

    def open(self, size_bytes: int, data: bytes | None = None) -> None:
        """Take over a sealed index of `size_bytes` bytes without opening the file, which the first search does.

        `data`: the content of the file, if the caller has read it already.
        """
        self.count = self._written = size_bytes // self.width
        self.growing = False
        self.damage = f"its {size_bytes} bytes are not whole entries" if size_bytes % self.width else None
        self._trusted = not size_bytes or (data is not None and not self.damage and self._first_bad(data) < 0)

    def check(self, nowait: bool = False) -> bool:
        """Return True if the entries may be used. The first call reads and checks all of them.

        Raises OSError; with `nowait`, BlockingIOError if the entries would have to be read.
        """
        if self._trusted:
            return True
        if nowait and self.damage is None:
            raise BlockingIOError(errno.EAGAIN, "not checked yet")
        if self.damage is None:
            data = self.files.pread(self.handle(), self.count * self.width, 0)
            bad = self._first_bad(data)
            if bad < 0 and len(data) == self.count * self.width:
                self._trusted = True
                return True
            self.damage = f"entry {bad} of {self.count} cannot be right" if bad >= 0 else "it is shorter than it was"
        self.place.damaged()
        return False

    def reopen_to_grow(self) -> None:
        """Let a sealed index take entries again, as the active segment's. A damaged index starts empty."""
        if not self.growing:
            data = self.files.pread(self.handle(), self.count * self.width, 0) if self.check() else b""
            self.let_go()
            self.count = self._written = len(data) // self.width
            self._load(data)
            self.damage, self._trusted = None, True
            self.growing = True
        self._reserve()

    def rebuild(self) -> None:
        """Empty the index so that it can be rebuilt."""
        self._emptied()

    def _emptied(self) -> FileHandle:
        self.let_go()
        self.damage, self._trusted = None, True
        file = self._opened(create=True)
        self.files.truncate(file, 0)
        self._changed = True
        self._clear()
        self.count = self._written = 0
        self.growing = True
        return file

    def trim(self) -> None:
        """Write the in-memory entries and cut the file to the length of its entries. Entries may still be added."""
        if self.growing:
            self.write_behind()
            self.files.truncate(self._opened(), self.count * self.width)
            self._changed = True

    def seal(self) -> None:
        """Drop the in-memory entries: from now on they are only in the file. Call `trim` first. Cannot fail."""
        self.growing = False
        self._drop()

    def _name(self) -> str:
        return self.path

    def _opened(self, *, create: bool = False) -> FileHandle:
        """Return the open file for one operation.

        Growing indexes keep no descriptor, as there may be thousands of them.
        """
        return self._handle or self.files.open(self.path, create=create)

    # --- writing

    def _reserve(self) -> None:
        self.files.truncate(self._opened(), max(self.capacity, self.count) * self.width)

    def _added(self) -> None:
        """Count an entry that was added in memory, and write out a full page of entries."""
        self.count += 1
        # The first entry is written at once. Kafka's tools, run on the files of a live broker, take zeros after an
        # entry for the end of the index, but zeros at the start of the file for entries.
        if self.count == 1 or self.count - self._written >= _PAGE:
            try:
                self.write_behind()
            except OSError as error:
                if not is_shortage(error):
                    raise
                _log.warning("%s: %s; its last %d entries stay in memory", self.path, error, self.count - self._written)

    def write_behind(self) -> None:
        """Write the entries that are only in memory. Does not sync the file."""
        while self._written < self.count:
            # In parts: encoding the entries of a whole segment at once would hold the GIL for long.
            first, end = self._written, min(self.count, self._written + _PART)
            self.files.write_all(self._opened(), [self._encoded(first, end)], first * self.width)
            self._changed = True
            self._written = end

    def mark_unsynced(self) -> None:
        """Have the next sync write the file, even if it is unchanged: a killed process may not have synced it."""
        self._changed = True

    def sync(self) -> None:
        """Sync what is written to the file. For in-memory entries call `write_behind` first, under the log's lock."""
        if self._changed:
            self._changed = False  # cleared first: a write during the sync must set it again for the next sync
            try:
                self.files.sync(self._opened())
            except BaseException:
                self._changed = True  # for instance no descriptor or memory was left, so nothing was synced
                raise

    def _cut(self, count: int) -> None:
        """Adjust the counters after the in-memory entries were cut down to `count`."""
        self.count = count
        self._written = min(self._written, count)
