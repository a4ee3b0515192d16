"""The files of a segment: their names, descriptors and durability (the file-handling part of Kafka's LogSegment)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from kafkapy.log import names
from kafkapy.log.indexes.index_file import NOWHERE
from kafkapy.log.indexes.offset_index import OffsetIndex
from kafkapy.log.indexes.time_index import TimeIndex
from kafkapy.log.indexes.txn_index import TxnIndex
from kafkapy.log.storage.files import Files
from kafkapy.log.storage.named_file import NamedFile
from kafkapy.record.file_region import CutOff, FileHandle

_CREATING = threading.Lock()


class SegmentFiles(NamedFile):
    """The .log file of a segment and its three indexes.

    The size of the .log file is kept here and never asked of the file system.
    """

    __slots__ = (
        "_cut_off",
        "_suffix",
        "base_offset",
        "directory",
        "offset_index",
        "on_damage",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, index_bytes: int) -> None:
        super().__init__(files)
        self.directory = directory
        self.base_offset = base_offset
        self.size = 0
        self._suffix = ""
        self._cut_off: CutOff | None = None  # shared by the handles that were opened since the last truncation
        self.on_damage: Callable[[Any], object] | None = None  # called once, when an index is found to be damaged
        self.offset_index = OffsetIndex(files, self, base_offset, index_bytes)
        self.time_index = TimeIndex(files, self, base_offset, index_bytes)
        self.txn_index = TxnIndex(files, self, base_offset)

    def __repr__(self) -> str:
        return f"Segment({self.path(names.LOG)!r}, {self.size} bytes)"

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{names.file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def file_name(self) -> str:
        """The name of the .log file, without its directory."""
        return os.path.basename(self.path(names.LOG))

    def _name(self) -> str:
        return self.path(names.LOG)

    def _keep(self, handle: FileHandle) -> None:
        if self._cut_off is None:
            with _CREATING:  # two readers may open the file at the same time
                if self._cut_off is None:
                    self._cut_off = CutOff()
        handle.cut_off = self._cut_off
        super()._keep(handle)

    def truncate_file(self, size: int) -> None:
        """Cut the .log file to `size` bytes. Does not change `size`.

        Regions that reach beyond are not sent any more: what is appended next takes their place in the file. Regions
        that are made from now on have another handle, which shows that this truncation does not concern them.
        """
        if self._cut_off is not None:
            self._cut_off = self._cut_off.truncated(size)
        self.release()
        self.files.truncate(self.handle(), size)

    def pin_all(self) -> None:
        """Open the .log file, the offset index and the time index, and keep them open until `release`.

        Called before other files take their names. The transaction index is in memory and needs no descriptor.
        """
        self.pin()
        self.offset_index.pin()
        self.time_index.pin()

    def rename(self, suffix: str) -> None:
        """Replace the ending of all file names of the segment by `suffix` ("", ".swap" or ".deleted").

        A missing file is ignored.
        """
        for kind in (names.LOG, *names.INDEXES):
            old = self.path(kind)
            try:
                self.files.rename(old, old[: len(old) - len(self._suffix)] + suffix)
            except FileNotFoundError:
                continue
        self._suffix = suffix

    def delete(self) -> None:
        """Remove the segment's files.

        A reader that still has the .log file open, through a FileRegion, can continue to read it.
        """
        self.retire()
        for kind in (names.LOG, *names.INDEXES):
            self.files.unlink(self.path(kind))
        self.part()

    def part(self) -> None:
        """Break the reference cycles between the segment and its indexes, so that no garbage collection is needed.

        Called when the segment's files are no longer opened by name.
        """
        self.on_damage = None
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.place = NOWHERE

    def release(self) -> None:
        """Drop the descriptors of the segment's files. Each descriptor closes when its last reader is done with it."""
        super().release()
        self.offset_index.release()
        self.time_index.release()

    def retire(self) -> None:
        super().retire()
        self.offset_index.retire()
        self.time_index.retire()

    # --- the state of the indexes

    def damage(self) -> str | None:
        """Check all entries of the offset index and the time index.

        Return a sentence that describes the damage, None if both are valid. Raises OSError.
        """
        for index in (self.offset_index, self.time_index):
            if not index.growing and not index.check():
                return f"{os.path.basename(index.path)}: {index.damage}"
        return None

    def damaged(self) -> None:
        """Call the `on_damage` callback with this segment, but only once.

        An index calls this when a search finds damage.
        """
        on_damage, self.on_damage = self.on_damage, None
        if on_damage is not None:
            on_damage(self)

    # --- durability

    def write_behind(self) -> None:
        """Write the index entries that are only in memory to the index files. Called under the log's lock."""
        self.offset_index.write_behind()
        self.time_index.write_behind()
        self.txn_index.write_behind()

    def mark_unsynced(self) -> None:
        """Have the next sync include unchanged index files too, because a killed process may not have synced them."""
        self.offset_index.mark_unsynced()
        self.time_index.mark_unsynced()
        self.txn_index.mark_unsynced()

    def sync(self) -> None:
        """Make the records and the index entries that are in the index files durable. Raises OSError."""
        self.sync_records()
        self.sync_indexes()

    def sync_records(self) -> None:
        self.files.sync(self.handle())

    def sync_indexes(self) -> None:
        """Sync the index files.

        To include the entries that are only in memory, call `write_behind` first, under the log's lock.
        """
        self.offset_index.sync()
        self.time_index.sync()
        self.txn_index.sync()

    def set_modified_ms(self, time_ms: int) -> None:
        """Set the modification time of the .log, .index and .timeindex files, in milliseconds since the epoch."""
        for kind in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            self.files.set_modified_ms(self.path(kind), time_ms)

    def modified_ms(self) -> int:
        return self.files.modified_ms(self.handle())
