"""One read of the log for all consumers that wait for the same records.

A record goes to every consumer that waits at its offset, and the consumers of one partition get it one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy._ext.residency import read_now
from kafkapy.record.file_region import FileRegion

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog
    from kafkapy.replica.fetch import FetchRead

MOST_BYTES = 4 << 10  # records up to this size are kept; larger ones are sent from the file


class KeptRecords(bytes):
    """Records in memory, with the attribute `length` that all kinds of records in a FetchRead have."""

    __slots__ = ()

    @property
    def length(self) -> int:
        return len(self)


class SharedRead:
    """The last small result of reading a partition that had records to return.

    The result is valid for later reads while the request, the partition and the fields of the log in the key are the
    same. `log.end` is a new tuple after each append and each truncation. The records of a result are in memory: a file
    region would keep a deleted file open. The log of the last result stays in memory until another result replaces it.
    Any thread may use it; each replaces the results of the others.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[Any, tuple[Any, ...], FetchRead | None] | None = None

    def find(self, log: PartitionLog, key: tuple[Any, ...]) -> FetchRead | None:
        """Return the last result if it is that of `key`, and the log still ends where it did."""
        last = self._last
        return last[2] if last is not None and last[0] is log.end and last[1] == key else None

    def keep(self, end: Any, key: tuple[Any, ...], read: FetchRead) -> None:
        """Keep the result of a read if it is small and in memory, from the second read for `key` on: many reads are
        never repeated. `end` is `log.end` before the read."""
        last, region = self._last, read.records
        if type(region) is not FileRegion or not 0 < region.length <= MOST_BYTES:
            return  # a read without records must not replace the result of one that had some
        if last is None or last[0] is not end or last[1] != key:
            self._last = end, key, None
        else:
            kept = bytearray(region.length)
            try:
                got = read_now(region.handle.fd, kept, 0, region.length, region.position)
            except OSError:
                return  # sending the region reports the error
            if got == region.length and not region.is_cut:
                read.records = KeptRecords(kept)
                self._last = end, key, read
