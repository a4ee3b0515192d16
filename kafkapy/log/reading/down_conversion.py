"""Convert records for clients that only know older message formats, while they are sent and in bounded memory.

The response announces a fixed length before anything but the first batch is converted: the length of the region in the
log, or the length of the first converted batch if it is larger, so that the client always gets at least one whole
batch. If the converted records are shorter, the rest is filled with a message that claims to be longer than the space
left, which every client treats as an incomplete message. Source: Kafka's LazyDownConversionRecords and
LazyDownConversionRecordsSend (KIP-283).
"""

from __future__ import annotations

import logging
import os
import struct

from kafkapy._ext.entry_walk import whole_entries
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.conversion import down_convert
from kafkapy.record.file_region import FileRegion

CHUNK = 128 << 10  # bytes of the log that are converted at a time; a larger batch is converted whole
LEAST_FILLER = 12  # the offset and length fields of the filler message
_FILLER = struct.Struct(">qi")
_SMALLEST_BATCH = 61

_log = logging.getLogger(__name__)


class Chunks:
    """A reader of the complete batches in a file region, one chunk at a time.

    In formats 0 and 1 each message counts as a batch. An incomplete batch at the end of the region is skipped.
    """

    def __init__(self, region: FileRegion) -> None:
        self._fd = region.handle.fd
        self._region = region  # keeps the file open
        self._end = region.position + region.length
        self.position = region.position

    def next(self, most: int) -> memoryview:
        """Return the next complete batches, at most `most` bytes, but at least one batch even if it is larger.

        Returns an empty view at the end of the region. Raises OSError, and KafkaError CORRUPT_MESSAGE if no batch
        begins where one should.
        """
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
        """Return True if no complete batch from the current position on has a newer message format than `magic`.

        Reads headers only. Raises OSError, and KafkaError CORRUPT_MESSAGE.
        """
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
        """Skip the rest of the region, so that `next` returns no more batches."""
        self.position = self._end

    def _corrupt(self, at: int) -> KafkaError:
        return KafkaError(
            Errors.CORRUPT_MESSAGE, f"{self._region.handle.path}: there is no batch at byte {self.position + at}"
        )


class DownConversion:
    """The records of a region, converted to message format `magic` or an older one. `make` returns them in pieces.

    `length` is the number of bytes that the response announces. Uncompressed records before `first_offset` are dropped,
    because some clients rely on that. The constructor converts the first batch, which `take_first` returns. It raises
    OSError, KafkaError UNSUPPORTED_COMPRESSION_TYPE if the first batch has a codec that such a client does not know,
    and KafkaError CORRUPT_MESSAGE. May wait for the disk. Not thread-safe.
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
        # Where the last piece begins and ends in the response, and where in the file the entries it was made from
        # begin.
        self._begin, self._end = 0, len(self._first)
        self._source = region.position

    def take_first(self, most: int) -> bytes:
        """Return the first converted batch and drop it from memory.

        Returns empty bytes if the batch is longer than `most` bytes. `make` then converts the batch again.
        """
        first, self._first = self._first, b""
        return first if len(first) <= most else b""

    def make(self, offset: int) -> bytes | memoryview:
        """Return the next converted bytes, from byte `offset` of the response on.

        The result may extend beyond `length`.

        `offset` must be the end of the piece that the last call returned, or a position inside that piece.
        """
        if offset < self._end:
            self._chunks.position, self._end = self._source, self._begin
        self._begin, self._source = self._end, self._chunks.position
        try:
            # The first batch is converted alone: if a batch after it in the same chunk could not be converted, it would
            # be lost with that batch.
            piece = self._converted(CHUNK if self._begin else _SMALLEST_BATCH)
        except KafkaError as error:
            # The response's length is already sent, and the client can use the records before this batch. The client
            # fetches the rest again, and gets the error when this batch is the first one.
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
        """Return the next chunk of at most `most` bytes that contains records after conversion.

        Chunks from which all records are dropped are skipped. Returns empty bytes at the end of the region.
        """
        while chunk := self._chunks.next(most):
            converted = down_convert(chunk, self._magic, self._first_offset, max_decompressed=self._max_decompressed)
            if converted:
                return converted
        return b""

    @staticmethod
    def _filler(left: int) -> bytes:
        """Return bytes that fill the last `left` bytes of the response, at most CHUNK bytes at a time.

        They are the start of a message that claims to be longer than `left`, so that clients ignore it as incomplete.
        """
        size = max(LEAST_FILLER, min(left, CHUNK))
        return _FILLER.pack(-1, max(left + 1, _SMALLEST_BATCH)) + bytes(size - LEAST_FILLER)
