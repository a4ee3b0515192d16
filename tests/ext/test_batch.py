"""The header of a record batch: bytes that Kafka wrote, steps from batch to batch, and refused headers."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext import batch
from kafkapy._ext.batch import CorruptBatch, UnsupportedMagic
from tests.harness.batches import iter_batches

# One record, key "key", value "value", timestamp 1524709879130, made by Kafka's MemoryRecordsBuilder (format 2):
# its checksum, 2857248333, is a figure from Kafka's own tests.
GOLDEN = batch.assemble(
    bytes.fromhex("1c00000006") + b"key\x0avalue\x00",
    count=1,
    base_timestamp=1524709879130,
    max_timestamp=1524709879130,
)


def stamped(data, position, form, *values):
    changed = bytearray(data)
    struct.pack_into(form, changed, position, *values)
    return bytes(changed)


def test_golden_batch_has_kafkas_size_and_checksum():
    assert len(GOLDEN) == 76
    header = batch.check(GOLDEN)
    assert header.crc == 2857248333
    assert (header.base_offset, header.last_offset, header.count, header.size) == (0, 0, 1, 76)
    assert (header.base_timestamp, header.max_timestamp) == (1524709879130, 1524709879130)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (-1, -1, -1, -1)
    assert (header.leader_epoch, header.magic, header.attributes, header.codec) == (-1, 2, 0, 0)
    assert header.delete_horizon_ms is None


def test_attribute_bits():
    def read(attributes):
        return batch.read_header(stamped(GOLDEN, 21, ">h", attributes))

    assert [read(codec).codec for codec in range(8)] == list(range(8))
    assert read(0x08).timestamp_type == 1
    assert read(0x10).is_transactional
    assert read(0x20).is_control
    assert read(0x40).delete_horizon_ms == 1524709879130
    plain = read(0x87)
    assert (plain.timestamp_type, plain.is_transactional, plain.is_control, plain.delete_horizon_ms) == (0, 0, 0, None)


@given(
    st.integers(-(2**63), 2**63 - 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.binary(max_size=200),
)
def test_fields_round_trip(base_offset, epoch, last_delta, number, short, sequence, payload):
    assembled = batch.assemble(
        payload,
        count=7,
        attributes=short & 0x7F,
        base_offset=base_offset,
        leader_epoch=epoch,
        last_offset_delta=last_delta,
        base_timestamp=number,
        max_timestamp=number,
        producer_id=number,
        producer_epoch=short,
        base_sequence=sequence,
    )
    header = batch.check(b"before" + assembled + b"behind", 6)
    assert header.position == 6
    assert header.next_position == 6 + len(assembled)
    assert header.size == 61 + len(payload)
    assert header.base_offset == base_offset
    assert header.last_offset == base_offset + last_delta
    assert header.leader_epoch == epoch
    assert header.base_timestamp == header.max_timestamp == header.producer_id == number
    assert header.producer_epoch == short
    assert header.base_sequence == sequence
    assert header.last_sequence == (-1 if sequence < 0 else (sequence + last_delta) % 2**31)
    assert header.count == 7


def test_the_checksum_covers_everything_but_offset_length_and_leader_epoch():
    for position in range(len(GOLDEN)):
        changed = bytearray(GOLDEN)
        changed[position] ^= 1
        if position < 8 or 12 <= position < 16:
            batch.check(changed)
        else:
            with pytest.raises(CorruptBatch):
                batch.check(changed)


@pytest.mark.parametrize("cut", range(76))
def test_a_batch_cut_at_any_byte_is_refused_or_waited_for(cut):
    part = GOLDEN[:cut]
    assert batch.next_batch(part) is None
    with pytest.raises(CorruptBatch):
        batch.check(part)
    if cut < 61:
        with pytest.raises(CorruptBatch):
            batch.read_header(part)
    else:
        assert batch.read_header(part).size == 76


@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, 13, 14, 48])
def test_lengths_too_small_for_a_batch_are_refused(length):
    data = stamped(GOLDEN, 8, ">i", length)
    for read in (batch.read_header, batch.next_batch, batch.check):
        with pytest.raises(CorruptBatch, match=f"a length of {length}"):
            read(data)


def test_a_length_beyond_what_is_there_is_waited_for():
    data = stamped(GOLDEN, 8, ">i", 2**31 - 1)
    assert batch.next_batch(data) is None
    assert batch.read_header(data).size == 2**31 + 11


@pytest.mark.parametrize("magic", [0, 1, 3, 127, -1])
def test_other_formats_are_named(magic):
    data = b"xx" + stamped(GOLDEN, 16, ">b", magic)
    for read in (batch.read_header, batch.next_batch, batch.check):
        with pytest.raises(UnsupportedMagic, match=f"byte 2 has magic {magic}, not 2") as refused:
            read(data, 2)
        assert refused.value.magic == magic


@pytest.mark.parametrize("position", [-1, 77, 2**62, -(2**63)])
def test_positions_outside_of_the_buffer_are_refused(position):
    for read in (batch.read_header, batch.next_batch, batch.check):
        with pytest.raises(CorruptBatch, match="outside"):
            read(GOLDEN, position)


def test_batches_are_iterated_up_to_a_torn_one():
    data = GOLDEN * 3 + GOLDEN[:50]
    assert [header.position for header in iter_batches(data)] == [0, 76, 152]
    assert [header.position for header in iter_batches(data, 76)] == [76, 152]
    assert list(iter_batches(b"")) == []


def test_large_batches_are_checked_without_the_lock():
    large = batch.assemble(bytes(300_000), count=1)
    assert batch.check(large).size == 300_061
    with pytest.raises(CorruptBatch, match="CRC"):
        batch.check(large[:-1] + b"\x01")
