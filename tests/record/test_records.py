"""Records inside a batch: round trips, searching, renumbering, and wrong lengths and counts of every kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext import batch
from kafkapy._ext.record_writer import RecordsEncoder, coordinator_batch, renumber
from kafkapy._ext.records import CorruptRecords, decode_records, decode_records_of, find_timestamp
from kafkapy.client.fetched import ConsumerRecord
from kafkapy.record import batch as batches
from kafkapy.record import compression, control
from kafkapy.record.batch import BatchBuilder, build, records_of
from kafkapy.record.records import Record
from tests.harness.markers import encode_marker
from tests.harness.varints import encode_varint

MAYBE = st.none() | st.binary(max_size=30)
TIMES = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.lists(
    st.tuples(TIMES, MAYBE, MAYBE, st.lists(st.tuples(st.text(max_size=8), MAYBE), max_size=3).map(tuple)),
    min_size=1,
    max_size=12,
)


def record(*fields, length=None):
    """Return one record built from its parts: ints become varints, bytes stay."""
    body = b"".join(part if isinstance(part, bytes) else encode_varint(part) for part in fields)
    return encode_varint(len(body) if length is None else length) + body


def header(count, **fields):
    return batch.read_header(batch.assemble(b"", count=count, **fields))


PLAIN = record(b"\x00", 0, 0, 1, b"k", 1, b"v", 0)


@pytest.mark.parametrize("codec", range(5), ids=compression.NAMES)
def test_batches_round_trip_in_every_codec(codec):
    @given(RECORDS, st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
    def check(records, base_offset, sequence):
        data = build(records, codec=codec, base_offset=base_offset, producer_id=5, base_sequence=sequence)
        seen = records_of(data, batch.check(data))
        assert seen == [
            (base_offset + i, *fields, -1 if sequence < 0 else (sequence + i) % 2**31)
            for i, fields in enumerate(records)
        ]
        assert all(type(one) is Record for one in seen)
        assert batch.check(data).max_timestamp == max(-1, *(fields[0] for fields in records))

    check()


def test_append_time_is_every_records_timestamp():
    data = build([(5, None, b"", ()), (9, None, b"", ())], timestamp_type=1)
    assert [one.timestamp for one in records_of(data, batch.check(data))] == [9, 9]


@given(RECORDS, st.integers(0, 1), st.integers(-3, 15))
def test_a_consumer_gets_the_records_from_its_position_on_with_their_partition(records, kind, position):
    data = build(records, base_offset=5, timestamp_type=kind)
    head = batch.check(data)
    wanted = [("t", 7, *one[:5]) for one in decode_records(data[61:], head) if one[0] >= position]
    found = decode_records_of(data[61:], head, ConsumerRecord, "t", 7, position)
    assert found == wanted
    assert {type(one) for one in found} <= {ConsumerRecord}
    with pytest.raises(CorruptRecords, match=f"1 bytes are left after the {len(records)} records"):
        decode_records_of(data[61:] + b"x", head, ConsumerRecord, "t", 7, position)


def test_timestamps_wrap_as_javas_do():
    payload = record(b"\x00", encode_varint(2**63 - 1), 0, -1, -1, 0)
    assert decode_records(payload, header(1, base_timestamp=5))[0][1] == 5 + 2**63 - 1 - 2**64


def test_header_keys_that_are_no_utf8_survive_a_round_trip():
    payload = record(b"\x00", 0, 0, -1, -1, 1, 2, b"\xff\xc0", -1)
    ((_, _, _, _, headers, _),) = decode_records(payload, header(1))
    builder = RecordsEncoder()
    builder.append(0, None, None, headers)
    assert builder.payload() == payload


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "ends at least 1 bytes before the end of record 0"),
        (encode_varint(-1), "length that is negative or not a varint"),
        (encode_varint(-(2**31)), "length that is negative or not a varint"),
        (b"\xff\xff\xff\xff\xff\x01", "length that is negative or not a varint"),
        (record(b"", length=2**31 - 1), "ends at least 2147483647 bytes before the end of record 0"),
        (record(b""), "a field that is not a varint or extends beyond"),
        (record(b"\x00"), "a field that is not a varint or extends beyond"),
        (record(b"\x00", b"\x80" * 11), "a field that is not a varint or extends beyond"),
        (record(b"\x00", 0), "a field that is not a varint or extends beyond"),
        (record(b"\x00", 0, 0), "a field that is not a varint or extends beyond"),
        (record(b"\x00", 0, 0, 2**31 - 1), "a field that is not a varint or extends beyond"),
        (record(b"\x00", 0, 0, 5, b"key"), "a field that is not a varint or extends beyond"),
        (record(b"\x00", 0, 0, -1, 2**30), "a field that is not a varint or extends beyond"),
        (record(b"\x00", 0, 0, -1, -1), "a field that is not a varint or extends beyond"),
        (record(b"\x00", 0, 0, -1, -1, -1), "a number of headers that is negative"),
        (record(b"\x00", 0, 0, -1, -1, 2**31 - 1), "a number of headers that is negative or larger"),
        (record(b"\x00", 0, 0, -1, -1, 1, -1), "a header without a key"),
        (record(b"\x00", 0, 0, -1, -1, 1, 9, b"name"), "a field that is not a varint or extends beyond"),
        (record(b"\x00", 0, 0, -1, -1, 1, 1, b"n", 2**31 - 1), "a field that is not a varint or extends beyond"),
        (record(b"\x00", 0, 0, -1, -1, 0, b"x"), "record 0 has bytes after its last field"),
        (PLAIN + b"x", "1 bytes are left after the 1 records"),
    ],
)
def test_the_error_names_wrong_lengths(payload, reason):
    with pytest.raises(CorruptRecords, match=reason):
        decode_records(payload, header(1))
    with pytest.raises(CorruptRecords):
        renumber(payload, header(1))


@pytest.mark.parametrize("cut", range(len(PLAIN) * 2))
def test_records_cut_at_any_byte_are_refused(cut):
    with pytest.raises(CorruptRecords, match=f"record {cut // len(PLAIN)}"):
        decode_records((PLAIN * 2)[:cut], header(2))


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_negative_counts_are_refused(count):
    for read in (decode_records, renumber):
        with pytest.raises(CorruptRecords, match=f"declares {count} records"):
            read(PLAIN, header(count))


def test_a_huge_count_is_refused_because_the_records_are_missing():
    with pytest.raises(CorruptRecords, match="before the end of record 1"):
        decode_records(PLAIN, header(2**31 - 1))
    with pytest.raises(CorruptRecords, match=f"{2**31 - 1} records in {len(PLAIN)} bytes"):
        renumber(PLAIN, header(2**31 - 1))


def test_negative_lengths_other_than_minus_one_are_null_as_for_kafka():
    assert decode_records(record(b"\x00", 0, 0, -7, -(2**31), 0), header(1))[0][2:4] == (None, None)


def test_searching_by_timestamp_finds_the_first_record_at_or_after_it():
    data = build(
        [(10, None, b"a", ()), (30, None, b"b", ()), (20, None, b"c", ()), (30, None, b"d", ())], base_offset=100
    )
    one = batch.check(data)
    assert batches.find_timestamp(data, one, 0) == (100, 10)
    assert batches.find_timestamp(data, one, 11) == (101, 30)
    assert batches.find_timestamp(data, one, one.max_timestamp) == (101, 30)
    assert batches.find_timestamp(data, one, 11, min_offset=102) == (102, 20)
    assert batches.find_timestamp(data, one, 31) is None
    packed = build([(10, None, b"a", ()), (30, None, b"b", ())], codec=compression.LZ4)
    assert batches.find_timestamp(packed, batch.check(packed), 11) == (1, 30)
    with pytest.raises(CorruptRecords):
        find_timestamp(b"\x0e", header(1), 0)


@given(RECORDS, st.integers(0, 255))
def test_renumbering_changes_nothing_but_deltas_and_attributes(records, attributes):
    messy = RecordsEncoder(base_timestamp=77)
    for i, fields in enumerate(records):
        messy.append(*fields, offset_delta=i * 3 + 1)
    data = batch.assemble(messy.payload(), count=len(records), base_timestamp=77)
    clean = RecordsEncoder()
    for fields in records:
        clean.append(*fields)
    payload, base, largest = renumber(messy.payload(), batch.read_header(data))
    assert payload == clean.payload()
    assert (base, largest) == (records[0][0], max(-1, *(fields[0] for fields in records)))
    marked = record(bytes([attributes]), 0, 9, 1, b"k", 1, b"v", 0)
    assert renumber(marked, header(1))[0] == PLAIN


def test_a_builder_refuses_records_that_do_not_fit_but_always_takes_the_first_one():
    builder = BatchBuilder(max_bytes=200)
    assert builder.append(0, None, b"x" * 500)
    assert not builder.append(0, None, b"y")
    assert builder.count == 1
    builder = BatchBuilder(max_bytes=1000)
    while builder.append(0, b"key", b"value" * 5, [("header", b"content")]):
        assert builder.size <= 1000
    assert builder.count > 10
    assert len(builder.build()) == builder.size <= 1000


def test_a_builder_takes_any_bytes_like_object_and_nothing_else():
    builder = BatchBuilder()
    builder.append(0, bytearray(b"key"), memoryview(b"value"), [("a", memoryview(b"b"))])
    for key, value, headers in [
        ("text", None, ()),
        (None, 5, ()),
        (None, None, [("a", "text")]),
        (None, None, [(1, b"")]),
    ]:
        with pytest.raises(TypeError):
            builder.append(0, key, value, headers)
    with pytest.raises(ValueError, match="a header needs a key"):
        builder.append(0, None, None, [(None, b"")])
    data = builder.build()
    assert records_of(data, batch.check(data)) == [(0, 0, b"key", b"value", (("a", b"b"),), -1)]


def test_control_records():
    key, value = control.encode_key(control.COMMIT), encode_marker(7)
    assert (key.hex(), value.hex()) == ("00000001", "000000000007")
    assert control.decode(key, value) == (control.COMMIT, 7)
    assert control.decode(control.encode_key(control.ABORT), value + b"later").name == "ABORT"
    assert control.decode(control.encode_key(2), b"").name == "LEADER_CHANGE"
    assert control.decode(control.encode_key(99), None).name == "UNKNOWN"
    for bad_key, bad_value in [
        (None, value),
        (b"\x00\x00\x00", value),
        (b"\xff\xff\x00\x01", value),
        (key, None),
        (key, b"\x00" * 5),
        (key, b"\xff\xff\x00\x00\x00\x00"),
    ]:
        with pytest.raises(ValueError, match=r"a control record's key|a transaction marker"):
            control.decode(bad_key, bad_value)


KEYED = st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1, max_size=80)


@given(KEYED, TIMES, st.none() | st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1)), st.integers(-1, 1))
def test_a_coordinators_batch_equals_the_builders_batch_of_its_records(records, now_ms, producer, sequence):
    producer_id, epoch = producer or (-1, -1)
    builder = BatchBuilder()
    for key, value in records:
        builder.append(now_ms, key, value)
    expected = builder.build(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=producer is not None,
        max_timestamp=now_ms,
    )
    assert coordinator_batch(records, now_ms, producer_id, epoch, sequence) == expected


@pytest.mark.parametrize("records", [[], [(None, b"v")]])
def test_a_coordinators_batch_has_records_with_keys(records):
    with pytest.raises(ValueError, match=r"needs a key|cannot be one batch"):
        coordinator_batch(records, 0)


@pytest.mark.parametrize("records", [[(b"k", "v")], [("k", b"v")], [(b"k",)], [3]])
def test_a_coordinators_batch_accepts_only_pairs_of_bytes(records):
    with pytest.raises((TypeError, ValueError)):
        coordinator_batch(records, 0)
