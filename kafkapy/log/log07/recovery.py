"""Open the log of a Kafka 0.7 partition, and repair what a crash has left in its newest segment."""

from __future__ import annotations

import itertools
import logging
import os
import zlib

from kafkapy._ext import sets_07
from kafkapy.log.environment import Environment
from kafkapy.log.log07.log import Log07
from kafkapy.log.log07.segment import DIGITS, SUFFIX, Segment, segment_name
from kafkapy.log.log07.settings import Settings
from kafkapy.log.names import MAX_OFFSET
from kafkapy.log.storage.files import Files
from kafkapy.record.file_region import FileHandle
from kafkapy.record.kafka07 import HEADERS, LENGTH

_log = logging.getLogger(__name__)

_CHUNK = 4 << 20


class UnusableLog(Exception):
    """Raised for a log with a gap or an overlap between its segments, where a part of it was lost."""


def create_log(directory: str, topic: str, partition: int, settings: Settings, env: Environment) -> Log07:
    """Create the directory of a new, empty log. Raises OSError."""
    files = env.files
    path = os.path.join(directory, segment_name(0))
    files.make_dir(directory)
    files.open(path, create=True)
    files.sync_dir(directory)
    files.sync_dir(env.log_dir)
    return Log07(directory, topic, partition, [Segment(files, path, 0)], settings, env)


def open_log(
    directory: str, topic: str, partition: int, settings: Settings, env: Environment, *, recover: bool
) -> Log07:
    """Open the log in `directory`. With `recover`, check the newest segment and cut what is damaged at its end.

    Raises UnusableLog, and OSError.
    """
    segments, digits = _find(directory, env)
    if not segments:
        return create_log(directory, topic, partition, settings, env)
    for one, following in itertools.pairwise(segments):
        if one.end != following.start:
            raise UnusableLog(
                f"{one.path} ends at {one.end}, but the next segment begins at {following.start}: a part of this log "
                "was lost, or files of another log were put there"
            )
    if recover:
        _recover(segments[-1], env)
        env.files.sync_dir(directory)  # a killed process may have created or deleted segments without a sync
    return Log07(directory, topic, partition, segments, settings, env, digits)


def _find(directory: str, env: Environment) -> tuple[list[Segment], int]:
    """Return the segments in the directory, in order, and the number of digits in the name of the last one."""
    found = []
    digits = {}
    for entry in env.files.entries(directory, sizes_of=(SUFFIX,)):
        stem = entry.name.removesuffix(SUFFIX)
        if entry.is_dir or stem == entry.name or not (stem.isascii() and stem.isdigit()) or int(stem) > MAX_OFFSET:
            continue
        found.append(Segment(env.files, os.path.join(directory, entry.name), int(stem), entry.size))
        digits[int(stem)] = len(stem)
    found.sort(key=lambda segment: segment.start)
    return found, digits[found[-1].start] if found else DIGITS


def _recover(segment: Segment, env: Environment) -> None:
    """Cut the segment where the first message is incomplete or invalid, and make the rest durable."""
    if not segment.size:
        return
    files, file = env.files, segment.handle()
    good, why = _valid_part(files, file, segment.size)
    if good < segment.size:
        _log.warning("%s: cut at %d of %d bytes: %s", segment.path, good, segment.size, why)
        files.truncate(file, good)
    files.sync(file)
    segment.size = segment.flushed = good


def _valid_part(files: Files, file: FileHandle, size: int) -> tuple[int, str]:
    """Return (where the last valid message of the file ends, what is wrong with the message there)."""
    good = 0
    while good < size:
        data = _read(files, file, good, min(_CHUNK, size - good))
        end, _, needed, fault = sets_07.scan(data)
        good += end
        if fault is not None:
            return good, fault
        if needed > size - good or (not end and needed <= len(data)):
            return good, "an incomplete message"
        if needed > _CHUNK:
            if not _is_valid(files, file, good, needed):
                return good, "a long message that is invalid"
            good += needed
    return good, ""


def _is_valid(files: Files, file: FileHandle, position: int, size: int) -> bool:
    """Return True if the message at `position` is valid; its `size` in bytes includes its length field. The message is
    read in pieces, since a damaged length may be huge."""
    magic = files.pread(file, 1, position + LENGTH)[0]
    if magic >= len(HEADERS):
        return False
    payload = position + LENGTH + HEADERS[magic]
    crc = 0
    for at in range(payload, position + size, _CHUNK):
        crc = zlib.crc32(_read(files, file, at, min(_CHUNK, position + size - at)), crc)
    return crc == int.from_bytes(files.pread(file, 4, payload - 4), "big")


def _read(files: Files, file: FileHandle, position: int, size: int) -> memoryview:
    """Return the bytes at `position`, fewer than `size` at the end of the file."""
    data = memoryview(bytearray(size))
    filled = 0
    while filled < size and (more := files.read_into(file, data[filled:], position + filled)):
        filled += more
    return data[:filled]
