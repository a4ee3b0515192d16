"""Checks index entries against the log, and reports entries with which a search would miss records.

The rules hold for the indexes of every Kafka since 0.8. An entry of an offset index has the last offset of an append
(before 0.11 the first offset), and the position where the append begins. An entry of a time index has the largest
timestamp so far and its offset: the offset of a record, or the last offset of its batch.
"""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import Struct

from kafkapy._ext.segment_check import Checker
from kafkapy.log.offline.index_files import OFFSET_ENTRY, TIME_ENTRY
from kafkapy.tools.log.verify.report import Report

_AT_POSITION = Struct("=qqqqq")
_AT_OFFSET = Struct("=qqqqqq")


def _content(path: Path) -> bytes:
    """Return the content of the file. A broker that rolls a segment truncates its index, perhaps during the read; the
    file is then read again."""
    data = path.read_bytes()
    return data if len(data) == path.stat().st_size else path.read_bytes()


class IndexCheck:
    """Checks the two indexes of a segment. Pass `questions` to the Checker that reads the log, and call `compare` when
    it has read the log."""

    def __init__(self, log: Path, base_offset: int, report: Report) -> None:
        self._base = base_offset
        self._report = report
        self._offset_path = log.with_suffix(".index")
        self._time_path = log.with_suffix(".timeindex")
        self._positions: list[tuple[int, int]] = []  # (position, offset)
        self._times: list[tuple[int, int]] = []  # (offset, timestamp)
        if self._offset_path.exists():
            self._read_offset_index()
        if self._time_path.exists():
            self._read_time_index()

    @property
    def questions(self) -> tuple[bytes, bytes]:
        """The positions in the offset index and the offsets in the time index, in the form that Checker takes."""
        return (
            array("q", [position for position, _ in self._positions]).tobytes(),
            array("q", [offset for offset, _ in self._times]).tobytes(),
        )

    def compare(self, checker: Checker) -> None:
        """Compare the index entries with the batches that the Checker has found in the log, and report differences."""
        self._compare_positions(checker)
        self._compare_times(checker)

    def _read_offset_index(self) -> None:
        path = self._offset_path
        before_offset = before_position = -1
        for number, (relative, position) in enumerate(self._entries(path, OFFSET_ENTRY)):
            at = number * OFFSET_ENTRY.size
            offset = self._base + relative
            if relative < 0 or position < 0:
                self._wrong(path, at, offset, f"has relative offset {relative} and position {position}")
            elif offset <= before_offset or position <= before_position:
                self._wrong(
                    path,
                    at,
                    offset,
                    f"(offset {offset}, position {position}) does not come after the previous one "
                    f"(offset {before_offset}, position {before_position})",
                )
            else:
                self._positions.append((position, offset))
                before_offset, before_position = offset, position

    def _read_time_index(self) -> None:
        path = self._time_path
        before_time, before_offset = -1, -1
        for number, (timestamp, relative) in enumerate(self._entries(path, TIME_ENTRY)):
            at = number * TIME_ENTRY.size
            offset = self._base + relative
            if relative < 0:
                self._wrong(path, at, offset, f"has relative offset {relative}")
            elif timestamp <= before_time or offset < before_offset:
                self._wrong(
                    path,
                    at,
                    offset,
                    f"(timestamp {timestamp}, offset {offset}) does not come after the previous one "
                    f"(timestamp {before_time}, offset {before_offset})",
                )
            else:
                self._times.append((offset, timestamp))
                before_time, before_offset = timestamp, offset

    def _entries(self, path: Path, layout: Struct) -> Iterable[Sequence[int]]:
        """Yield the entries of an index that were written, and report invalid content. The index that a broker appends
        to is preallocated, so it ends in zeros."""
        data, size = _content(path), layout.size
        if len(data) % size:
            self._report.add(
                path,
                f"has {len(data)} bytes, which are not whole entries of {size} bytes",
                position=len(data) - len(data) % size,
            )
        # A file of one entry may be zeros: then the entry was written, because the file has been trimmed.
        written = len(data.rstrip(b"\0")) if len(data) != size else size
        entries = data[: -(-written // size) * size]
        self._report.checked(path, len(entries))
        zeros = bytes(size)
        for at in range(0, len(entries) - size + 1, size):
            entry = entries[at : at + size]
            if entry == zeros and at > 0:
                self._report.add(path, f"has entries after an entry of zeros at position {at}", position=at)
                return
            yield layout.unpack(entry)

    def _compare_positions(self, checker: Checker) -> None:
        path = self._offset_path
        for (position, offset), answer in zip(
            self._positions, _AT_POSITION.iter_unpack(checker.at_positions()), strict=True
        ):
            _, before, base, last, found = answer
            if found != 1:
                self._wrong(path, None, offset, f"for offset {offset} points to position {position}, where no batch is")
            elif offset <= before:
                self._wrong(
                    path,
                    None,
                    offset,
                    f"for offset {offset} points to position {position}, but that offset lies before it: "
                    f"the batches there reach up to {before}",
                )
            elif offset >= checker.next_offset or (base < last and offset < base):
                self._wrong(
                    path,
                    None,
                    offset,
                    f"for offset {offset} points to position {position}, where a batch has offsets {base} to {last}",
                )

    def _compare_times(self, checker: Checker) -> None:
        path = self._time_path
        for (offset, timestamp), answer in zip(self._times, _AT_OFFSET.iter_unpack(checker.at_offsets()), strict=True):
            _, before, base, last, largest, magic = answer
            entry = f"for timestamp {timestamp} names offset {offset}"
            if magic < 0:
                self._wrong(path, None, offset, f"{entry}, but the segment ends before it")
            elif magic == 0:
                continue  # the messages have no timestamps: a broker of 0.10 indexed the time of the produce request
            elif before > timestamp:
                self._wrong(path, None, offset, f"{entry}, but a batch before it has timestamp {before}")
            elif base < last and offset < base:
                self._wrong(path, None, offset, f"{entry}, which no batch has: one begins at {base}")
            elif largest != timestamp:
                self._wrong(path, None, offset, f"{entry}, but the largest timestamp of its batch is {largest}")

    def _wrong(self, path: Path, position: int | None, offset: int, what: str) -> None:
        where = "" if position is None else f"at position {position} "
        self._report.add(path, f"the entry {where}{what}", position=position, offset=offset)
