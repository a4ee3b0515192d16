"""The common part of the offset index and the time index: the file, how entries are added to it, and how it is trimmed.

Entries of the active segment's index are appended in memory and written to the file a page at a time. The file has its
full length (segment.index.bytes) from the start and is sparse until written, as in Kafka, which preallocates it. Kafka
writes through a memory mapping. kafkapy does not, for two reasons: on a full disk a store into an unwritten page of a
mapping kills the process (SIGBUS), and a page fault on a mapping would wait for the disk while holding the GIL. Entries
that a crash of the process loses do not matter: the segment was not flushed either, and recovery rebuilds its indexes.

A sealed index exists only as its file, trimmed to its entries, and is searched there. An index that was already there
when the broker started is checked before its first search: another broker may have written it, or the disk may have
lost a part. A damaged index is not fatal, because every search can begin at the start of the segment. The segment's
`damaged` method is called, and the index is rebuilt in the background.
"""

from __future__ import annotations

import errno
import logging
import threading
from array import array
from collections.abc import Iterator
from typing import Protocol

from kafkapy.log.failures import is_shortage
from kafkapy.log.storage.files import Files
from kafkapy.log.storage.named_file import NamedFile
from kafkapy.record.file_region import FileHandle

_PAGE = 512  # entries that are buffered in memory before they are written
_PART = 16384  # entries that are encoded or decoded at a time
_UNKNOWN = -1  # entries, until the size of the file is asked for

_COUNTING = threading.Lock()

_log = logging.getLogger(__name__)


def parts_of(data: bytes, width: int) -> Iterator[memoryview]:
    """Yield parts of `data` that consist of whole entries of `width` bytes.

    For work that would hold the GIL too long if it were done on all of `data` at once.
    """
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
    """The interface of the segment to which an index belongs.

    It supplies the path of the index file, which changes when the segment is renamed.
    """

    @property
    def size(self) -> int:
        """The size of the segment's .log file in bytes."""
        ...

    def path(self, suffix: str) -> str: ...
    def damaged(self) -> None:
        """Report that a search has found damage in the index. May be called more than once."""
        ...


class _Nowhere:
    """A Place for the index of a deleted segment: `path` raises FileNotFoundError."""

    size = 0

    def path(self, suffix: str) -> str:
        raise FileNotFoundError(errno.ENOENT, f"the segment of this {suffix} file is deleted")

    def damaged(self) -> None:
        pass


NOWHERE: Place = _Nowhere()


class IndexFile(NamedFile):
    """An index file with one writer; readers take no lock. `count` and `capacity` are numbers of entries.

    The size of an index of an older segment may be unknown until its first use.
    """

    __slots__ = (
        "_changed",
        "_count",
        "_trusted",
        "_written",
        "base_offset",
        "capacity",
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
        self._count = 0
        self.growing = False
        self.place = place
        self._written = 0
        self._changed = False  # since the last sync

    @property
    def path(self) -> str:
        return self.place.path(self.suffix)

    # --- where the entries are: for the subclasses

    def _clear(self) -> None:
        """Start with an empty list of entries in memory."""
        raise NotImplementedError

    def _load(self, data: bytes) -> None:
        """Decode `data`, the content of the index file, into the entries in memory."""
        raise NotImplementedError

    def _encoded(self, first: int, end: int) -> bytes:
        """Return the entries from number `first` up to, but not including, `end`, encoded as in the file."""
        raise NotImplementedError

    def _drop(self) -> None:
        """Drop the entries in memory, all of which are in the file now."""
        raise NotImplementedError

    def _first_bad(self, data: bytes) -> int:
        """Return the number of the first invalid entry in `data`, the content of an index file; -1 if there is none."""
        raise NotImplementedError

    # --- life

    def create(self) -> None:
        """Create the index file without entries, at its full length. An existing file of that name is emptied."""
        file = self._emptied()
        self.files.truncate(file, self.capacity * self.width)

    def open(self, size_bytes: int | None, data: bytes | None = None) -> None:
        """Take over an existing index file of `size_bytes` bytes. The file itself is opened by the first search.

        `size_bytes`: None to ask for the size at the first use. `data`: the content of the file, if the caller has read
        it already. Without `data`, `check` reads the content later.
        """
        damage = None if size_bytes is None else self._torn(size_bytes)
        trusted = size_bytes == 0 or (data is not None and not damage and self._first_bad(data) < 0)
        with _COUNTING:
            self._count = self._written = _UNKNOWN if size_bytes is None else size_bytes // self.width
            self.growing = False
            self.damage, self._trusted = damage, trusted

    def _torn(self, size_bytes: int) -> str | None:
        return f"its {size_bytes} bytes are not whole entries" if size_bytes % self.width else None

    @property
    def count(self) -> int:
        """The number of entries. Asks for the size of the file if it is unknown: OSError."""
        return self._counted()

    def _counted(self, nowait: bool = False) -> int:
        """Return `count`. Raises OSError; with `nowait`, BlockingIOError if the size of the file is unknown."""
        if self._count == _UNKNOWN:
            if nowait:
                raise BlockingIOError(errno.EAGAIN, "its size is unknown")
            self._ask_size()
        return self._count

    def _ask_size(self) -> None:
        size = self.files.size(self.handle())
        with _COUNTING:
            if self._count != _UNKNOWN:  # another thread has asked, and may have reopened the index to grow
                return
            self.damage, self._trusted = self._torn(size), size == 0
            # `count` last: other threads use the index without the lock when the count is known
            self._written = self._count = size // self.width
        if self.damage is not None:
            self.place.damaged()

    def check(self, nowait: bool = False) -> bool:
        """Return True if the index may be searched, False if it is damaged.

        The first call reads and checks all entries.

        Raises OSError; with `nowait`, BlockingIOError if the entries would have to be read.
        """
        if self._trusted:
            return True
        if nowait and self.damage is None:
            raise BlockingIOError(errno.EAGAIN, "not checked yet")
        count = self._counted()
        if self.damage is None:
            data = self.files.pread(self.handle(), count * self.width, 0)
            bad = self._first_bad(data)
            if bad < 0 and len(data) == count * self.width:
                self._trusted = True
                return True
            self.damage = f"entry {bad} of {count} cannot be right" if bad >= 0 else "it is shorter than it was"
        self.place.damaged()
        return False

    def reopen_to_grow(self) -> None:
        """Load the entries of a sealed index into memory, as appends require. A damaged index starts empty."""
        if not self.growing:
            data = self.files.pread(self.handle(), self._count * self.width, 0) if self.check() else b""
            self.release()
            self._count = self._written = len(data) // self.width
            self._load(data)
            self.damage, self._trusted = None, True
            self.growing = True
        self._reserve()

    def rebuild(self) -> None:
        """Remove all entries from the index and from its file. The caller then adds the entries of the segment."""
        self._emptied()

    def _emptied(self) -> FileHandle:
        self.release()
        self.damage, self._trusted = None, True
        file = self._opened(create=True)
        self.files.truncate(file, 0)
        self._changed = True
        self._clear()
        self._count = self._written = 0
        self.growing = True
        return file

    def trim(self) -> None:
        """Write the entries in memory to the file and cut the file after the last entry. Entries may still be added."""
        if self.growing:
            self.write_behind()
            self.files.truncate(self._opened(), self._count * self.width)
            self._changed = True

    def seal(self) -> None:
        """Drop the entries in memory: from now on they are only in the file. Call `trim` first. Raises nothing."""
        self.growing = False
        self._drop()

    def _name(self) -> str:
        return self.path

    def _opened(self, *, create: bool = False) -> FileHandle:
        """Return the open file for one operation.

        An index that entries are added to keeps no descriptor between operations, as there may be thousands of such
        indexes.
        """
        return self._handle or self.files.open(self.path, create=create)

    # --- writing

    def _reserve(self) -> None:
        self.files.truncate(self._opened(), max(self.capacity, self._count) * self.width)

    def _added(self) -> None:
        """Count an entry that was added in memory, and write the entries to the file when a page is full."""
        self._count += 1
        # The first entry is written at once. Kafka's tools, run on the files of a live broker, take zeros after an
        # entry for the end of the index, but zeros at the start of the file for entries.
        if self._count == 1 or self._count - self._written >= _PAGE:
            try:
                self.write_behind()
            except OSError as error:
                if not is_shortage(error):
                    raise
                _log.warning(
                    "%s: %s; its last %d entries stay in memory", self.path, error, self._count - self._written
                )

    def write_behind(self) -> None:
        """Write the entries that are only in memory to the file. Does not sync the file. Raises OSError."""
        while self._written < self._count:
            # In parts: encoding the entries of a whole segment at once would hold the GIL for long.
            first, end = self._written, min(self._count, self._written + _PART)
            self.files.write_all(self._opened(), [self._encoded(first, end)], first * self.width)
            self._changed = True
            self._written = end

    def mark_unsynced(self) -> None:
        """Have the next `sync` sync the file even if unchanged, because a killed process may not have synced it."""
        self._changed = True

    def sync(self) -> None:
        """Sync the index file if it has changed.

        To include the entries in memory, call `write_behind` first, under the log's lock. Raises OSError.
        """
        if self._changed:
            self._changed = False  # cleared first: a write during the sync must set it again for the next sync
            try:
                self.files.sync(self._opened())
            except BaseException:
                self._changed = True  # for instance no descriptor or memory was left, so nothing was synced
                raise

    def _cut(self, count: int) -> None:
        """Adjust the counters after the entries in memory were reduced to the first `count`."""
        self._count = count
        self._written = min(self._written, count)
