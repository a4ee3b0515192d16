"""The codecs of record batches: gzip, snappy, lz4 and zstd.

Each library is imported when its codec is first used. Data is decompressed in pieces up to a limit given by the caller,
so that a small batch that expands to gigabytes costs neither much memory nor much time.

The output equals that of Kafka's Java clients: gzip with an empty header, snappy in snappy-java's framing (blocks of 32
KiB), lz4 frames with independent 64 KiB blocks, zstd frames without content size. The input may be anything that
producers write, including raw snappy blocks (librdkafka) and several gzip members.

In message format 0, the header checksum of lz4 frames is wrong: it also covers the frame's magic number, not just the
descriptor (KAFKA-3160). `broken_checksum` writes that checksum, and accepts any on reading.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# Kafka's default levels (CompressionType); lz4's 9 means the fast compressor there.
DEFAULT_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}

# The size of decompressed pieces. Such pieces come from warm memory and stay in the processor's cache; measured,
# smaller ones cost gzip up to a fifth, and larger ones gain nothing.
PIECE = 131072
_GZIP_INPUT = 65536
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32768
# A snappy element of 3 bytes can stand for 64, so data expands to at most this many times its size.
_SNAPPY_MAX_RATIO = 22
_ZSTD_MAGIC = 0xFD2FB528
# Idle decompressors for reuse: creating one costs as much as decompressing 16 KiB.
_idle_zstd: list[Any] = []
_ZSTD_KEEP = 8 * 1024 * 1024
# What zlib, lz4 and zstd say when they cannot get memory, in exceptions that they also raise for invalid data.
_NO_MEMORY = ("Error -4 ", "ERROR_allocation_failed", "Allocation error")


class DecompressionError(ValueError):
    """The error for data that is invalid for its codec, or truncated."""


class RecordTooLarge(DecompressionError):
    """The error for data that expands to more than the limit when it is decompressed."""

    def __init__(self, codec: int, limit: int) -> None:
        super().__init__(f"{NAMES[codec]} data that unpacks to more than {limit} bytes")


def codec_of(name: str) -> int:
    """Return the number of a codec as named in Kafka's settings ("uncompressed" means "none"). Raises ValueError."""
    name = "none" if name == "uncompressed" else name
    if name not in NAMES:
        raise ValueError(f"there is no codec {name!r}; there are {', '.join(NAMES)}")
    return NAMES.index(name)


def compress(
    codec: int, data: bytes | bytearray | memoryview, level: int | None = None, *, broken_checksum: bool = False
) -> bytes:
    """Return `data` compressed. `level` is the codec's own (gzip 1..9, lz4 1..17, zstd up to 22), None for Kafka's
    default.

    broken_checksum: write lz4's header checksum as message format 0 has it. Raises ValueError for an unknown codec.
    """
    if codec == NONE:
        return bytes(data)
    if codec == SNAPPY:
        return _snappy_compress(data)
    if codec not in DEFAULT_LEVELS:
        raise ValueError(f"there is no codec {codec}")
    if level is None:
        level = DEFAULT_LEVELS[codec]
    if codec == GZIP:
        packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        end = (zlib.crc32(data)).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
        return b"".join((_GZIP_HEADER, packer.compress(data), packer.flush(), end))
    if codec == LZ4:
        import lz4.frame

        frame: bytes = lz4.frame.compress(
            data,
            compression_level=0 if level == DEFAULT_LEVELS[LZ4] else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return frame[:6] + _header_checksum(frame[:6]) + frame[7:] if broken_checksum else frame
    import zstandard

    # Java ends the stream with a flush and an empty last block; the same two steps give the same bytes.
    stream = zstandard.ZstdCompressor(level=level, write_content_size=False).compressobj()
    return b"".join((stream.compress(data), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), stream.flush()))


def decompress(codec: int, data: bytes | bytearray | memoryview, limit: int, *, broken_checksum: bool = False) -> bytes:
    """Return `data` decompressed. Raises RecordTooLarge beyond `limit` bytes, DecompressionError for invalid data.

    broken_checksum: accept any header checksum in an lz4 frame (message format 0).
    """
    return b"".join(pieces(codec, data, limit, broken_checksum=broken_checksum))


def pieces(
    codec: int, data: bytes | bytearray | memoryview, limit: int, *, broken_checksum: bool = False
) -> Iterator[bytes]:
    """Decompress `data` and yield the result in pieces. Raises the errors of `decompress`, after the pieces before the
    error have been yielded, and MemoryError."""
    if codec not in _READERS:
        raise DecompressionError(f"there is no codec {codec}")
    total = 0
    view = memoryview(data)
    try:
        for piece in _read_lz4(view, limit, broken_checksum) if codec == LZ4 else _READERS[codec](view, limit):
            total += len(piece)
            if total > limit:
                raise RecordTooLarge(codec, limit)
            yield piece
    except DecompressionError:
        raise
    except MemoryError:
        raise
    except Exception as reason:
        # Each library has its own exceptions; here they are all about the data, except for a lack of memory.
        if any(words in str(reason) for words in _NO_MEMORY):
            raise MemoryError(str(reason)) from reason
        raise DecompressionError(f"broken {NAMES[codec]} data: {reason}") from reason


def _read_plain(data: memoryview, limit: int) -> Iterator[bytes]:
    if len(data) > limit:
        raise RecordTooLarge(NONE, limit)
    yield bytes(data)


def _read_gzip(data: memoryview, limit: int) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        waiting: bytes | memoryview = b""
        while not unpacker.eof:
            # zlib copies its unused input, so it gets small parts.
            if not waiting:
                waiting = data[position : position + _GZIP_INPUT]
                position += len(waiting)
            piece = unpacker.decompress(waiting, PIECE)
            if not piece and not waiting and not unpacker.eof:
                raise DecompressionError("gzip data that is cut short")
            waiting = unpacker.unconsumed_tail
            if piece:
                yield piece
        position -= len(unpacker.unused_data)


def _snappy_block(unpack: Callable[[Any], bytes], block: memoryview, before: int, limit: int) -> bytes:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise DecompressionError("a snappy block without a length")
    if size > limit - before:
        raise RecordTooLarge(SNAPPY, limit)
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise DecompressionError(f"a snappy block of {len(block)} bytes that claims to hold {size}")
    return unpack(block)


def _read_snappy(data: memoryview, limit: int) -> Iterator[bytes]:
    import snappy

    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _snappy_block(snappy.uncompress, data, 0, limit)
        return
    position, total = len(_XERIAL_HEADER), 0
    if len(data) < position:
        raise DecompressionError("a snappy header that is cut short")
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if size > len(data) - position or len(data) < position:
            raise DecompressionError(f"a snappy block of {size} bytes where {max(len(data) - position, 0)} are left")
        piece = _snappy_block(snappy.uncompress, data[position : position + size], total, limit)
        total += len(piece)
        position += size
        yield piece


def _snappy_compress(data: bytes | bytearray | memoryview) -> bytes:
    import snappy

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK])
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _header_checksum(descriptor: bytes) -> bytes:
    """Return the header checksum of an lz4 frame: the second byte of the XXH32 of its descriptor, which has fewer than
    16 bytes."""
    mask = 0xFFFFFFFF
    total = 374761393 + len(descriptor)
    whole = len(descriptor) // 4 * 4
    for at in range(0, whole, 4):
        total = (total + int.from_bytes(descriptor[at : at + 4], "little") * 3266489917) & mask
        total = ((total << 17 | total >> 15) & mask) * 668265263 & mask
    for byte in descriptor[whole:]:
        total = (total + byte * 374761393) & mask
        total = ((total << 11 | total >> 21) & mask) * 2654435761 & mask
    total = (total ^ total >> 15) * 2246822519 & mask
    total = (total ^ total >> 13) * 3266489917 & mask
    total ^= total >> 16
    return bytes([total >> 8 & 0xFF])


def _repaired_lz4_header(data: memoryview) -> bytes:
    """Return the header of an lz4 frame with the correct checksum, or no bytes if the header is incomplete."""
    if len(data) < 7:
        return b""
    # The flags say if the descriptor has the content's size (8 bytes) and a dictionary id (4).
    end = 6 + (8 if data[4] & 8 else 0) + (4 if data[4] & 1 else 0)
    if len(data) <= end:
        return b""
    return bytes(data[:end]) + _header_checksum(bytes(data[4:end]))


def _read_lz4(data: memoryview, limit: int, broken_checksum: bool = False) -> Iterator[bytes]:
    import lz4.frame

    context = lz4.frame.create_decompression_context()
    position, ended = 0, False
    if broken_checksum and (header := _repaired_lz4_header(data)):
        # The library consumes the header without output.
        lz4.frame.decompress_chunk(context, header)
        position = len(header)
    while not ended:
        piece, taken, ended = lz4.frame.decompress_chunk(context, data[position:], max_length=PIECE)
        position += taken
        if piece:
            yield piece
        elif not taken:
            raise DecompressionError("lz4 data that is cut short")
    if position < len(data):
        raise DecompressionError(f"{len(data) - position} bytes after the end of the lz4 frame")


def _zstd_frame_end(data: memoryview, start: int) -> int:
    """Return the end position of the zstd frame at `start` (RFC 8878). Raises DecompressionError if it is truncated,
    which the library does not report."""
    if len(data) - start < 6 or int.from_bytes(data[start : start + 4], "little") != _ZSTD_MAGIC:
        raise DecompressionError(f"no zstd frame at byte {start}")
    flags = data[start + 4]
    single = flags >> 5 & 1
    content_size = (1 if single else 0, 2, 4, 8)[flags >> 6]
    position = start + 5 + (0 if single else 1) + (0, 1, 2, 4)[flags & 3] + content_size
    last = False
    while not last:
        if len(data) - position < 3:
            raise DecompressionError("zstd data that is cut short")
        block = int.from_bytes(data[position : position + 3], "little")
        last = bool(block & 1)
        # A block of type 1 is one repeated byte.
        position += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
    position += 4 if flags & 4 else 0
    if position > len(data):
        raise DecompressionError("zstd data that is cut short")
    return position


def _read_zstd(data: memoryview, limit: int) -> Iterator[bytes]:
    import zstandard

    position = 0
    while position < len(data):
        position = _zstd_frame_end(data, position)
    try:
        unpacker = _idle_zstd.pop()
    except IndexError:
        unpacker = zstandard.ZstdDecompressor()
    total = 0
    with unpacker.stream_reader(data, read_across_frames=True, closefd=False) as reader:
        while piece := reader.read(PIECE):
            total += len(piece)
            yield piece
    # Reused only after a complete stream, and not if its window may have grown large.
    if total <= _ZSTD_KEEP and len(_idle_zstd) < 4:
        _idle_zstd.append(unpacker)


_READERS: dict[int, Callable[[memoryview, int], Iterator[bytes]]] = {
    NONE: _read_plain,
    GZIP: _read_gzip,
    SNAPPY: _read_snappy,
    LZ4: _read_lz4,
    ZSTD: _read_zstd,
}
