"""The transaction index: the aborted transactions that end in a segment (Kafka's TransactionIndex and AbortedTxn).

An entry is 34 bytes, big-endian: version, producer id, first offset, last offset (that of the abort marker) and
the last stable offset at that time. The file exists only where there is an entry. Entries are few: all of them
are kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from kafkapy.log.files import Files
from kafkapy.record.file_region import FileHandle

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class TxnIndexError(ValueError):
    """The file does not hold what it should; the segment has to be scanned to build it anew."""


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """One writer; readers see an immutable tuple."""

    __slots__ = ("_files", "_handle", "_path", "base_offset", "entries")

    def __init__(self, files: Files, path: Callable[[], str], base_offset: int) -> None:
        self._files = files
        self._path = path
        self._handle: FileHandle | None = None
        self.base_offset = base_offset
        self.entries: tuple[AbortedTxn, ...] = ()

    def load(self) -> None:
        """Reads the file, which must exist; raises TxnIndexError."""
        path = self._path()
        data = self._files.read(path)
        whole = len(data) - len(data) % _ENTRY.size
        entries = []
        for version, *fields in _ENTRY.iter_unpack(data[:whole]):
            entry = AbortedTxn(*fields)
            if version != _VERSION:
                raise TxnIndexError(f"{path} has an entry of version {version}, expected {_VERSION}")
            if entry.last_offset < self.base_offset:
                raise TxnIndexError(f"{path} has {entry}, which ends before the segment begins")
            entries.append(entry)
        self.entries = tuple(entries)

    def append(self, entry: AbortedTxn) -> None:
        data = _ENTRY.pack(_VERSION, *entry)
        self._files.write_all(self._open(), [data], len(self.entries) * _ENTRY.size)
        self.entries = (*self.entries, entry)

    def truncate_to(self, offset: int) -> None:
        """Forgets the transactions whose marker is at `offset` or later."""
        kept = tuple(entry for entry in self.entries if entry.last_offset < offset)
        if len(kept) < len(self.entries):
            self._files.truncate(self._open(), len(kept) * _ENTRY.size)
            self.entries = kept

    def replace(self, entries: Sequence[AbortedTxn]) -> None:
        """These instead of all that are there. A crash leaves what was or what is to be: each says nothing wrong."""
        self.let_go()
        if entries:
            path, data = self._path(), b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
            if not self._files.exists(path) or self._files.read(path) != data:
                self._files.replace(path, data)
            else:
                self._open()  # it may never have been synced: the next sync takes it along
        else:
            self.reset()
        self.entries = tuple(entries)

    def reset(self) -> None:
        if self.entries or self._files.exists(self._path()):
            self._files.truncate(self._open(), 0)
        self.entries = ()

    def sync(self) -> None:
        if self._handle is not None:
            self._files.sync(self._handle)

    def _open(self) -> FileHandle:
        if self._handle is None:
            self._handle = self._files.open(self._path(), create=True)
        return self._handle

    def let_go(self) -> None:
        self._handle = None
