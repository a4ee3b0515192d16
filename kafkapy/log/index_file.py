"""What the offset index and the time index have in common: the file, and how it grows and is trimmed.

The index of the active segment grows in memory and is written behind it, a page at a time, into a file of full
length (segment.index.bytes, a hole until it is written), as Kafka preallocates it. Kafka writes through a
mapping; we do not, since on a full disk a store into a mapped hole kills the process, and a page of an index that
is not in memory would be read under the interpreter's lock. What a crash of the process loses of it does not
matter: the segment was not flushed either, and recovery builds its indexes anew.

A sealed index is only in its file, trimmed to its entries, and searched there. One that was there before this start is
checked when it is first searched: it may be another broker's, or come from a disk that lost a part of it. Damage is
no disaster, for every search can begin at the segment's start; the segment is told, which has it made anew.
"""

from __future__ import annotations

import errno
import logging
from array import array
from collections.abc import Iterator
from typing import Protocol

from kafkapy.log.failures import is_shortage
from kafkapy.log.files import Files
from kafkapy.log.named_file import NamedFile
from kafkapy.record.file_region import FileHandle

_PAGE = 512  # entries that wait in memory before they are written
_PART = 16384  # entries that are made into bytes, or of bytes, at a time

_log = logging.getLogger(__name__)


def parts_of(data: bytes, width: int) -> Iterator[memoryview]:
    """Some entries of `width` bytes at a time, for what would hold the interpreter's lock too long over all of them."""
    view = memoryview(data)
    for at in range(0, len(view), _PART * width):
        yield view[at : at + _PART * width]


def numbers_in(code: str, data: bytes) -> array[int]:
    """As array(code, data)."""
    numbers = array(code)
    for part in parts_of(data, numbers.itemsize):
        numbers.frombytes(part)
    return numbers


class Place(Protocol):
    """Where an index is: with its segment, which may move."""

    @property
    def size(self) -> int:
        """Bytes of the segment."""
        ...

    def path(self, suffix: str) -> str: ...
    def damaged(self) -> None:
        """A search has found that the index is damaged; it may be told more than once."""
        ...


class _Nowhere:
    """Where the index of a deleted segment is."""

    size = 0

    def path(self, suffix: str) -> str:
        raise FileNotFoundError(errno.ENOENT, f"the segment of this {suffix} file is deleted")

    def damaged(self) -> None:
        pass


NOWHERE: Place = _Nowhere()


class IndexFile(NamedFile):
    """One writer; readers need no lock. Sizes are entries unless the name says bytes."""

    __slots__ = (
        "_changed",
        "_max_bytes",
        "_trusted",
        "_written",
        "base_offset",
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
        self.damage: str | None = None  # a sentence, if the entries cannot be right
        self.base_offset = base_offset
        self.count = 0
        self.growing = False
        self.place = place
        self._max_bytes = max_bytes
        self._written = 0
        self._changed = False  # since the last sync

    @property
    def path(self) -> str:
        return self.place.path(self.suffix)

    @property
    def capacity(self) -> int:
        return self._max_bytes // self.width

    # --- where the entries are: for the subclasses

    def _clear(self) -> None:
        """Begins with no entries in memory."""
        raise NotImplementedError

    def _load(self, data: bytes) -> None:
        """Takes the entries of a file into memory."""
        raise NotImplementedError

    def _encoded(self, first: int, end: int) -> bytes:
        """The entries from `first` up to and without `end`, as they are in the file."""
        raise NotImplementedError

    def _drop(self) -> None:
        """Forgets the entries in memory: they are in the file now."""
        raise NotImplementedError

    def _first_bad(self, data: bytes) -> int:
        """The number of the first entry that cannot be right; -1 if there is none."""
        raise NotImplementedError

    # --- life

    def create(self) -> None:
        """A new file of full length; an old one of that name is emptied."""
        file = self._emptied()
        self.files.truncate(file, self.capacity * self.width)

    def open(self, size_bytes: int, data: bytes | None = None) -> None:
        """An index that was closed; the file is opened when it is first asked. `data`: its bytes, if they are known."""
        self.count = self._written = size_bytes // self.width
        self.growing = False
        self.damage = f"its {size_bytes} bytes are not whole entries" if size_bytes % self.width else None
        self._trusted = not size_bytes or (data is not None and not self.damage and self._first_bad(data) < 0)

    def check(self, nowait: bool = False) -> bool:
        """Whether the entries may be used; looks at all of them, the first time.

        Raises OSError; with `nowait` BlockingIOError where it would have to read them.
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
        """Makes a sealed index that of the active segment again; a damaged one begins anew, without its entries."""
        if not self.growing:
            data = self.files.pread(self.handle(), self.count * self.width, 0) if self.check() else b""
            self.let_go()
            self.count = self._written = len(data) // self.width
            self._load(data)
            self.damage, self._trusted = None, True
            self.growing = True
        self._reserve()

    def rebuild(self) -> None:
        """Empties the index, to be filled anew."""
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
        """Writes what is in memory and cuts the file to its entries; the index may still grow."""
        if self.growing:
            self.write_behind()
            self.files.truncate(self._opened(), self.count * self.width)
            self._changed = True

    def seal(self) -> None:
        """After `trim`: the entries are only in the file from now on. Cannot fail."""
        self.growing = False
        self._drop()

    def _name(self) -> str:
        return self.path

    def _opened(self, *, create: bool = False) -> FileHandle:
        """The open file for one operation: an index that grows keeps no descriptor, for there may be thousands."""
        return self._handle or self.files.open(self.path, create=create)

    # --- writing

    def _reserve(self) -> None:
        self.files.truncate(self._opened(), max(self.capacity, self.count) * self.width)

    def _added(self) -> None:
        """After each entry that was added in memory."""
        self.count += 1
        # The first one at once: Kafka's tools, on the files of a running broker, take zeros behind an entry for the
        # end, but zeros at the start for entries.
        if self.count == 1 or self.count - self._written >= _PAGE:
            try:
                self.write_behind()
            except OSError as error:
                if not is_shortage(error):
                    raise
                _log.warning("%s: %s; its last %d entries stay in memory", self.path, error, self.count - self._written)

    def write_behind(self) -> None:
        """Writes the entries that are only in memory; the file is not synced."""
        while self._written < self.count:
            # Those of a whole segment in parts: none of the steps may hold the interpreter's lock for long.
            first, end = self._written, min(self.count, self._written + _PART)
            self.files.write_all(self._opened(), [self._encoded(first, end)], first * self.width)
            self._changed = True
            self._written = end

    def sync(self) -> None:
        """What is only in memory is not looked at: `write_behind` before, under the log's lock."""
        if self._changed:
            self._changed = False  # first: what is written while the sync runs is for the next one
            self.files.sync(self._opened())

    def _cut(self, count: int) -> None:
        """After the entries in memory were cut down to `count`."""
        self.count = count
        self._written = min(self._written, count)
