"""Reads the last messages of a Kafka 0.7 log, and then new ones as a broker appends them, across segment rolls.

An offset is a position in the log, and the messages inside a compressed one have its offset. What is in the file may
not be flushed yet: consumers do not see that, and a crash may remove it again.
"""

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from kafkapy.log.offline.files_07 import Reader07, Segment07, segments_07
from kafkapy.log.offline.lookups import Found
from kafkapy.log.offline.places import Place
from kafkapy.record.kafka07 import CorruptMessage, Message, messages_in
from kafkapy.record.records import Record
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.tail.follow import Show


class Follower07:
    """Reads a log of Kafka 0.7 as it grows. `next_offset` is the position after the last message passed to `show`.
    `note` is called with sentences about deletion and about a log that a crash has cut."""

    def __init__(self, place: Place, note: Callable[[str], object]) -> None:
        self.place = place
        self._note = note
        newest = self._segments()[-1]
        ends = deque((message.end for message in self._messages(newest, 0)), maxlen=1)
        self.next_offset = newest.start + (ends[0] if ends else 0)

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def last(self, count: int, show: Show) -> None:
        """Call `show` with each of the last `count` messages in the log, in order. Raises ToolError, OfflineError,
        OSError."""
        found: list[Found] = []
        for segment in reversed(self._segments()) if count else ():
            # There is no index: the segment is read once for the positions, and its last messages again.
            places = (message.position for message in self._messages(segment, 0))
            positions = deque((one for one in places if segment.start + one < self.next_offset), maxlen=count)
            again = self._messages(segment, positions[0]) if positions else ()
            found[:0] = [one for message in again for one in self._records(segment, message)]
            if len(found) >= count:
                break
        for one in found[-count:]:
            show(one)

    def poll(self, show: Show) -> bool:
        """Call `show` with each new message. Return True if there may be more to read at once, without a pause. Raises
        ToolError, OfflineError, OSError."""
        segments = self._segments()
        if segments[0].start > self.next_offset:
            self._note(f"{self.place.name}: messages before offset {segments[0].start} have been deleted.")
            self.next_offset = segments[0].start
        segment = [one for one in segments if one.start <= self.next_offset][-1]
        if segment.start + segment.size < self.next_offset:
            self._note(f"{self.place.name}: the log was cut to offset {segment.start + segment.size}.")
            self.next_offset = segment.start + segment.size
        before = self.next_offset
        for message in self._messages(segment, self.next_offset - segment.start):
            for one in self._records(segment, message):
                show(one)
            self.next_offset = segment.start + message.end
        return self.next_offset > before

    def _messages(self, segment: Segment07, position: int) -> Iterator[Message]:
        try:
            with Reader07(segment.path) as reader:
                yield from reader.messages(position)
        except CorruptMessage as error:
            raise _damaged(segment.path, error) from None

    def _records(self, segment: Segment07, message: Message) -> list[Found]:
        offset = segment.start + message.position
        try:
            return [
                Found(Record(offset, -1, None, bytes(inner.payload), (), -1), False) for inner in messages_in(message)
            ]
        except CorruptMessage as error:
            raise _damaged(segment.path, error) from None

    def _segments(self) -> list[Segment07]:
        try:
            found = segments_07(self.place.directory)
        except FileNotFoundError:
            found = []
        if not found:
            raise ToolError(f"{self.place.name} is gone: its directory or its last segment was removed.")
        return found


def _damaged(path: Path, error: CorruptMessage) -> ToolError:
    return ToolError(f"{path} is damaged at position {error.position}: {error}.")
