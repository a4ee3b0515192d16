"""Find and read the directories and segment files of Kafka 0.7.

A partition is a directory `topic-0` (`topic_0` in early releases). A segment is named by the position in the log at
which it begins: 20 digits and `.kafka` (11 digits in early releases). There are no indexes and no checkpoints. Source:
`kafka.log.Log` and `LogManager` of Kafka 0.7.2.
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
    """A segment file of Kafka 0.7: the log position at which it begins, its size in bytes, and its modification time
    (ms).
    """

    path: Path
    start: int
    size: int
    modified_ms: int


def is_segment_07(path: Path) -> bool:
    """Return True if the file is named like a segment of Kafka 0.7: digits and `.kafka`."""
    return path.suffix == SUFFIX and path.stem.isascii() and path.stem.isdigit()


def partition_of_07(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) for a directory name, None if the directory is not named like a partition of Kafka 0.7.

    The last dash or underscore before the number counts, so `my_topic-0` and `my-topic_0` are both found.
    """
    match = _NAME.fullmatch(name)
    return (match["topic"], int(match["partition"])) if match else None


def segments_07(directory: Path) -> list[Segment07]:
    """Return the Kafka 0.7 segments in a partition's directory, ordered by log position; an empty list if there are
    none.

    A broker may be using the directory, so the size of the newest segment is read first. The older segments no longer
    grow then, and a roll in between does not look like a gap.
    """
    paths = [path for path in directory.iterdir() if is_segment_07(path)]
    found = []
    for path in sorted(paths, key=lambda path: (int(path.stem), path.name), reverse=True):
        try:
            stat = path.stat()
        except FileNotFoundError:  # deleted since the listing
            continue
        found.append(Segment07(path, int(path.stem), stat.st_size, stat.st_mtime_ns // 1_000_000))
    return found[::-1]


def gap_in(segments: Iterable[Segment07]) -> str | None:
    """Return an error text if two consecutive segments are not adjacent, else None.

    In such a gap a part of the log is missing, or the segments overlap.
    """
    for one, following in pairwise(segments):
        end = one.start + one.size
        if end != following.start:
            return f"{one.path.name} ends at {end}, but the next segment is {following.path.name}"
    return None


class Reader07:
    """Reads the messages of one segment file of Kafka 0.7, up to the size that the file had when it was opened."""

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
        """Yield the whole messages from `position` on. `position` of a message is its position in the file.

        Ends before an incomplete message at the end of the file. A payload is valid until the next message is
        requested. CRCs are not checked. Raises CorruptMessage, with the position in the file, if the bytes cannot be a
        message.
        """
        while (message := self._read(position)) is not None:
            yield message
            position = message.end

    def _read(self, position: int) -> Message | None:
        message = self._at(position)
        if message is None and position < self.size:
            self._load(position, CHUNK)
            message = self._at(position)
            if message is None and len(self._chunk) >= LENGTH:  # the message is longer than a chunk, and is read whole
                length = int.from_bytes(self._chunk[:LENGTH], "big")
                if length <= self.size - position - LENGTH:
                    self._load(position, LENGTH + length)
                    message = self._at(position)
        return message

    def _at(self, position: int) -> Message | None:
        """Return the message at `position`, None if the chunk in memory does not contain the whole message."""
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
