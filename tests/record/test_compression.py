"""The codecs exchange data with other implementations in both directions; nothing decompresses beyond its limit."""

import gzip
import subprocess
import sys
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.record import compression as c

CODECS = pytest.mark.parametrize("codec", range(5), ids=c.NAMES)
COMPRESSED = pytest.mark.parametrize("codec", range(1, 5), ids=c.NAMES[1:])
TEXT = b"the quick brown fox jumps over the lazy dog. " * 9000


@CODECS
def test_round_trip(codec):
    @given(st.one_of(st.binary(max_size=2000), st.binary(max_size=50).map(lambda part: part * 3000)))
    def check(data):
        packed = c.compress(codec, data)
        assert c.decompress(codec, packed, len(data)) == data
        assert c.decompress(codec, bytearray(packed), len(data)) == data
        assert b"".join(c.pieces(codec, memoryview(packed), len(data) + 5)) == data

    check()


@CODECS
def test_one_byte_over_the_limit_is_refused(codec):
    packed = c.compress(codec, TEXT)
    assert c.decompress(codec, packed, len(TEXT)) == TEXT
    for limit in (len(TEXT) - 1, 1000, 0):
        with pytest.raises(c.RecordTooLarge, match=f"more than {limit} bytes"):
            c.decompress(codec, packed, limit)


@COMPRESSED
def test_every_cut_is_refused(codec):
    packed = c.compress(codec, b"some words, some more words, and words again: words")
    whole = 16 if codec == c.SNAPPY else None  # the header alone is a valid stream without blocks
    for cut in range(1, len(packed)):
        if cut != whole:
            with pytest.raises(c.DecompressionError):
                c.decompress(codec, packed[:cut], 10**6)


@COMPRESSED
def test_any_bytes_give_data_or_a_compression_error(codec):
    good = c.compress(codec, TEXT[:5000])

    @given(st.binary(max_size=60), st.integers(0, 40), st.integers(0, 40))
    def check(noise, start, drop):
        for data in (noise, good[:start] + noise + good[start + drop :]):
            try:
                assert len(c.decompress(codec, data, 100_000)) <= 100_000
            except c.DecompressionError:
                pass

    check()


def bombs():
    zeros = bytes(64 * 1024 * 1024)
    yield "gzip", c.GZIP, c.compress(c.GZIP, zeros)
    yield "lz4", c.LZ4, c.compress(c.LZ4, zeros)
    yield "zstd", c.ZSTD, c.compress(c.ZSTD, zeros)
    yield "snappy", c.SNAPPY, c.compress(c.SNAPPY, zeros)
    yield "snappy raw", c.SNAPPY, snappy.compress(zeros)


@pytest.mark.parametrize(("codec", "bomb"), [pytest.param(codec, bomb, id=name) for name, codec, bomb in bombs()])
def test_a_decompression_bomb_is_refused_at_its_limit(codec, bomb):
    unpacked = []
    with pytest.raises(c.RecordTooLarge):
        unpacked.extend(len(piece) for piece in c.pieces(codec, bomb, 1_000_000))
    assert sum(unpacked) <= 1_000_000


@pytest.mark.parametrize("claimed", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\x7f"])
def test_a_snappy_block_that_claims_more_than_it_can_hold_is_refused_before_memory_is_taken(claimed):
    block = claimed + b"\x00" * 20
    with pytest.raises(c.DecompressionError, match="claims to hold"):
        c.decompress(c.SNAPPY, block, 1 << 40)
    framed = c.compress(c.SNAPPY, b"")[:16] + len(block).to_bytes(4, "big") + block
    with pytest.raises(c.DecompressionError, match="claims to hold"):
        c.decompress(c.SNAPPY, framed, 1 << 40)


def test_a_snappy_block_longer_than_the_data_is_refused():
    framed = c.compress(c.SNAPPY, b"x" * 10)
    for size in (2**32 - 1, 2**31, len(framed)):
        with pytest.raises(c.DecompressionError, match=f"a snappy block of {size} bytes"):
            c.decompress(c.SNAPPY, framed[:16] + size.to_bytes(4, "big") + framed[20:], 1 << 40)


def test_raw_snappy_blocks_are_read_as_librdkafka_writes_them():
    assert c.decompress(c.SNAPPY, snappy.compress(TEXT), len(TEXT)) == TEXT


def test_snappy_is_written_in_the_framing_of_snappy_java():
    packed = c.compress(c.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    size = int.from_bytes(packed[16:20], "big")
    assert snappy.uncompress(packed[20 : 20 + size]) == TEXT[:32768]


def test_gzip_is_plain_gzip_with_javas_header():
    packed = c.compress(c.GZIP, TEXT)
    assert gzip.decompress(packed) == TEXT
    assert packed[:10] == bytes.fromhex("1f8b08000000000000ff")


def test_gzip_members_one_after_the_other_are_read():
    assert c.decompress(c.GZIP, gzip.compress(TEXT) + gzip.compress(b"more"), 10**6) == TEXT + b"more"


def test_a_wrong_gzip_checksum_is_refused():
    packed = bytearray(c.compress(c.GZIP, TEXT))
    packed[-5] ^= 1
    with pytest.raises(c.DecompressionError, match="broken gzip data"):
        c.decompress(c.GZIP, packed, 10**6)


def test_lz4_frames_of_format_0_have_the_wrong_header_checksum_which_only_that_format_allows():
    right, wrong = c.compress(c.LZ4, TEXT), c.compress(c.LZ4, TEXT, broken_checksum=True)
    assert (right[:7].hex(), wrong[:7].hex()) == ("04224d18604082", "04224d1860401a")
    assert right[7:] == wrong[7:]
    for frame in (right, wrong, wrong[:6] + b"\x00" + wrong[7:]):
        assert c.decompress(c.LZ4, frame, len(TEXT), broken_checksum=True) == TEXT
    with pytest.raises(c.DecompressionError):
        c.decompress(c.LZ4, wrong, len(TEXT))
    for length in range(len(wrong)):
        with pytest.raises(c.DecompressionError):
            c.decompress(c.LZ4, wrong[:length], len(TEXT), broken_checksum=True)


def test_lz4_frames_with_a_content_size_are_read_whatever_their_header_checksum():
    frame = bytearray(lz4.frame.compress(TEXT, store_size=True))
    frame[14] ^= 0xFF
    assert c.decompress(c.LZ4, frame, len(TEXT), broken_checksum=True) == TEXT


def test_lz4_frames_are_those_of_kafka():
    packed = c.compress(c.LZ4, TEXT)
    assert packed[:7] == bytes.fromhex("04224d18604082")
    assert lz4.frame.decompress(packed) == TEXT


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("size", [0, 4, 5, 6, 7])
def test_lz4_frames_of_other_producers_are_read(linked, size):
    packed = lz4.frame.compress(TEXT, block_linked=linked, block_size=size, content_checksum=True, store_size=True)
    assert c.decompress(c.LZ4, packed, len(TEXT)) == TEXT


def test_bytes_after_an_lz4_frame_are_refused():
    with pytest.raises(c.DecompressionError, match="3 bytes after"):
        c.decompress(c.LZ4, c.compress(c.LZ4, TEXT) + b"abc", 10**6)


@pytest.mark.parametrize(
    "make",
    [
        lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
        lambda data: zstandard.ZstdCompressor(level=19).compress(data),
        lambda data: (
            zstandard.ZstdCompressor().compress(data[:1000]) + zstandard.ZstdCompressor().compress(data[1000:])
        ),
        lambda data: zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(window_log=27, format=0)
        ).compress(data),
    ],
    ids=["checksum", "level 19", "two frames", "large window"],
)
def test_zstd_frames_of_other_producers_are_read(make):
    packed = make(TEXT)
    assert c.decompress(c.ZSTD, packed, len(TEXT)) == TEXT
    with pytest.raises(c.DecompressionError):
        c.decompress(c.ZSTD, packed + b"\x00", len(TEXT))


def test_concurrent_and_abandoned_zstd_streams_do_not_affect_others():
    packed = c.compress(c.ZSTD, TEXT)
    for _ in range(3):
        assert c.decompress(c.ZSTD, packed, len(TEXT)) == TEXT
        one, two = c.pieces(c.ZSTD, packed, 10**6), c.pieces(c.ZSTD, packed, 10**6)
        first = [next(one), next(two)]
        assert first[0] + b"".join(one) == first[1] + b"".join(two) == TEXT
        next(c.pieces(c.ZSTD, packed, 10**6))  # a stream that is abandoned after one piece
        with pytest.raises(c.DecompressionError):
            c.decompress(c.ZSTD, packed[:100] + b"\xff" * 50 + packed[150:], 10**6)


def test_zstd_is_written_without_content_size():
    packed = c.compress(c.ZSTD, TEXT)
    assert zstandard.get_frame_parameters(packed).content_size == zstandard.CONTENTSIZE_UNKNOWN


@pytest.mark.parametrize(
    ("codec", "levels"), [(c.GZIP, (-1, 1, 9)), (c.LZ4, (1, 9, 12, 17)), (c.ZSTD, (-5, 1, 3, 19)), (c.SNAPPY, (None,))]
)
def test_kafkas_compression_levels_are_accepted(codec, levels):
    for level in levels:
        assert c.decompress(codec, c.compress(codec, TEXT, level), len(TEXT)) == TEXT


def test_the_error_names_unknown_codecs():
    with pytest.raises(c.DecompressionError, match="no codec 5"):
        c.decompress(5, b"", 10)
    with pytest.raises(ValueError, match="no codec 7"):
        c.compress(7, b"")
    with pytest.raises(ValueError, match="'brotli'"):
        c.codec_of("brotli")
    assert [c.codec_of(name) for name in (*c.NAMES, "uncompressed")] == [0, 1, 2, 3, 4, 0]


def test_a_library_is_loaded_only_by_its_codec():
    code = (
        "import sys; from kafkapy.record import compression as c, validation, batch\n"
        "heavy = {'snappy', 'cramjam', 'lz4', 'zstandard', 'gzip', 'crc32c'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "c.compress(3, b''); assert heavy & set(sys.modules) == {'lz4'}, heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# A frame whose window of 128 MiB exceeds a limit of the address space, which leaves enough memory for all else.
SHORT_OF_MEMORY = """
import resource
import zstandard
from kafkapy.record import compression as c

stream = zstandard.ZstdCompressor(
    compression_params=zstandard.ZstdCompressionParameters(window_log=27)
).compressobj()
data = stream.compress(b"abc" * 1000) + stream.flush()
assert c.decompress(c.ZSTD, c.compress(c.ZSTD, b"abc"), 3) == b"abc"
with open("/proc/self/statm") as statm:
    size = int(statm.read().split()[0]) * resource.getpagesize()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20), hard))
try:
    c.decompress(c.ZSTD, data, 3000)
except Exception as error:
    print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
assert c.decompress(c.ZSTD, data, 3000) == b"abc" * 1000
"""


def test_a_lack_of_memory_is_not_taken_for_broken_data():
    words = [sys.executable, "-c", SHORT_OF_MEMORY]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "MemoryError\n", "")


def test_the_checksum_of_gzip_covers_all_pieces():
    packed = c.compress(c.GZIP, TEXT)
    assert zlib.crc32(b"".join(c.pieces(c.GZIP, packed, 10**6))) == zlib.crc32(TEXT)
