"""The contents and lengths of prebuilt requests."""

import zlib

import pytest

from kafkapy._ext.batch import read_header
from kafkapy.protocol.apis import FETCH, PRODUCE
from kafkapy.protocol.headers import read_request_header, response_frame
from perf import flights, frames
from perf.measurements import zero_copy


def test_values_have_the_requested_size_and_number() -> None:
    for values in (frames.plain_values(100, 3), frames.text_values(1024, 3)):
        assert len(values) == 3
    assert {len(value) for value in frames.plain_values(100, 3)} == {100}
    assert {len(value) for value in frames.text_values(1024, 3)} == {1024}
    assert len(set(frames.text_values(1024, 3))) == 3


def test_invented_flights_compress_as_the_real_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = zlib.compress(b"".join(frames.text_values(1024, 300)))
    monkeypatch.setattr(flights, "_file", lambda: None)
    invented = zlib.compress(b"".join(frames.text_values(1024, 300)))
    assert 0.8 < len(invented) / len(real) < 1.25
    assert "invented" in flights.source()


@pytest.mark.parametrize("size", [100, 1024])
def test_a_filled_batch_stays_within_its_limit(size: int) -> None:
    values = frames.plain_values(size, frames.records_that_fill(size))
    records = frames.batch(values)
    assert 0.9 * frames.BATCH_BYTES < len(records) <= frames.BATCH_BYTES
    assert read_header(records).count == len(values)


def test_a_batch_of_zero_copy_fits_into_the_smallest_response() -> None:
    values = frames.plain_values(zero_copy.SIZE, frames.records_that_fill(zero_copy.SIZE, zero_copy.BATCH))
    assert len(frames.batch(values)) <= zero_copy.BATCH <= min(zero_copy.SIZES)


def test_a_produce_frame_carries_the_batch() -> None:
    records = frames.batch(frames.plain_values(10, 2))
    frame = frames.produce("topic", records, frames.ACKS_ALL)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, body = read_request_header(frame[4:])
    request = PRODUCE.decode_request(frame[4:], header.api_version, body)
    assert request.acks == -1
    assert bytes(request.topic_data[0].partition_data[0].records) == records


def test_a_fetch_frame_asks_from_the_offset_it_is_given() -> None:
    fetch = frames.FetchFrame("topic")
    for offset in (0, 7, 1 << 40):
        frame = bytes(fetch.at(offset))
        header, body = read_request_header(frame[4:])
        request = FETCH.decode_request(frame[4:], header.api_version, body)
        assert request.topics[0].partitions[0].fetch_offset == offset


def answer(error: int, records: bytes) -> bytes:
    response = FETCH.Response
    partition = response.Responses.Partitions(
        partition_index=0, error_code=error, high_watermark=9, aborted_transactions=[], records=records
    )
    message = response(responses=[response.Responses(topic="topic", partitions=[partition])])
    return response_frame(FETCH, frames.FETCH_VERSION, 5, message)


def test_the_length_of_fetched_records_is_read_from_the_head_alone() -> None:
    fetch = frames.FetchFrame("topic")
    frame = answer(0, b"x" * 1234)
    assert fetch.records_in(frame[: fetch.head]) == 1234
    assert frame[fetch.head :] == b"x" * 1234


def test_an_error_in_a_fetch_response_stops_the_measurement() -> None:
    with pytest.raises(RuntimeError, match="error code 1"):
        frames.FetchFrame("topic").records_in(answer(1, b""))
