"""Varints in records: golden edges, the longest forms, what is rejected, and round trips.

A record's timestamp delta is a 64-bit varint, its offset delta a 32-bit one. Unsigned varints are tested in
tests/protocol/test_codec.py.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext import batch
from kafkapy._ext.record_writer import RecordsEncoder
from kafkapy._ext.records import CorruptRecords, decode_records
from tests.harness.varints import encode_varint

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HEADER = batch.read_header(batch.assemble(b"", count=1, base_timestamp=0))

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


def encoded(timestamp: int, offset_delta: int) -> bytes:
    encoder = RecordsEncoder(base_timestamp=0)
    encoder.append(timestamp, None, None, offset_delta=offset_delta)
    return encoder.payload()


def record(timestamp: bytes, offset_delta: bytes) -> bytes:
    """Return a record without key, value and headers, with these bytes as its timestamp delta and offset delta."""
    body = b"\0" + timestamp + offset_delta + encode_varint(-1) * 2 + b"\0"
    return encode_varint(len(body)) + body


def decoded(payload: bytes) -> tuple[int, int]:
    """Return the timestamp delta and the offset delta of the only record."""
    ((offset, timestamp, *_),) = decode_records(payload, HEADER)
    return timestamp, offset


@pytest.mark.parametrize(("value", "form"), SIGNED)
def test_signed_golden_edges(value, form):
    form = bytes.fromhex(form)
    assert encode_varint(value) == form
    assert encoded(value, value) == record(form, form)
    assert decoded(record(form, form)) == (value, value)


@pytest.mark.parametrize(("value", "form"), [(2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")])
def test_longest_64_bit_forms(value, form):
    assert encoded(value, 0) == record(bytes.fromhex(form), b"\0")
    assert decoded(encoded(value, 0)) == (value, 0)


@given(INT64, INT32)
def test_round_trip_and_rejection_of_every_cut(timestamp, offset_delta):
    payload = encoded(timestamp, offset_delta)
    assert payload == record(encode_varint(timestamp), encode_varint(offset_delta))
    assert decoded(payload) == (timestamp, offset_delta)
    for cut in range(len(payload)):
        with pytest.raises(CorruptRecords):
            decoded(payload[:cut])


@pytest.mark.parametrize(
    ("timestamp", "offset_delta"), [(b"\0", b"\x80" * 5 + b"\x01"), (b"\x80" * 10 + b"\x01", b"\0")]
)
def test_a_32_bit_number_takes_at_most_five_bytes_and_a_64_bit_number_ten(timestamp, offset_delta):
    with pytest.raises(CorruptRecords, match="a field that is not a varint"):
        decoded(record(timestamp, offset_delta))


def test_padded_forms_and_bits_above_the_type_are_read_as_kafka_reads_them():
    assert decoded(record(b"\x80" * 9 + b"\0", b"\x80" * 4 + b"\0")) == (0, 0)
    assert decoded(record(b"\xff" * 9 + b"\x7f", b"\xff" * 4 + b"\x7f")) == (-(2**63), -(2**31))
