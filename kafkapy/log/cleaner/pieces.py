"""Read a segment chunk by chunk into one buffer, for both passes of a cleaning."""

from __future__ import annotations

from collections.abc import Callable

from kafkapy._ext.key_index import CorruptEntry
from kafkapy.log.segments.segment import Segment

_SIZE_AT, _SIZE_END = 8, 12

# Processes the whole batches at the start of a chunk and returns the number of bytes of these batches.
Take = Callable[[memoryview], int]


class Pieces:
    """A reusable buffer for reading segments in chunks.

    `pace(bytes)` is called after every chunk; it may wait, or raise an exception to end the cleaning.
    """

    def __init__(self, buffer_bytes: int, pace: Callable[[int], None]) -> None:
        self.pace = pace
        self._usual = buffer_bytes
        self._buffer = bytearray(buffer_bytes)

    def go_over(self, segment: Segment, position: int, take: Take) -> None:
        """Read the segment from `position` to its end, and pass each chunk to `take`, which returns how many bytes it
        processed.

        The next chunk begins where `take` stopped, so every chunk begins with a batch. If `take` returns 0, because the
        first batch does not fit into the chunk, the buffer grows; at the end it shrinks to its usual size. Raises
        OSError, and CorruptEntry with the file and the position.
        """
        end = segment.size
        try:
            while position < end:
                piece = self._read(segment, position, min(len(self._buffer), end - position))
                with memoryview(piece) as view:
                    taken = take(view)
                if not taken:
                    self._make_room(piece, end - position)
                self.pace(len(piece))
                position += taken
        except ValueError as reason:  # CorruptEntry, DecompressionError
            raise CorruptEntry(f"{segment.handle().path}, read from byte {position}: {reason}") from None
        finally:
            if len(self._buffer) > self._usual:
                self._buffer = bytearray(self._usual)

    def _read(self, segment: Segment, position: int, wanted: int) -> memoryview:
        file, view, got = segment.handle(), memoryview(self._buffer), 0
        while got < wanted:
            more = segment.files.read_into(file, view[got:wanted], position + got)
            if not more:
                raise CorruptEntry(f"the file ends at byte {position + got}, and should have {segment.size}")
            got += more
        return view[:wanted]

    def _make_room(self, piece: memoryview, left: int) -> None:
        """Enlarge the buffer so that the batch at the start of `piece`, which is not complete in `piece`, fits.

        `left` is the number of bytes up to the end of the segment. Raises CorruptEntry if the batch does not end there.
        """
        if len(piece) < _SIZE_END:
            raise CorruptEntry(f"only {len(piece)} bytes are left, too few for a batch")
        size = int.from_bytes(piece[_SIZE_AT:_SIZE_END], "big") + _SIZE_END
        if size > left:
            raise CorruptEntry(f"the batch has {size} bytes, but only {left} are left")
        self._buffer = bytearray(size)
