"""A segment file of a Kafka 0.7 log."""

from __future__ import annotations

from kafkapy.log.storage.files import Files
from kafkapy.log.storage.named_file import NamedFile

SUFFIX = ".kafka"
DIGITS = 20  # of a position in a file name; early releases had 11


def segment_name(start: int, digits: int = DIGITS) -> str:
    """Return the file name of the segment that begins at `start`, so that names sort like positions."""
    return f"{start:0{digits}d}{SUFFIX}"


class Segment(NamedFile):
    """One segment file. `start` is the position in the log at which it begins, `size` its size in bytes.

    Readers see only the first `flushed` bytes, which survive a power cut. `first_append_ms` is the time of the first
    append since the segment was created or opened, None if there was none. The log changes these under its lock.
    """

    __slots__ = ("first_append_ms", "flushed", "path", "size", "start")

    def __init__(self, files: Files, path: str, start: int, size: int = 0) -> None:
        super().__init__(files)
        self.path = path
        self.start = start
        self.size = self.flushed = size
        self.first_append_ms: int | None = None

    def _name(self) -> str:
        return self.path

    @property
    def base_offset(self) -> int:
        """The start of the segment, by the name that retention policies know."""
        return self.start

    @property
    def end(self) -> int:
        """The position in the log after the last flushed byte of this segment."""
        return self.start + self.flushed

    def modified_ms(self) -> int:
        """Return the modification time of the file in milliseconds. Raises OSError."""
        return self.files.modified_ms(self.handle())

    def largest_timestamp(self) -> int:
        """Return the time by which retention judges the segment. Messages have none, so this is the file's."""
        return self.modified_ms()

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, start={self.start}, size={self.size}, flushed={self.flushed})"
