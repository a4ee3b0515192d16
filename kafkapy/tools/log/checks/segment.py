"""One .log file: every checksum, every record, the order of offsets; with the indexes beside it."""

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
from kafkapy.tools.log.checks.indexes import IndexCheck
from kafkapy.tools.log.checks.report import Report
from kafkapy.tools.log.checks.windows import WINDOW, Windows

# Batches above this are rare, lengths above this in a damaged file are not: the checksum is made before so much memory
# is taken.
LARGE = 32 << 20

NO_EPOCH = -1  # of batches that a tool wrote, or a follower of a broker that knew no epochs

_PACKED = Struct("=qqq")
_RUN = Struct("=qqq")


class EpochRun(NamedTuple):
    """Batches of one leader epoch that follow on each other."""

    epoch: int
    first_offset: int
    last_offset: int


class CheckedSegment(NamedTuple):
    """`next_offset`: behind the last batch, the base offset if there is none. `sound`: nothing is wrong with it.

    `grown`: somebody writes to it; files beside it may know more than was read of it.
    """

    path: Path
    base_offset: int
    first_offset: int
    next_offset: int
    sound: bool
    readable: bool
    grown: bool
    epochs: list[EpochRun]


# Is handed what producers wrote in a part of the file (Checker.take_produced), and a way to read of it.
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
    """What is wrong goes into the report; the walk ends where nothing more can be read. Raises OSError.

    `expected`: where the log went on in the segment before, -1 where that is not known.
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
    sound = report.problems == before
    epochs = [EpochRun(*fields) for fields in _RUN.iter_unpack(checker.take_epochs())]
    for run in epochs:
        if run.epoch < NO_EPOCH:
            report.add(
                path,
                f"has batches of leader epoch {run.epoch} from offset {run.first_offset} on",
                offset=run.first_offset,
            )
    # An index cannot be held against a log that is itself damaged.
    if index is not None and sound:
        index.compare(checker)
    return CheckedSegment(
        path,
        base_offset,
        checker.first_offset,
        checker.next_offset,
        sound,
        not checker.stopped,
        grown,
        epochs,
    )


def _walk(path: Path, file: Windows, checker: Checker, report: Report, follow: Follow | None) -> int:
    """Returns the position behind the last batch."""
    position = least = 0
    while position < file.size and not checker.stopped:
        window = file.at(position, least)
        end = checker.feed(window, position)
        for at, offset, sentence in checker.take_troubles():
            report.add(path, _said(at, offset, sentence), position=at, offset=None if offset < 0 else offset)
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
            if least <= len(window):  # the troubles that are remembered were too many: taken now
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


def _said(position: int, offset: int, sentence: str) -> str:
    return f"the batch at position {position}{f' (offset {offset})' if offset >= 0 else ''} has {sentence}"


def _unpack(path: Path, window: memoryview, start: int, checker: Checker, report: Report) -> None:
    for position, size, least in _PACKED.iter_unpack(checker.take_packed()):
        entry = window[position - start : position - start + size]
        header = read_entry(entry)
        offset = header.last_offset
        try:
            payload = payload_of(entry, header)
        except ValueError as error:
            report.add(path, _said(position, offset, f"records that cannot be unpacked: {error}"), position=position)
            continue
        count, wrong = check_packed(entry, payload, least)
        report.records += count
        if wrong is not None:
            report.add(path, _said(position, offset, wrong), position=position, offset=offset)


def _crc_is_right(file: Windows, position: int, size: int) -> bool:
    """Of a batch that is too large for the memory that this should take."""
    head = bytes(file.at(position, WINDOW)[:61])
    try:
        header = read_entry(head)
    except CorruptBatch:
        return False
    crc, total = (crc32c if header.magic == 2 else crc32), 0
    for piece in file.pieces(position + (21 if header.magic == 2 else 16), position + size):
        total = crc(piece, total)
    return total == header.crc
