"""CRC-32C: published check values, and equality with the package crc32c for every way the data can be cut."""

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext import crc32c as module
from kafkapy._ext.crc32c import crc32c, crc32c_by_table, crc32c_without_instruction

ALL = pytest.mark.parametrize("checksum", [crc32c, crc32c_without_instruction, crc32c_by_table])
# Lengths around the sizes of the interleaved parts: 3 x 256 and 3 x 4096 bytes.
LENGTHS = [
    0,
    1,
    7,
    8,
    9,
    255,
    767,
    768,
    769,
    1023,
    1024,
    1536,
    12287,
    12288,
    12289,
    13056,
    13057,
    25000,
    65535,
    65536,
    200_003,
]


@ALL
@pytest.mark.parametrize(
    ("data", "value"),
    [
        # RFC 3720, B.4, and the usual check value of the nine digits.
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"", 0),
    ],
)
def test_published_values(checksum, data, value):
    assert checksum(data) == value


@ALL
@pytest.mark.parametrize("length", LENGTHS)
def test_equals_the_package_at_every_length_and_alignment(checksum, length):
    data = bytes((i * 197 + i // 251) & 255 for i in range(length + 8))
    for start in range(8):
        part = memoryview(data)[start : start + length]
        assert checksum(part) == package.crc32c(part)
        assert checksum(part, 0xDEADBEEF) == package.crc32c(part, 0xDEADBEEF)


@ALL
def test_sums_of_pieces_join(checksum):
    @given(st.binary(max_size=3000), st.integers(0, 3000))
    def check(data, cut):
        assert checksum(data[cut:], checksum(data[:cut])) == package.crc32c(data)

    check()


def test_a_processor_without_our_instruction_uses_the_package_for_all_but_short_data(monkeypatch):
    monkeypatch.setattr(module, "_package_crc32c", lambda data, value: len(data) + value)
    assert crc32c_without_instruction(bytes(1024), 5) == 1029
    assert crc32c_without_instruction(bytes(1023), 5) == package.crc32c(bytes(1023), 5)


def test_what_the_package_cannot_sum_the_tables_do(monkeypatch):
    def fails(data, value):
        raise MemoryError

    monkeypatch.setattr(module, "_package_crc32c", fails)
    assert crc32c_without_instruction(b"x" * 5000, 5) == package.crc32c(b"x" * 5000, 5)
