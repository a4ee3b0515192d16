"""Checkpoint files: a version line, a line with the number of entries, and one line per entry.

Source: Kafka's CheckpointFile and OffsetCheckpointFile. Files are replaced atomically, so after a crash a file has
either the old or the new content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from kafkapy.log.storage.files import Files

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"

_VERSION = 0
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_SHOWN = 60  # how many characters of an invalid line an error shows


class CheckpointError(ValueError):
    """Raised when a file is not a valid checkpoint. The message names the file and shows the invalid line."""


def format_lines(lines: Iterable[str]) -> bytes:
    """Return the content of a checkpoint file with these entry lines."""
    body = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, len(body), *body)).encode()


def parse_lines(data: bytes, path: str) -> list[str]:
    """Return the entry lines of a checkpoint file with the content `data`. `path` is for error messages.

    As in Kafka, a file that ends before its first entry counts as a checkpoint without entries. Raises CheckpointError
    if the version is unknown, a number is invalid, or the number of entries is wrong.
    """
    lines = text_lines(data)
    if not lines:
        return []
    if _number(lines[0], path) != _VERSION:
        raise CheckpointError(f"{path} has version {lines[0]}, expected {_VERSION}")
    if len(lines) == 1:
        return []
    expected, entries = _number(lines[1], path), lines[2:]
    if len(entries) != expected:
        raise CheckpointError(f"{path} announces {expected} entries and holds {len(entries)}")
    return entries


def text_lines(data: bytes) -> list[str]:
    """Return the lines of a text file, split at `\\n` and `\\r\\n` only, as Java's readers split them.

    Python's splitlines would also split at other control characters.
    """
    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def numbers(line: str, count: int, path: str) -> list[int]:
    """Return the numbers in a line. Raises CheckpointError if the line does not consist of exactly `count` numbers."""
    fields = line.split()
    if len(fields) != count:
        raise CheckpointError(f"{path} has a line that is not {count} numbers: {line[:_SHOWN]!r}")
    return [_number(field, path) for field in fields]


def _number(text: str, path: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise CheckpointError(f"{path} has {text[:_SHOWN]!r} where a number belongs")
    return int(text)


class OffsetCheckpoint:
    """A checkpoint file of a log directory whose entries are lines `TOPIC PARTITION OFFSET`."""

    def __init__(self, files: Files, log_dir: str, name: str) -> None:
        self._files = files
        self.path = os.path.join(log_dir, name)
        self.stale: set[tuple[str, int]] = set()  # removed logs that may still be in the file
        self.refused = False  # True if the last write failed because the disk is full
        self._written: bytes | None = None

    def read(self) -> dict[tuple[str, int], int]:
        """Return the offsets in the file by (topic, partition), in file order; an empty dict if there is no file.

        Raises CheckpointError, OSError.
        """
        try:
            data = self._files.read(self.path)
        except FileNotFoundError:
            return {}
        offsets = {}
        for line in parse_lines(data, self.path):
            topic, _, rest = line.partition(" ")
            partition, offset = numbers(rest, 2, self.path)
            if not topic or partition < 0 or offset < 0:
                raise CheckpointError(f"{self.path} has a line that is not TOPIC PARTITION OFFSET: {line[:_SHOWN]!r}")
            offsets[topic, partition] = offset
        return offsets

    def write(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Replace the content of the file by these offsets, by (topic, partition). Raises OSError.

        Does nothing if the content is the same as that of the last write.
        """
        data = format_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
        if data != self._written:
            self._files.replace(self.path, data)
            self._written = data
