"""The transaction index: the aborted transactions that end in a segment (Kafka's TransactionIndex and AbortedTxn).

An entry is 34 bytes, big-endian: version, producer id, first offset, last offset (of the abort marker), and the last
stable offset when the marker was appended. The file exists only if there is an entry. All entries are kept in memory,
as four numbers each, so that a network thread can search them without waiting for the disk.
"""

from __future__ import annotations

import logging
import os
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from kafkapy.log import names
from kafkapy.log.failures import is_shortage
from kafkapy.log.indexes.index_file import Place
from kafkapy.log.storage.files import Files
from kafkapy.record.file_region import FileHandle

_ENTRY = Struct(">hqqqq")
_VERSION = 0
_FIELDS = 4
_NONE = array("q")  # shared by the many indexes without an entry, so nothing is ever appended to it

_log = logging.getLogger(__name__)


class TxnIndexError(ValueError):
    """Raised when the content of a .txnindex file is invalid. The segment must be scanned to rebuild the index."""


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The transaction index of a segment: one AbortedTxn for each transaction whose abort marker is in the segment.

    Only one thread at a time may write; readers take no lock. Entries are in the order of their abort markers, that is,
    sorted by `last_offset`.
    """

    __slots__ = ("_changed", "_created", "_files", "_numbers", "_written", "base_offset", "place")

    def __init__(self, files: Files, place: Place, base_offset: int) -> None:
        self._files = files
        self.place = place
        self._changed = False  # since the last sync
        self._created = False  # the file may be new, so its name has to be synced too
        self.base_offset = base_offset
        # the fields of AbortedTxn, entry after entry; extended or replaced, never changed in place
        self._numbers = _NONE
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
        """Add to `found` this segment's aborted transactions that overlap the offsets from `offset` to before `upper`.

        A transaction is added as (producer id, first offset). Return True if later segments cannot have more such
        transactions. Source: Kafka's TransactionIndex.collectAbortedTxns.
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
        """Read all entries from the .txnindex file, which must exist.

        Raises OSError, and TxnIndexError for invalid content.
        """
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
        """Add an entry and write it to the file. Raises OSError.

        On a full disk the entry stays in memory until a later write succeeds, because its abort marker is already in
        the log.
        """
        if self._numbers:
            self._numbers.extend(array("q", entry))  # in one step: a MemoryError leaves no part of the entry
        else:
            self._numbers = array("q", entry)
        try:
            self.write_behind()
        except OSError as error:
            if not is_shortage(error):
                raise
            _log.warning("%s: %s; its last entries stay in memory", self._path, error)

    def write_behind(self) -> None:
        """Write the entries that are only in memory. Does not sync the file. Raises OSError."""
        count = len(self)
        if self._written < count:
            data = _encoded(self._numbers[self._written * _FIELDS :])
            self._created = self._created or not self._written
            self._files.write_all(self._opened(create=True), [data], self._written * _ENTRY.size)
            self._changed = True
            self._written = count

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose abort marker is at `offset` or later. Raises OSError."""
        numbers, count = self._numbers, len(self)
        kept = bisect_left(range(count), offset, key=lambda n: numbers[n * _FIELDS + 2])
        if kept < count:
            if kept < self._written:
                self._files.truncate(self._opened(), kept * _ENTRY.size)
                self._changed = True
                self._written = kept
            self._numbers = numbers[: kept * _FIELDS]

    def replace(self, entries: Sequence[AbortedTxn]) -> None:
        """Replace all entries by `entries`, in memory and in the file. Raises OSError.

        After a crash the file has either the old or the new entries, and both are valid.
        """
        numbers = array("q", [number for entry in entries for number in entry])
        if entries:
            path, data = self._path, _encoded(numbers)
            if not self._files.exists(path) or self._files.read(path) != data:
                self._files.replace(path, data)
            else:
                self._changed = True  # the file may never have been synced
        else:
            self.reset()
        self._numbers = numbers
        self._written = len(entries)

    def reset(self) -> None:
        """Remove all entries, in memory and from the file if there is one. Raises OSError."""
        if self._files.exists(self._path):
            self._files.truncate(self._opened(), 0)
            self._changed = True
        self._numbers = array("q")
        self._written = 0

    def mark_unsynced(self) -> None:
        """Have the next `sync` sync the file, if there is one, because a killed process may not have synced it."""
        self._changed = self._files.exists(self._path)

    def sync(self) -> None:
        """Sync the file if it has changed and, if it is new, its directory, which no flush of the records would sync.

        Raises OSError.
        """
        if self._changed:
            self._changed = False  # cleared first: a write during the sync must set it again for the next sync
            try:
                self._files.sync(self._opened())
                if self._created:
                    self._files.sync_dir(os.path.dirname(self._path))
                    self._created = False
            except BaseException:
                self._changed = True
                raise

    def _opened(self, *, create: bool = False) -> FileHandle:
        """Return the file, opened for one operation. With `create`, create it if it does not exist."""
        return self._files.open(self._path, create=create)


def _encoded(numbers: array[int]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *numbers[at : at + _FIELDS]) for at in range(0, len(numbers), _FIELDS))
