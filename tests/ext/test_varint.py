"""Varints: golden edges, the longest forms, what is refused, and round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext import varint

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)

# Zig-zag forms by the definition of the encoding; the sizes change at 63/64, 8191/8192 and 1048575/1048576.
SIGNED = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (-8193, "818001"),
    (1048575, "feff7f"),
    (-1048576, "ffff7f"),
    (1048576, "80808001"),
    (-1048577, "81808001"),
    (134217727, "feffff7f"),
    (134217728, "8080808001"),
    (2147483647, "feffffff0f"),
    (-2147483648, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "form"), SIGNED)
def test_signed_golden_edges(value, form):
    form = bytes.fromhex(form)
    assert varint.encode_varint(value) == form
    assert varint.encode_varlong(value) == form
    assert varint.size_of(value) == len(form)
    assert varint.decode_varint(form) == (value, len(form))
    assert varint.decode_varlong(form) == (value, len(form))


def test_longest_64_bit_forms():
    assert varint.encode_varlong(2**63 - 1) == bytes.fromhex("feffffffffffffffff01")
    assert varint.encode_varlong(-(2**63)) == bytes.fromhex("ffffffffffffffffff01")
    assert varint.encode_uvarlong(2**64 - 1) == bytes.fromhex("ffffffffffffffffff01")
    assert varint.encode_uvarint(2**32 - 1) == bytes.fromhex("ffffffff0f")


@pytest.mark.parametrize(
    ("encode", "decode", "numbers"),
    [
        (varint.encode_varint, varint.decode_varint, INT32),
        (varint.encode_varlong, varint.decode_varlong, INT64),
        (varint.encode_uvarint, varint.decode_uvarint, UINT32),
        (varint.encode_uvarlong, varint.decode_uvarlong, UINT64),
    ],
    ids=["varint", "varlong", "uvarint", "uvarlong"],
)
def test_round_trip_at_any_position_and_refusal_of_every_cut(encode, decode, numbers):
    @given(numbers, st.binary(max_size=3))
    def check(value, before):
        form = encode(value)
        assert decode(before + form + b"\xff", len(before)) == (value, len(form))
        for cut in range(len(form)):
            with pytest.raises(varint.BadVarint, match="cut short"):
                decode(form[:cut])

    check()


@pytest.mark.parametrize("decode", [varint.decode_varint, varint.decode_uvarint])
def test_a_32_bit_number_takes_at_most_five_bytes(decode):
    with pytest.raises(varint.BadVarint, match="after 5 bytes"):
        decode(b"\x80\x80\x80\x80\x80\x01")


@pytest.mark.parametrize("decode", [varint.decode_varlong, varint.decode_uvarlong])
def test_a_64_bit_number_takes_at_most_ten_bytes(decode):
    with pytest.raises(varint.BadVarint, match="after 10 bytes"):
        decode(b"\x80" * 10 + b"\x01")


def test_padded_forms_and_bits_above_the_type_are_read_as_kafka_reads_them():
    assert varint.decode_uvarint(b"\x80\x80\x80\x80\x00") == (0, 5)
    assert varint.decode_uvarint(b"\xff\xff\xff\xff\x7f") == (2**32 - 1, 5)
    assert varint.decode_uvarlong(b"\xff" * 9 + b"\x7f") == (2**64 - 1, 10)


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (varint.encode_varint, 2**31),
        (varint.encode_varint, -(2**31) - 1),
        (varint.encode_varlong, 2**63),
        (varint.encode_uvarint, 2**32),
        (varint.encode_uvarint, -1),
        (varint.encode_uvarlong, 2**64),
    ],
)
def test_numbers_that_do_not_fit_are_refused(encode, value):
    with pytest.raises(OverflowError):
        encode(value)


@pytest.mark.parametrize("position", [-1, 4])
def test_positions_outside_of_the_buffer_are_refused(position):
    with pytest.raises(varint.BadVarint, match="outside"):
        varint.decode_varint(b"\x00\x00\x00", position)
