"""Produced batches are accepted as by Kafka, refused with Kafka's codes, and never read past their end."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext import batch, validation
from kafkapy._ext.crc32c import crc32c
from kafkapy.errors import Errors, KafkaError
from kafkapy.record import compression, control
from kafkapy.record.batch import build, records_of
from kafkapy.record.validation import RecordError, assign, validate
from tests.harness.markers import encode_marker
from tests.harness.varints import encode_varint

NOW = 1_700_000_000_000
CODECS = pytest.mark.parametrize("codec", range(5), ids=compression.NAMES)
RECORDS = [(NOW - 5, b"key", b"value", ()), (NOW + 5, b"k2", None, (("name", b"text"), ("name", None)))]

# The positions of header fields.
LENGTH, EPOCH, MAGIC, CRC, ATTRIBUTES, LAST, BASE_TIME, MAX_TIME, PRODUCER, SEQUENCE, COUNT = (
    (8, ">i"),
    (12, ">i"),
    (16, ">b"),
    (17, ">I"),
    (21, ">h"),
    (23, ">i"),
    (27, ">q"),
    (35, ">q"),
    (43, ">q"),
    (53, ">i"),
    (57, ">i"),
)


def produced(records=RECORDS, **fields):
    return bytearray(build(records, **fields))


def with_field(data, field, value):
    """Return the batch with one field changed and the right checksum."""
    changed = bytearray(data)
    position, form = field
    struct.pack_into(form, changed, position, value)
    if field is not CRC:
        struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return changed


def with_payload(data, payload):
    header = batch.read_header(data)
    return bytearray(
        batch.assemble(
            payload,
            count=header.count,
            attributes=header.attributes,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
        )
    )


def refused(data, code, match=None, **rules):
    with pytest.raises(RecordError, match=match) as caught:
        validate(data, **{"now_ms": NOW, **rules})
    assert caught.value.code == code
    return caught.value


def test_the_codes_are_those_of_the_table():
    for name in (
        "CORRUPT_MESSAGE",
        "MESSAGE_TOO_LARGE",
        "INVALID_TIMESTAMP",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "INVALID_RECORD",
    ):
        assert getattr(validation, name) == getattr(Errors, name)


# Accepted batches


@CODECS
def test_a_valid_batch_is_accepted_unchanged(codec):
    data = produced(codec=codec, producer_id=9, producer_epoch=3, base_sequence=2**31 - 1, transactional=True)
    before = bytes(data)
    seen = validate(memoryview(data), now_ms=NOW)
    assert bytes(seen.data) == before == bytes(data)
    assert (seen.size, seen.count, seen.last_offset_delta) == (len(data), 2, 1)
    assert (seen.max_timestamp, seen.offset_delta_of_max_timestamp, seen.timestamp_type) == (NOW + 5, 1, 0)
    assert (seen.producer_id, seen.producer_epoch, seen.base_sequence, seen.last_sequence) == (9, 3, 2**31 - 1, 0)
    assert (seen.is_transactional, seen.is_control, seen.codec, seen.rebuilt) == (True, False, codec, False)


def test_offset_and_epoch_are_written_into_the_callers_buffer():
    data = produced()
    crc = batch.read_header(data).crc
    assign(validate(memoryview(data), now_ms=NOW), 2**40 + 7, 12)
    header = batch.check(data)
    assert (header.base_offset, header.leader_epoch, header.crc) == (2**40 + 7, 12, crc)


def test_a_read_only_buffer_is_copied():
    data = bytes(produced())
    seen = validate(data, now_ms=NOW)
    assign(seen, 5, 0)
    assert batch.check(seen.data).base_offset == 5
    assert batch.check(data).base_offset == 0


def test_an_incomplete_batch_at_the_end_is_left_out_as_by_kafka():
    data = produced()
    for tail in (b"x", b"x" * 11, bytes(data[:-1])):
        seen = validate(memoryview(data + tail), now_ms=NOW)
        assert bytes(seen.data) == data


@CODECS
def test_a_wrong_max_timestamp_is_corrected(codec):
    seen = validate(with_field(produced(codec=codec), MAX_TIME, NOW + 10**9), now_ms=NOW)
    assert seen.max_timestamp == NOW + 5
    assert bytes(seen.data) == produced(codec=codec)


@CODECS
def test_append_time_sets_the_time_and_the_checksum_and_keeps_the_records(codec):
    data = produced(codec=codec, producer_id=9, producer_epoch=0, base_sequence=4)
    payload = bytes(data[61:])
    seen = validate(memoryview(data), now_ms=NOW + 77, timestamp_type=1, before_max_ms=0, after_max_ms=0)
    assert (seen.timestamp_type, seen.max_timestamp, seen.offset_delta_of_max_timestamp) == (1, NOW + 77, 1)
    header = batch.check(data)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (1, NOW + 77, NOW - 5)
    assert data[61:] == payload
    assert (header.producer_id, header.base_sequence) == (9, 4)


def test_records_without_timestamps_are_accepted_and_not_indexed():
    seen = validate(produced([(-1, None, b"", ())]), now_ms=NOW, before_max_ms=0, after_max_ms=0)
    assert (seen.max_timestamp, seen.offset_delta_of_max_timestamp) == (-1, -1)


@pytest.mark.parametrize("target", [-1, 0, compression.LZ4])
def test_append_time_set_by_the_producer_is_dropped_on_a_create_time_topic(target):
    data = with_field(produced(timestamp_type=1), MAX_TIME, NOW + 10**6)
    seen = validate(memoryview(data), now_ms=NOW, target_codec=target)
    assert (seen.timestamp_type, seen.max_timestamp) == (0, NOW + 5)
    header = batch.check(seen.data)
    assert header.attributes == max(target, 0)
    assert [one.timestamp for one in records_of(seen.data, header)] == [NOW - 5, NOW + 5]


# Recompression


@CODECS
@pytest.mark.parametrize("target", range(5), ids=compression.NAMES)
def test_a_batch_is_recompressed_for_a_topic_with_another_codec(codec, target):
    data = produced(codec=codec, producer_id=9, producer_epoch=3, base_sequence=4, transactional=True)
    before = records_of(data, batch.check(data))
    seen = validate(memoryview(data), now_ms=NOW, target_codec=target)
    assert seen.rebuilt == (codec != target)
    header = batch.check(seen.data)
    assert (header.codec, seen.codec, seen.size) == (target, target, len(seen.data))
    assert records_of(seen.data, header) == before
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 4)
    assert (header.is_transactional, header.count, header.max_timestamp) == (True, 2, NOW + 5)
    assert bytes(seen.data) == produced(
        codec=target, producer_id=9, producer_epoch=3, base_sequence=4, transactional=True
    )
    assign(seen, 55, 3)
    assert batch.check(seen.data).base_offset == 55


def test_recompression_with_append_time_keeps_the_producers_timestamps_in_the_records():
    seen = validate(produced(), now_ms=NOW + 77, timestamp_type=1, target_codec=compression.GZIP)
    header = batch.check(seen.data)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (1, NOW + 77, NOW - 5)


def test_a_batch_that_grows_beyond_the_topics_limit_is_refused():
    data = produced([(NOW, None, bytes(5000), ())], codec=compression.LZ4)
    assert validate(data, now_ms=NOW, max_message_bytes=1000).size < 1000
    refused(
        data, Errors.MESSAGE_TOO_LARGE, "has 50.. bytes after recompression", target_codec=0, max_message_bytes=1000
    )


@pytest.mark.parametrize("codec", [0, compression.GZIP])
def test_wrong_offset_deltas_are_renumbered(codec):
    wrong = b"".join(
        encode_varint(len(body)) + body
        for body in (
            b"\x00\x00" + encode_varint(delta) + b"\x01\x02" + text + b"\x00" for delta, text in [(7, b"a"), (7, b"b")]
        )
    )
    data = with_payload(produced(codec=codec), compression.compress(codec, wrong))
    seen = validate(memoryview(data), now_ms=NOW)
    assert seen.rebuilt
    assert [(one.offset, one.value) for one in records_of(seen.data, batch.check(seen.data))] == [(0, b"a"), (1, b"b")]


# Refused batches


@pytest.mark.parametrize("cut", range(len(produced())))
def test_a_batch_cut_at_any_byte_is_refused(cut):
    refused(produced()[:cut], Errors.INVALID_RECORD, "do not hold a complete batch")


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48])
def test_lengths_too_small_are_corrupt(length):
    refused(with_field(produced(), LENGTH, length), Errors.CORRUPT_MESSAGE, "too few for a batch")


def test_a_length_beyond_the_data_is_refused():
    refused(
        with_field(produced(), LENGTH, 2**31 - 1), Errors.INVALID_RECORD, "the batch has 2147483659 bytes by its length"
    )


@pytest.mark.parametrize(
    ("magic", "code"), [(0, "INVALID_RECORD"), (1, "INVALID_RECORD"), (3, "CORRUPT_MESSAGE"), (-1, "CORRUPT_MESSAGE")]
)
def test_other_formats_are_refused(magic, code):
    refused(with_field(produced(), MAGIC, magic), getattr(Errors, code), f"magic {magic}")


def test_more_than_one_batch_is_refused():
    refused(produced() + produced(), Errors.INVALID_RECORD, "more than one batch")
    refused(produced() + with_field(produced(), MAGIC, 1), Errors.INVALID_RECORD, "more than one batch")
    refused(produced() + bytes(20), Errors.CORRUPT_MESSAGE, "20 bytes after the batch are not a batch")


def test_every_flipped_bit_under_the_checksum_is_refused():
    data = produced()
    for position in range(17, len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x10
        refused(changed, Errors.CORRUPT_MESSAGE, "CRC")


def test_a_wrong_checksum_of_a_large_batch_is_refused():
    data = produced([(NOW, None, bytes(200_000), ())])
    data[-9] ^= 1
    refused(data, Errors.CORRUPT_MESSAGE, "CRC")


def test_base_offsets_other_than_zero_are_refused():
    refused(produced(base_offset=1), Errors.INVALID_RECORD, "base offset 1, not 0")


def test_the_size_limit_counts_the_whole_batch_and_comes_before_the_checksum():
    data = produced()
    validate(data, now_ms=NOW, max_message_bytes=len(data))
    data[-1] ^= 1
    refused(data, Errors.MESSAGE_TOO_LARGE, f"has {len(data)} bytes", max_message_bytes=len(data) - 1)


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        (COUNT, 0, "has the record count 0"),
        (COUNT, -1, "has the record count -1"),
        (COUNT, 3, "has the record count 3, but the last offset delta 1"),
        (COUNT, 2**31 - 1, "but the last offset delta 1"),
        (LAST, -1, "last offset delta -1"),
        (LAST, -(2**31), "last offset delta -2147483648"),
        (LAST, 2**31 - 1, "last offset delta 2147483647"),
        (ATTRIBUTES, 0x20, "control records"),
        (PRODUCER, 0, "producer 0 has the base sequence -1"),
    ],
)
def test_wrong_header_fields_are_refused(field, value, match):
    refused(with_field(produced(), field, value), Errors.INVALID_RECORD, match)


@CODECS
@pytest.mark.parametrize("count", [1, 3, 2**31 - 1])
def test_wrong_record_counts_are_refused_in_every_codec(codec, count):
    data = with_field(with_field(produced(codec=codec), COUNT, count), LAST, count - 1)
    refused(data, Errors.INVALID_RECORD, "left after the 1 records" if count == 1 else "before the end of record 2")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec):
    refused(with_field(produced(), ATTRIBUTES, codec), Errors.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec}")


# Refused records


@CODECS
def test_records_cut_at_any_byte_are_refused_in_every_codec(codec):
    plain = produced()[61:]
    for cut in range(len(plain)):
        data = with_payload(produced(codec=codec), compression.compress(codec, bytes(plain[:cut])))
        refused(data, Errors.INVALID_RECORD, "before the end of record")


@pytest.mark.parametrize("codec", range(1, 5), ids=compression.NAMES[1:])
def test_compressed_data_cut_at_any_byte_is_refused(codec):
    data = produced(codec=codec)
    for cut in range(len(data) - 61):
        refused(with_payload(data, data[61 : 61 + cut]), Errors.INVALID_RECORD)


@pytest.mark.parametrize("codec", range(1, 5), ids=compression.NAMES[1:])
def test_data_not_compressed_with_the_batchs_codec_are_refused(codec):
    refused(with_field(produced(), ATTRIBUTES, codec), Errors.INVALID_RECORD, compression.NAMES[codec])


@pytest.mark.parametrize("codec", range(1, 5), ids=compression.NAMES[1:])
def test_a_decompression_bomb_is_refused(codec):
    data = produced([(NOW, None, bytes(30_000_000), ())], codec=codec)
    refused(data, Errors.INVALID_RECORD, "unpacks to more than 1000000", max_decompressed=1_000_000)
    assert validate(data, now_ms=NOW).count == 1


def test_compacted_topics_need_keys_and_the_error_names_every_record_without_one():
    data = produced([(NOW, None, b"", ()), (NOW, b"", b"", ()), (NOW, None, b"", ())])
    error = refused(data, Errors.INVALID_RECORD, "2 records of the batch were refused", compact=True)
    assert error.record_errors == [(index, "a compacted topic requires a key in every record") for index in (0, 2)]
    validate(data, now_ms=NOW)


@CODECS
def test_the_error_names_timestamps_outside_of_the_window(codec):
    times = [NOW - 101, NOW - 100, NOW, NOW + 50, NOW + 51, -1]
    data = produced([(time, b"k", b"v", ()) for time in times], codec=codec)
    error = refused(data, Errors.INVALID_TIMESTAMP, "2 records", before_max_ms=100, after_max_ms=50)
    assert [index for index, _ in error.record_errors] == [0, 4]
    assert f"{NOW - 101} is not within [{NOW - 100}, {NOW + 50}]" in error.record_errors[0][1]
    validate(data, now_ms=NOW, timestamp_type=1, before_max_ms=100, after_max_ms=50)
    validate(data, now_ms=NOW)


def test_the_largest_window_accepts_all_nonnegative_timestamps():
    times = [0, 1, NOW, 2**62, 2**63 - 1]
    validate(produced([(time, b"k", b"v", ()) for time in times]), now_ms=NOW)


def test_an_invalid_timestamp_has_precedence_over_a_missing_key():
    data = produced([(NOW, None, b"", ()), (5, b"k", b"", ())])
    error = refused(data, Errors.INVALID_TIMESTAMP, compact=True, before_max_ms=10)
    assert [index for index, _ in error.record_errors] == [0, 1]


def test_append_time_set_by_the_producer_is_refused_on_an_append_time_topic():
    error = refused(produced(timestamp_type=1), Errors.INVALID_TIMESTAMP, timestamp_type=1)
    assert error.record_errors[0] == (0, "a producer may not set the timestamp type to LogAppendTime")


def test_the_error_counts_further_faults_that_it_does_not_name():
    error = refused(produced([(NOW, None, b"", ())] * 2500), Errors.INVALID_RECORD, "2500 records", compact=True)
    assert len(error.record_errors) == 1000


def test_refused_batches_are_not_changed():
    data = produced([(5, None, b"", ())])
    before = bytes(data)
    refused(memoryview(data), Errors.INVALID_TIMESTAMP, before_max_ms=10)
    assert data == before


# Pieces: the places at which a compressed payload is cut must not matter


MAYBE = st.none() | st.binary(max_size=40)
SOME_RECORDS = st.lists(
    st.tuples(st.integers(0, 2**41), MAYBE, MAYBE, st.lists(st.tuples(st.text(max_size=5), MAYBE), max_size=2)),
    min_size=1,
    max_size=8,
)


def walk_in_pieces(data, cuts):
    """Validate the payload as if a codec had returned it in these pieces."""
    payload = bytes(data[61:])
    edges = [0, *sorted(cut % (len(payload) + 1) for cut in cuts), len(payload)]
    parts = [payload[a:b] for a, b in itertools.pairwise(edges)]
    marked = with_field(data, ATTRIBUTES, batch.read_header(data).attributes | compression.GZIP)
    try:
        rules = validation.BatchRules(
            lambda codec, view: parts,
            lambda codec, plain: plain,
            timestamp_type=0,
            before_max_ms=NOW,
            after_max_ms=NOW,
            compact=True,
            target_codec=-1,
            max_message_bytes=-1,
        )
        seen = rules.validate(marked, NOW)
    except validation.InvalidBatch as error:
        return error.code, error.message, error.record_errors
    return seen.max_timestamp, seen.rebuilt


@given(SOME_RECORDS, st.lists(st.integers(0, 10**6), max_size=12), st.binary(max_size=3), st.integers(0, 10**6))
def test_payloads_in_pieces_are_validated_as_whole_ones(records, cuts, noise, place):
    data = produced(records)
    for payload in (bytes(data[61:]), bytes(data[61 : 61 + place % len(data)]), bytes(data[61:]) + noise):
        changed = with_payload(data, payload)
        assert walk_in_pieces(changed, cuts)[:1] == walk_in_pieces(changed, [])[:1]
    place = 61 + place % (len(data) - 61)
    broken = with_payload(data, bytes(data[61:place]) + noise + bytes(data[place + len(noise) :]))
    assert walk_in_pieces(broken, cuts)[:1] == walk_in_pieces(broken, [])[:1]


@pytest.mark.parametrize("target_magic", [1, 2])
def test_a_batch_for_which_there_is_no_memory_may_be_sent_again(monkeypatch, target_magic):
    def unpack(data, limit):
        raise MemoryError

    monkeypatch.setitem(compression._READERS, compression.GZIP, unpack)
    with pytest.raises(KafkaError) as caught:
        validate(produced(RECORDS[:1], codec=compression.GZIP), now_ms=NOW, target_magic=target_magic)
    assert caught.value.code == Errors.KAFKA_STORAGE_ERROR


def test_a_payload_in_single_bytes_is_read():
    data = produced([(NOW, b"k", bytes(1000), ())] * 3)
    assert walk_in_pieces(data, range(len(data))) == (NOW, False)


def marker(**fields):
    """Return a commit marker as a coordinator writes it."""
    record = (NOW, control.encode_key(control.COMMIT), encode_marker(3), ())
    return produced([record], producer_id=7, producer_epoch=1, transactional=True, control=True, **fields)


def test_a_coordinator_may_write_control_records_and_a_client_may_not():
    assert validate(marker(), now_ms=NOW, compact=True, of_client=False).is_control
    refused(marker(), Errors.INVALID_RECORD, "control records")


def test_a_coordinators_producer_needs_no_sequence():
    data = produced(producer_id=7, producer_epoch=1, transactional=True)
    found = validate(data, now_ms=NOW, of_client=False)
    assert (found.producer_id, found.base_sequence, found.is_transactional) == (7, -1, True)
    refused(produced(producer_id=7, producer_epoch=1), Errors.INVALID_RECORD, "base sequence")


def test_control_records_are_not_compressed_with_the_topics_codec():
    found = validate(marker(), now_ms=NOW, of_client=False, target_codec=compression.LZ4)
    assert (found.codec, found.rebuilt, found.is_control) == (compression.NONE, False, True)


@pytest.mark.parametrize("field", [COUNT, LAST], ids=["count", "last delta"])
def test_a_coordinators_batch_must_be_complete_too(field):
    refused(with_field(marker(), field, 2), Errors.INVALID_RECORD, of_client=False)
