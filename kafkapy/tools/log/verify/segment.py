"""Checks one .log file (every checksum, every record, the order of offsets) and its index files."""

from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from kafkapy._ext.batch import CorruptBatch
from kafkapy._ext.crc32 import crc32
from kafkapy._ext.crc32c import crc32c
from kafkapy._ext.segment_check import Checker, check_packed
from kafkapy.record.batch import payload_of
from kafkapy.record.legacy import read_entry
from kafkapy.tools.log.verify.indexes import IndexCheck
from kafkapy.tools.log.verify.report import Report
from kafkapy.tools.log.verify.windows import WINDOW, Windows

# A larger batch is more likely a damaged length field than a real batch: its CRC is checked before memory is allocated.
LARGE = 32 << 20

NO_EPOCH = -1  # in batches written by tools, or by followers of brokers without epochs

_PACKED = Struct("=qqq")
_RUN = Struct("=qqq")


class EpochRun(NamedTuple):
    """The offset range of consecutive batches with the same leader epoch."""

    epoch: int
    first_offset: int
    last_offset: int


class CheckedSegment(NamedTuple):
    """The result of checking a segment. `next_offset` is the offset after the last batch, or the base offset if there
    are no batches.

    `is_valid`: no problems were found. `readable`: the check reached the end of the file. `grown`: a broker has written
    to the file since it was opened, so the segment's other files may cover more of the log than was read.
    """

    path: Path
    base_offset: int
    first_offset: int
    next_offset: int
    is_valid: bool
    readable: bool
    grown: bool
    epochs: list[EpochRun]


# Called with the producer fields of a part of the file (Checker.take_produced), and a function to read that part.
Follow = Callable[[bytes, Callable[[int, int], bytes]], None]


def check_segment(
    path: Path,
    base_offset: int,
    report: Report,
    *,
    indexes: bool = True,
    expected: int = -1,
    follow: Follow | None = None,
) -> CheckedSegment:
    """Check a segment and add problems to the report. The check stops at bytes that cannot be skipped. Raises OSError.

    `expected` is the offset at which the segment should begin, -1 if it is not known. `follow` is called with the
    producer fields of each part of the file.
    """
    index = IndexCheck(path, base_offset, report) if indexes else None
    checker = Checker(base_offset, *(index.questions if index else (b"", b"")), expected)
    before = report.problems
    with Windows(path) as file:
        end = _walk(path, file, checker, report, follow)
        grown = file.has_grown()
        if end < file.size and not checker.stopped and not grown:
            report.add(
                path,
                f"{file.size - end} bytes at position {end} are no whole batch",
                position=end,
                offset=checker.next_offset,
            )
        report.read(file.size - end)
    report.files += 1
    report.batches += checker.batches
    report.records += checker.records
    is_valid = report.problems == before
    epochs = [EpochRun(*fields) for fields in _RUN.iter_unpack(checker.take_epochs())]
    for run in epochs:
        if run.epoch < NO_EPOCH:
            report.add(
                path,
                f"has batches of leader epoch {run.epoch} from offset {run.first_offset} on",
                offset=run.first_offset,
            )
    # An index cannot be compared with a damaged log.
    if index is not None and is_valid:
        index.compare(checker)
    return CheckedSegment(
        path,
        base_offset,
        checker.first_offset,
        checker.next_offset,
        is_valid,
        not checker.stopped,
        grown,
        epochs,
    )


def _walk(path: Path, file: Windows, checker: Checker, report: Report, follow: Follow | None) -> int:
    """Check all batches of a segment. Return the position after the last batch that was checked, or the file's size if
    the rest cannot be read."""
    position = least = 0
    while position < file.size and not checker.stopped:
        window = file.at(position, least)
        end = checker.feed(window, position)
        for at, offset, sentence in checker.take_troubles():
            report.add(path, _sentence_of(at, offset, sentence), position=at, offset=None if offset < 0 else offset)
        _unpack(path, window, position, checker, report)
        produced = checker.take_produced()
        if produced and follow is not None:
            start = position

            def read(at: int, size: int, window: memoryview = window, start: int = start) -> bytes:
                return bytes(window[at - start : at - start + size])

            follow(produced, read)
        report.read(end - position)
        least = 0
        if end == position:
            if checker.wanted > file.size - position:
                return position
            least = checker.wanted
            if least <= len(window):  # the checker's list of problems was full; it has been emptied above
                continue
            if least > LARGE and not _crc_is_right(file, position, least):
                report.add(
                    path,
                    f"a batch of {least} bytes is said to begin at position {position}, and its CRC is wrong: the rest "
                    "of the file cannot be read",
                    position=position,
                    offset=checker.next_offset,
                )
                return file.size
        position = end
    return position


def _sentence_of(position: int, offset: int, sentence: str) -> str:
    return f"the batch at position {position}{f' (offset {offset})' if offset >= 0 else ''} has {sentence}"


def _unpack(path: Path, window: memoryview, start: int, checker: Checker, report: Report) -> None:
    for position, size, least in _PACKED.iter_unpack(checker.take_packed()):
        entry = window[position - start : position - start + size]
        header = read_entry(entry)
        offset = header.last_offset
        try:
            payload = payload_of(entry, header)
        except ValueError as error:
            report.add(
                path, _sentence_of(position, offset, f"records that cannot be unpacked: {error}"), position=position
            )
            continue
        count, wrong = check_packed(entry, payload, least)
        report.records += count
        if wrong is not None:
            report.add(path, _sentence_of(position, offset, wrong), position=position, offset=offset)


def _crc_is_right(file: Windows, position: int, size: int) -> bool:
    """Return True if the CRC of the batch at `position` is correct. The batch is read in pieces, because it is too
    large to be read into memory at once."""
    head = bytes(file.at(position, WINDOW)[:61])
    try:
        header = read_entry(head)
    except CorruptBatch:
        return False
    crc, total = (crc32c if header.magic == 2 else crc32), 0
    for piece in file.pieces(position + (21 if header.magic == 2 else 16), position + size):
        total = crc(piece, total)
    return total == header.crc
