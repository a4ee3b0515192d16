"""CRC-32: the usual check value, and equality with zlib for every way the data can be cut."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.crc32 import crc32, crc32_by_table

BOTH = pytest.mark.parametrize("checksum", [crc32, crc32_by_table])
# Lengths around the 64 bytes that are folded at a time and the 16 of the rest.
LENGTHS = [*range(150), 255, 256, 257, 1000, 4095, 4096, 65535, 65536, 200_003]


@BOTH
def test_the_published_value(checksum):
    assert checksum(b"123456789") == 0xCBF43926
    assert checksum(b"") == 0


@BOTH
@pytest.mark.parametrize("length", LENGTHS)
def test_equals_zlib_at_every_length_and_alignment(checksum, length):
    data = bytes((i * 197 + i // 251) & 255 for i in range(length + 8))
    for start in range(8):
        part = memoryview(data)[start : start + length]
        assert checksum(part) == zlib.crc32(part)
        assert checksum(part, 0xDEADBEEF) == zlib.crc32(part, 0xDEADBEEF)


@BOTH
def test_sums_of_pieces_join(checksum):
    @given(st.binary(max_size=3000), st.integers(0, 3000))
    def check(data, cut):
        assert checksum(data[cut:], checksum(data[:cut])) == zlib.crc32(data)

    check()
