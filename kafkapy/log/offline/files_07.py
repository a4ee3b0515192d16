"""Directories and segment files of Kafka 0.7, found and walked.

A partition is a directory `topic-0` (`topic_0` in early releases) with segments named by the position in the log at
which they begin: 20 digits and `.kafka` (11 digits in early ones). There are no indexes and no checkpoints.
Source: `kafka.log.Log` and `LogManager` of Kafka 0.7.2.
"""

import os
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from kafkapy.log.offline.errors import OfflineError
from kafkapy.record.kafka07 import LENGTH, CorruptMessage, Message, read_message

SUFFIX = ".kafka"
CHUNK = 1 << 20

_NAME = re.compile(r"(?P<topic>.+?)[-_](?P<partition>\d+)", re.ASCII)


class Segment07(NamedTuple):
    """A segment file: the log position at which it begins, its size in bytes, when it was last written (ms)."""

    path: Path
    start: int
    size: int
    modified_ms: int


def is_segment_07(path: Path) -> bool:
    """Whether the name is that of a 0.7 segment: digits and `.kafka`."""
    return path.suffix == SUFFIX and path.stem.isascii() and path.stem.isdigit()


def partition_of_07(name: str) -> tuple[str, int] | None:
    """Topic and partition of a directory's name; None for one that is not named as 0.7 names partitions.

    The last dash or underscore before the number counts, so `my_topic-0` and `my-topic_0` are both found.
    """
    match = _NAME.fullmatch(name)
    return (match["topic"], int(match["partition"])) if match else None


def segments_07(directory: Path) -> list[Segment07]:
    """The segments of a partition's directory in order; empty for a directory of another Kafka."""
    found = []
    for path in directory.iterdir():
        if is_segment_07(path):
            stat = path.stat()
            found.append(Segment07(path, int(path.stem), stat.st_size, stat.st_mtime_ns // 1_000_000))
    return sorted(found, key=lambda segment: (segment.start, segment.path.name))


def gap_in(segments: Iterable[Segment07]) -> str | None:
    """What is wrong where two segments do not follow on each other: a part of the log is missing, or there twice."""
    for one, following in pairwise(segments):
        end = one.start + one.size
        if end != following.start:
            return f"{one.path.name} ends at {end}, but the next segment is {following.path.name}"
    return None


class Reader07:
    """Walks the stored messages of one segment file, as far as its size was when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size
        self._chunk = b""
        self._chunk_start = 0

    def __enter__(self) -> "Reader07":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    def messages(self, position: int = 0) -> Iterator[Message]:
        """Whole messages from `position` on, their `position` being that in the file; ends before one that is cut.

        A payload is valid until the next message is asked for. CRCs are not checked. Raises CorruptMessage, with the
        position in the file, where the bytes cannot be a message.
        """
        while (message := self._read(position)) is not None:
            yield message
            position = message.end

    def _read(self, position: int) -> Message | None:
        message = self._at(position)
        if message is None and position < self.size:
            self._load(position, CHUNK)
            message = self._at(position)
            if message is None and len(self._chunk) >= LENGTH:  # longer than a chunk: read whole
                length = int.from_bytes(self._chunk[:LENGTH], "big")
                if length <= self.size - position - LENGTH:
                    self._load(position, LENGTH + length)
                    message = self._at(position)
        return message

    def _at(self, position: int) -> Message | None:
        """The message, if the chunk holds all of it."""
        if position < self._chunk_start:
            return None
        try:
            found = read_message(self._chunk, position - self._chunk_start)
        except CorruptMessage as error:
            raise CorruptMessage(position, str(error)) from None
        return None if found is None else found._replace(position=position)

    def _load(self, position: int, size: int) -> None:
        parts = []
        wanted = min(size, self.size - position)
        at = position
        while wanted > 0 and (part := os.pread(self._fd, wanted, at)):
            parts.append(part)
            wanted -= len(part)
            at += len(part)
        self._chunk = b"".join(parts)
        self._chunk_start = position
        if wanted > 0:
            raise OfflineError(f"{self.path} became shorter while it was being read (at position {at}).")
