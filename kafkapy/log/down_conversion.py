"""Records for clients that know older message formats only: converted while they are sent, in bounded memory.

The client is promised as many bytes as the log has, or as the first batch takes when it is converted, if that is
more, so that it always gets one whole. What the converted records do not fill is made up by a message that claims to
be longer than there is room for, which every client takes for one that was cut off. Source: Kafka's
LazyDownConversionRecords and LazyDownConversionRecordsSend (KIP-283).
"""

from __future__ import annotations

import logging
import os
import struct

from kafkapy._ext.entry_walk import whole_entries
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.conversion import down_convert
from kafkapy.record.file_region import FileRegion

CHUNK = 128 << 10  # bytes of the log that are converted at once, unless a batch alone is larger
LEAST_FILLER = 12  # offset and length of the message that stands for what there is no room for
_FILLER = struct.Struct(">qi")
_SMALLEST_BATCH = 61

_log = logging.getLogger(__name__)


class Chunks:
    """The entries of a region, some at a time; what is not whole at its end is left out."""

    def __init__(self, region: FileRegion) -> None:
        self._fd = region.handle.fd
        self._region = region  # keeps the file open
        self._end = region.position + region.length
        self.position = region.position

    def next(self, most: int) -> memoryview:
        """Whole entries of at most `most` bytes, but at least one; nothing at the end. Raises OSError, KafkaError."""
        data = os.pread(self._fd, min(most, self._end - self.position), self.position)
        whole, size, _ = whole_entries(data)
        if size < 0:
            raise self._corrupt(whole)
        if not whole:
            if not 0 < size <= self._end - self.position:
                return memoryview(b"")
            data, whole = FileRegion(self._region.handle, self.position, size).read(), size
        self.position += whole
        return memoryview(data)[:whole]

    def all_known(self, magic: int) -> bool:
        """Whether no whole entry from here on is of a newer format than `magic`. Reads headers only."""
        position = self.position
        while position < self._end:
            data = os.pread(self._fd, min(CHUNK, self._end - position), position)
            whole, size, above = whole_entries(data, magic)
            if size < 0:
                raise self._corrupt(position - self.position + whole)
            if above:
                return False
            position += whole
            if not whole:
                if not 0 < size <= self._end - position:
                    return True
                if data[16] > magic:
                    return False
                position += size
        return True

    def end(self) -> None:
        """Goes to the end."""
        self.position = self._end

    def _corrupt(self, at: int) -> KafkaError:
        return KafkaError(
            Errors.CORRUPT_MESSAGE, f"{self._region.handle.path}: there is no batch at byte {self.position + at}"
        )


class DownConversion:
    """A region's records in a format up to `magic`: `length` bytes, which `make` gives one piece after the other.

    Uncompressed records before `first_offset` are left out: some clients rely on it. The first batch is converted at
    once; `take_first` gives it. Raises OSError, and KafkaError: UNSUPPORTED_COMPRESSION_TYPE if the first batch cannot
    be told to such a client, CORRUPT_MESSAGE. Runs where it may wait for the disk; not for two threads at a time.
    """

    def __init__(self, region: FileRegion, magic: int, first_offset: int, max_decompressed: int) -> None:
        self._region = region
        self._magic = magic
        self._first_offset = first_offset
        self._max_decompressed = max_decompressed
        self._chunks = Chunks(region)
        self._first = self._converted(_SMALLEST_BATCH)
        any_whole = self._chunks.position > region.position
        self.length = max(region.length, len(self._first)) if self._first else LEAST_FILLER if any_whole else 0
        # Where the last piece begins and ends, and where in the file the entries begin that it was made of.
        self._begin, self._end = 0, len(self._first)
        self._source = region.position

    def take_first(self, most: int) -> bytes:
        """The first batch, which is let go of; nothing if it has more than `most` bytes: `make` makes it once more."""
        first, self._first = self._first, b""
        return first if len(first) <= most else b""

    def make(self, offset: int) -> bytes | memoryview:
        """The bytes from `offset` on: where the last piece ended, or inside of it; may go beyond the length."""
        if offset < self._end:
            self._chunks.position, self._end = self._source, self._begin
        self._begin, self._source = self._end, self._chunks.position
        try:
            # The first one alone: one behind it that cannot be converted would take it along.
            piece = self._converted(CHUNK if self._begin else _SMALLEST_BATCH)
        except KafkaError as error:
            # The reply's size is out already, and what came before is of use to the client. It asks again for what
            # it did not get, up to this batch, and is told.
            _log.log(
                logging.DEBUG if error.code == Errors.UNSUPPORTED_COMPRESSION_TYPE else logging.WARNING,
                "the reply to an old client ends before byte %d of %s: %s",
                self._chunks.position,
                self._region.handle.path,
                error,
            )
            self._chunks.end()
            piece = b""
        if not piece:
            piece = self._filler(self.length - self._begin)
        self._end = self._begin + len(piece)
        return memoryview(piece)[offset - self._begin :]

    def _converted(self, most: int) -> bytes:
        """The next of the log's entries that are something in the older format; nothing at the end."""
        while chunk := self._chunks.next(most):
            converted = down_convert(chunk, self._magic, self._first_offset, max_decompressed=self._max_decompressed)
            if converted:
                return converted
        return b""

    @staticmethod
    def _filler(left: int) -> bytes:
        size = max(LEAST_FILLER, min(left, CHUNK))
        return _FILLER.pack(-1, max(left + 1, _SMALLEST_BATCH)) + bytes(size - LEAST_FILLER)
