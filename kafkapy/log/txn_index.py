"""The transaction index: the aborted transactions that end in a segment (Kafka's TransactionIndex and AbortedTxn).

An entry is 34 bytes, big-endian: version, producer id, first offset, last offset (that of the abort marker) and
the last stable offset at that time. The file exists only where there is an entry. All entries are kept in memory, four
numbers each, so that a network thread can ask for them.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from kafkapy.log import names
from kafkapy.log.failures import is_shortage
from kafkapy.log.files import Files
from kafkapy.log.index_file import Place
from kafkapy.record.file_region import FileHandle

_ENTRY = Struct(">hqqqq")
_VERSION = 0
_FIELDS = 4
_NONE = array("q")  # of the many without an entry; nothing is ever added to it

_log = logging.getLogger(__name__)


class TxnIndexError(ValueError):
    """The file does not hold what it should; the segment has to be scanned to build it anew."""


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """One writer; readers take no lock. Entries are in the order of their markers, so of `last_offset`."""

    __slots__ = ("_files", "_handle", "_numbers", "_written", "base_offset", "place")

    def __init__(self, files: Files, place: Place, base_offset: int) -> None:
        self._files = files
        self.place = place
        self._handle: FileHandle | None = None
        self.base_offset = base_offset
        self._numbers = _NONE  # the fields of AbortedTxn, one entry after the other; only grows, or is replaced
        self._written = 0  # entries that are in the file

    def __len__(self) -> int:
        return len(self._numbers) // _FIELDS

    @property
    def _path(self) -> str:
        return self.place.path(names.TXN_INDEX)

    @property
    def entries(self) -> tuple[AbortedTxn, ...]:
        numbers = self._numbers
        return tuple(AbortedTxn(*numbers[at : at + _FIELDS]) for at in range(0, len(numbers), _FIELDS))

    def overlapping(self, offset: int, upper: int, found: list[tuple[int, int]]) -> bool:
        """Adds (producer id, first offset) of the transactions that reach `offset` and begin before `upper`.

        Whether that is all: no later segment has more of them (TransactionIndex.collectAbortedTxns).
        """
        numbers = self._numbers
        count = len(numbers) // _FIELDS
        for at in range(bisect_left(range(count), offset, key=lambda n: numbers[n * _FIELDS + 2]), count):
            producer_id, first_offset, _, last_stable_offset = numbers[at * _FIELDS : (at + 1) * _FIELDS]
            if first_offset < upper:
                found.append((producer_id, first_offset))
            if last_stable_offset >= upper:
                return True
        return False

    def load(self) -> None:
        """Reads the file, which must exist; raises TxnIndexError."""
        path = self._path
        data = self._files.read(path)
        whole = len(data) - len(data) % _ENTRY.size
        numbers = array("q")
        least = self.base_offset
        for version, *fields in _ENTRY.iter_unpack(memoryview(data)[:whole]):
            entry = AbortedTxn(*fields)
            if version != _VERSION:
                raise TxnIndexError(f"{path} has an entry of version {version}, expected {_VERSION}")
            if entry.last_offset < least:
                before = "the segment begins" if least == self.base_offset else "the entry before it"
                raise TxnIndexError(f"{path} has {entry}, which ends before {before}")
            least = entry.last_offset
            numbers.extend(entry)
        self._numbers = numbers
        self._written = len(self)

    def append(self, entry: AbortedTxn) -> None:
        """Raises OSError. On a full disk the entry stays in memory until there is room: its marker is in the log."""
        if self._numbers:
            self._numbers.extend(entry)
        else:
            self._numbers = array("q", entry)
        try:
            self.write_behind()
        except OSError as error:
            if not is_shortage(error):
                raise
            _log.warning("%s: %s; its last entries stay in memory", self._path, error)

    def write_behind(self) -> None:
        """Writes the entries that are only in memory; the file is not synced. Raises OSError."""
        count = len(self)
        if self._written < count:
            data = _encoded(self._numbers[self._written * _FIELDS :])
            self._files.write_all(self._open(), [data], self._written * _ENTRY.size)
            self._written = count

    def truncate_to(self, offset: int) -> None:
        """Forgets the transactions whose marker is at `offset` or later."""
        numbers, count = self._numbers, len(self)
        kept = bisect_left(range(count), offset, key=lambda n: numbers[n * _FIELDS + 2])
        if kept < count:
            if kept < self._written:
                self._files.truncate(self._open(), kept * _ENTRY.size)
                self._written = kept
            self._numbers = numbers[: kept * _FIELDS]

    def replace(self, entries: Sequence[AbortedTxn]) -> None:
        """These instead of all that are there. A crash leaves what was or what is to be: each says nothing wrong."""
        self.let_go()
        numbers = array("q", [number for entry in entries for number in entry])
        if entries:
            path, data = self._path, _encoded(numbers)
            if not self._files.exists(path) or self._files.read(path) != data:
                self._files.replace(path, data)
            else:
                self._open()  # it may never have been synced: the next sync takes it along
        else:
            self.reset()
        self._numbers = numbers
        self._written = len(entries)

    def reset(self) -> None:
        if self._numbers or self._files.exists(self._path):
            self._files.truncate(self._open(), 0)
        self._numbers = array("q")
        self._written = 0

    def sync(self) -> None:
        if self._handle is not None:
            self._files.sync(self._handle)

    def _open(self) -> FileHandle:
        if self._handle is None:
            self._handle = self._files.open(self._path, create=True)
        return self._handle

    def let_go(self) -> None:
        self._handle = None


def _encoded(numbers: array[int]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *numbers[at : at + _FIELDS]) for at in range(0, len(numbers), _FIELDS))
