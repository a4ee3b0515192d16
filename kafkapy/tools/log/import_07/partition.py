"""Reads a partition of Kafka 0.7: the messages of its segments in order, and where they are damaged."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.offline.files_07 import Reader07, Segment07, gap_in, partition_of_07, segments_07
from kafkapy.record.kafka07 import CorruptMessage, payloads_of
from kafkapy.tools.common.errors import ToolError

_SHOW_EVERY = 1 << 18


class Stored07(NamedTuple):
    """A message stored by Kafka 0.7: its offset, the offset after it, its codec, the payloads in it, and as timestamp
    the modification time of its file (ms)."""

    offset: int
    next_offset: int
    codec: int
    payloads: list[bytes]
    timestamp: int


class Damage07(NamedTuple):
    """Unreadable bytes in a segment. `skipped` is the number of bytes that are left out because of them; `is_torn` is
    True if the file ends inside a message."""

    path: Path
    position: int
    skipped: int
    reason: str
    is_torn: bool = False

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"


class Log07:
    """The log of one partition of Kafka 0.7. The constructor raises ToolError if the directory is no such partition, or
    if a part of the log is missing."""

    def __init__(self, directory: Path) -> None:
        name = partition_of_07(directory.name)
        self.segments = segments_07(directory)
        if name is None or not self.segments:
            raise ToolError(f"{directory} is no partition of Kafka 0.7: those are named topic-0 and hold .kafka files.")
        gap = gap_in(self.segments)
        if gap is not None:
            raise ToolError(f"{directory} is not whole: {gap}.")
        self.directory = directory
        self.topic, self.partition = name

    @property
    def start(self) -> int:
        """The offset of the first message in the log."""
        return self.segments[0].start

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def times_ascend(self) -> bool:
        """True if the modification times of the segments ascend. If not, the files were copied without their times."""
        times = [segment.modified_ms for segment in self.segments]
        return times == sorted(times)

    def messages(
        self, damaged: Callable[[Damage07], None], show: Callable[[int], None] = lambda done: None
    ) -> Iterator[Stored07]:
        """Yield every readable message. `damaged` is called for unreadable bytes, and may raise.

        A message's timestamp is the modification time of its file; timestamps never decrease. `show` is called with the
        number of bytes done.
        """
        timestamp = 0
        for segment in self.segments:
            timestamp = max(timestamp, segment.modified_ms)
            shown = segment.start
            for stored in _in_segment(segment, timestamp, damaged):
                yield stored
                if stored.next_offset - shown > _SHOW_EVERY:
                    shown = stored.next_offset
                    show(shown - self.start)


def _in_segment(segment: Segment07, timestamp: int, damaged: Callable[[Damage07], None]) -> Iterator[Stored07]:
    """Yield the messages of a segment. A message with invalid content is skipped; after an invalid length, the rest of
    the segment is skipped. `damaged` is called for each."""
    start, end = segment.start, 0
    reason = None
    with Reader07(segment.path) as reader:
        try:
            for message in reader.messages():
                end = message.end
                try:
                    payloads = payloads_of(message)
                except CorruptMessage as error:
                    damaged(Damage07(segment.path, message.position, message.size, str(error)))
                    continue
                yield Stored07(start + message.position, start + end, message.codec, payloads, timestamp)
        except CorruptMessage as error:
            reason = str(error)
    if end < segment.size:
        left = segment.size - end
        torn = "the file ends in the middle of a message"
        damaged(Damage07(segment.path, end, left, reason or torn, is_torn=reason is None))
