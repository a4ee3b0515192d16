"""The hand-written code for Produce, Fetch and OffsetCommit compared with the codec: the same values, bytes and
errors."""

import gc
import os
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext import hotpath
from kafkapy._ext.commit_requests import CommitRequest, decode_commit_frame
from kafkapy._ext.hotpath import encode_fetch_response
from kafkapy.errors import ProtocolError
from kafkapy.protocol import headers
from kafkapy.protocol.apis import FETCH, MAX_REQUEST_ELEMENTS, METADATA, OFFSET_COMMIT, PRODUCE, Api
from kafkapy.protocol.compiler import ZERO_UUID
from kafkapy.record.file_region import CutOff, FileHandle, FileRegion
from tests.harness.examples import examples
from tests.protocol.random_messages import layout_of, mutate, random_message

PRODUCE_VERSIONS = range(12)
FETCH_VERSIONS = range(18)
COMMIT_VERSIONS = range(10)
REQUESTS = (hotpath.ProduceRequest, hotpath.FetchRequest, CommitRequest)
CLIENT_IDS = (None, "", "rdkafka", "été", "c" * 300)


class Region:
    """Records with a length that are not in memory, as in a FileRegion."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.length = len(content)


def expected_produce(frame: bytes) -> dict[str, Any]:
    header, offset = headers.read_request_header(frame)
    request = PRODUCE.decode_request(frame, header.api_version, offset)
    return {
        "api_version": header.api_version,
        "correlation_id": header.correlation_id,
        "client_id": header.client_id,
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout_ms": request.timeout_ms,
        "topics": [
            (topic.name, [(part.index, part.records) for part in topic.partition_data]) for topic in request.topic_data
        ],
    }


def expected_fetch(frame: bytes) -> dict[str, Any]:
    header, offset = headers.read_request_header(frame)
    request = FETCH.decode_request(frame, header.api_version, offset)
    state = request.replica_state
    of_state = header.api_version >= 15
    return {
        "api_version": header.api_version,
        "correlation_id": header.correlation_id,
        "client_id": header.client_id,
        "cluster_id": request.cluster_id,
        "replica_id": state.replica_id if of_state else request.replica_id,
        "replica_epoch": state.replica_epoch,
        "max_wait_ms": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": [
            (
                topic.topic,
                topic.topic_id,
                [
                    (
                        part.partition,
                        part.current_leader_epoch,
                        part.fetch_offset,
                        part.last_fetched_epoch,
                        part.log_start_offset,
                        part.partition_max_bytes,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        "forgotten": [(topic.topic, topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data],
        "rack_id": request.rack_id,
    }


def expected_commit(frame: bytes) -> dict[str, Any]:
    header, offset = headers.read_request_header(frame)
    request = OFFSET_COMMIT.decode_request(frame, header.api_version, offset)
    return {
        "api_version": header.api_version,
        "correlation_id": header.correlation_id,
        "client_id": header.client_id,
        "group_id": request.group_id,
        "generation": request.generation_id_or_member_epoch,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "retention_time_ms": request.retention_time_ms,
        "offsets": [
            (
                topic.name,
                [
                    (
                        part.partition_index,
                        part.committed_offset,
                        part.committed_leader_epoch,
                        part.committed_metadata or "",
                        part.commit_timestamp,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        "count": max(sum(len(topic.partitions) for topic in request.topics), len(request.topics)),
    }


def found(request: Any, names: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(request, name) for name in names}


def outcome(action: Any, frame: bytes) -> Any:
    try:
        return action(frame)
    except headers.UnsupportedApi:
        return None
    except ProtocolError:
        return ProtocolError


CASES = [
    *((PRODUCE, version, hotpath.decode_produce_frame, expected_produce) for version in PRODUCE_VERSIONS),
    *((FETCH, version, hotpath.decode_fetch_frame, expected_fetch) for version in FETCH_VERSIONS),
    *((OFFSET_COMMIT, version, decode_commit_frame, expected_commit) for version in COMMIT_VERSIONS),
]


@pytest.mark.parametrize(("api", "version", "decode", "expected"), CASES)
def test_request_frames_are_read_as_the_codec_reads_them(api: Api, version: int, decode: Any, expected: Any) -> None:
    layout = layout_of(api, "request", version)

    @settings(max_examples=examples(15), deadline=None)
    @given(seed=st.integers(0, 2**64 - 1))
    def run(seed: int) -> None:
        rng = random.Random(seed)
        message = random_message(layout, rng)
        frame = headers.request_frame(api, version, rng.randrange(1 << 31), rng.choice(CLIENT_IDS), message)[4:]
        values = expected(frame)
        assert found(decode(frame), values) == values
        for _ in range(25):
            damaged = frame[:4] + mutate(frame[4:], rng)
            values = outcome(expected, damaged) if len(damaged) >= 8 else None
            request = outcome(decode, damaged)
            if isinstance(values, dict) and isinstance(request, REQUESTS):
                request = found(request, values)
            assert request == values

    run()


@pytest.mark.parametrize(("api", "version", "decode", "expected"), CASES)
def test_every_prefix_of_a_frame_is_refused(api: Api, version: int, decode: Any, expected: Any) -> None:
    message = random_message(layout_of(api, "request", version), random.Random(version))
    frame = headers.request_frame(api, version, 1, "client", message)[4:]
    for end in range(8, len(frame)):
        with pytest.raises(ProtocolError, match=rf"^{api.name} request v{version}: "):
            decode(frame[:end])


@settings(max_examples=examples(400), deadline=None)
@given(key=st.sampled_from([0, 1, 8]), version=st.integers(0, 17), rest=st.binary(max_size=120))
def test_any_bytes_are_read_or_refused_as_by_the_codec(key: int, version: int, rest: bytes) -> None:
    frame = bytes([0, key, 0, version]) + rest
    decode, expected, last = {
        0: (hotpath.decode_produce_frame, expected_produce, 11),
        1: (hotpath.decode_fetch_frame, expected_fetch, 17),
        8: (decode_commit_frame, expected_commit, 9),
    }[key]
    request = outcome(decode, frame)
    if request is None:
        assert len(frame) < 8 or version > last
        return
    values = outcome(expected, frame)
    assert (request if values is ProtocolError else found(request, values)) == values


def test_frames_of_other_apis_and_versions_are_left_to_the_general_path() -> None:
    metadata = headers.request_frame(METADATA, 9, 1, "c", METADATA.Request())[4:]
    new_produce = bytes.fromhex("0000 000c 00000001 0000")
    new_fetch = bytes.fromhex("0001 0012 00000001 0000")
    for frame in (metadata, new_produce, new_fetch, b"", bytes(7), bytes.fromhex("0000 ffff 00000001 0000")):
        assert hotpath.decode_produce_frame(frame) is None
        assert hotpath.decode_fetch_frame(frame) is None
        assert decode_commit_frame(frame) is None


def test_records_are_writable_slices_of_the_frame() -> None:
    request = PRODUCE.Request
    topic = request.TopicData
    part = topic.PartitionData
    message = request(topic_data=[topic(name="t", partition_data=[part(index=0, records=b"ab"), part(index=1)])])
    frame = bytearray(headers.request_frame(PRODUCE, 9, 1, "c", message)[4:])
    decoded = hotpath.decode_produce_frame(memoryview(frame))
    [(_, [(_, records), (_, nothing)])] = decoded.topics
    assert nothing is None
    assert decoded.size == 2
    at = frame.index(b"ab")
    records[:] = b"cd"
    assert frame[at : at + 2] == b"cd"


def test_names_that_come_again_are_the_same_object_and_made_up_ones_do_not_pile_up() -> None:
    def name_in(name: str) -> str:
        topic = PRODUCE.Request.TopicData(name=name)
        frame = headers.request_frame(PRODUCE, 9, 1, "c", PRODUCE.Request(topic_data=[topic]))[4:]
        decoded: str = hotpath.decode_produce_frame(frame).topics[0][0]
        return decoded

    assert name_in("flights-again") is name_in("flights-again")
    for number in range(5000):
        assert name_in(f"made-up-{number}") == f"made-up-{number}"
    assert name_in("flights-again") is name_in("flights-again")


@pytest.mark.parametrize(
    ("api", "version", "decode", "body"),
    [
        (PRODUCE, 3, hotpath.decode_produce_frame, "ffff 0001 00000000"),
        (FETCH, 4, hotpath.decode_fetch_frame, "ffffffff 00000000 00000000 00000000 00"),
    ],
)
def test_a_request_of_a_million_tiny_elements_is_refused(api: Api, version: int, decode: Any, body: str) -> None:
    """The elements are topics without name and partitions. The codec has the same limit."""
    head = bytes.fromhex(f"00 {api.key:02x} 0003 00000001 ffff")
    head = head[:3] + bytes([version]) + head[4:] + bytes.fromhex(body)
    for count, refused in ((MAX_REQUEST_ELEMENTS + 1, True), (3, False)):
        frame = head + count.to_bytes(4, "big") + bytes(6 * count)
        if refused:
            with pytest.raises(ProtocolError, match="more than 1000000 elements"):
                decode(frame)
            with pytest.raises(ProtocolError, match="more than 1000000 elements"):
                api.decode_request(frame, version, 10)
        else:
            assert len(decode(frame).topics) == count


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_responses_are_the_codecs_bytes(version: int) -> None:
    layout = layout_of(PRODUCE, "response", version)

    @settings(max_examples=examples(15), deadline=None)
    @given(seed=st.integers(0, 2**64 - 1))
    def run(seed: int) -> None:
        rng = random.Random(seed)
        message = random_message(layout, rng)
        message.node_endpoints = []
        topics = []
        for topic in message.responses:
            parts = []
            for part in topic.partition_responses:
                part.current_leader = layout.cls.Responses.PartitionResponses.CurrentLeader()
                errors = [(error.batch_index, error.batch_index_error_message) for error in part.record_errors]
                parts.append(
                    (
                        part.index,
                        part.error_code,
                        part.base_offset,
                        part.log_append_time_ms,
                        part.log_start_offset,
                        errors or rng.choice((None, [])),
                        part.error_message,
                    )
                )
            topics.append((topic.name, parts))
        frame = hotpath.encode_produce_response(version, 77, topics, message.throttle_time_ms)
        assert frame == headers.response_frame(PRODUCE, version, 77, message)

    run()


def tagged(diverging: Any, leader: Any) -> tuple[Any, Any] | None:
    """Return the tagged fields of a partition as `encode_fetch_response` takes them."""
    epoch_end = diverging.epoch, diverging.end_offset
    leader_epoch = leader.leader_id, leader.leader_epoch
    fields = (None if epoch_end == (-1, -1) else epoch_end, None if leader_epoch == (-1, -1) else leader_epoch)
    return None if fields == (None, None) else fields


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_responses_are_the_codecs_bytes_with_regions_between_them(version: int) -> None:
    layout = layout_of(FETCH, "response", version)

    @settings(max_examples=examples(15), deadline=None)
    @given(seed=st.integers(0, 2**64 - 1))
    def run(seed: int) -> None:
        rng = random.Random(seed)
        message = random_message(layout, rng)
        endpoints = [(one.node_id, one.host, one.port, one.rack) for one in message.node_endpoints]
        topics, regions = [], []
        for topic in message.responses:
            parts = []
            for part in topic.partitions:
                cls = type(part)
                part.snapshot_id = cls.SnapshotId()
                if rng.random() < 0.3:
                    part.diverging_epoch = cls.DivergingEpoch()
                if rng.random() < 0.3:
                    part.current_leader = cls.CurrentLeader()
                if part.records is not None and rng.random() < 0.2:
                    part.records = rng.randbytes(5000)
                records = part.records
                if records is not None and rng.random() < 0.5:
                    records = Region(part.records)
                    regions.append(records)
                aborted = part.aborted_transactions
                parts.append(
                    (
                        part.partition_index,
                        part.error_code,
                        part.high_watermark,
                        part.last_stable_offset,
                        part.log_start_offset,
                        None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted],
                        part.preferred_read_replica,
                        records,
                        tagged(part.diverging_epoch, part.current_leader),
                    )
                )
            topics.append((topic.topic, topic.topic_id, parts))
        sent = hotpath.encode_fetch_response(
            version, 77, message.throttle_time_ms, message.error_code, message.session_id, topics, endpoints
        )
        assert [part for part in sent if isinstance(part, Region)] == [region for region in regions if region.length]
        content = b"".join(part.content if isinstance(part, Region) else part for part in sent)
        assert content == headers.response_frame(FETCH, version, 77, message)

    run()


def test_large_bytes_are_a_part_of_their_own_and_small_ones_are_not() -> None:
    def parts_of(*records: Any) -> list[Any]:
        parts = [(index, 0, 9, 9, 0, None, -1, data, None) for index, data in enumerate(records)]
        return hotpath.encode_fetch_response(11, 1, 0, 0, 0, [("t", ZERO_UUID, parts)])

    large = bytearray(4097)
    assert len(parts_of(b"small", b"", None)) == 1
    assert [part is large for part in parts_of(b"small", large)] == [False, True]
    assert [part is large for part in parts_of(large, b"small")] == [False, True, False]


@pytest.mark.parametrize(
    ("length", "sentence"),
    [(-2, "records of -2 bytes"), (1 << 31, "records of 2147483648 bytes"), ((1 << 31) - 2, "a response of 21474837")],
)
def test_a_response_that_is_no_frame_is_refused(length: int, sentence: str) -> None:
    region = Region(b"")
    region.length = length
    parts = [(0, 0, 9, 9, 0, None, -1, region, None)]
    with pytest.raises(ValueError, match=sentence):
        hotpath.encode_fetch_response(11, 1, 0, 0, 0, [("t", ZERO_UUID, parts)])


def test_values_that_do_not_fit_are_refused() -> None:
    long = "x" * 32768
    with pytest.raises(ValueError, match="a string of 32768 bytes"):
        hotpath.encode_produce_response(8, 1, [("t", [(0, 1, -1, -1, -1, None, long)])])
    with pytest.raises(OverflowError):
        hotpath.encode_produce_response(8, 1, [("t", [(1 << 31, 0, 0, -1, 0, None, None)])])
    with pytest.raises(ValueError, match="is not a uuid"):
        hotpath.encode_fetch_response(13, 1, 0, 0, 0, [("", b"short", [])])
    with pytest.raises(ValueError, match="versions 0 to 11, not 12"):
        hotpath.encode_produce_response(12, 1, [])
    with pytest.raises(ValueError, match="versions 0 to 17, not 18"):
        hotpath.encode_fetch_response(18, 1, 0, 0, 0, [])


def test_a_message_that_is_no_unicode_is_written_as_the_codec_does() -> None:
    message = "log directory /data/\udcff is offline"
    make = PRODUCE.Response
    part = make.Responses.PartitionResponses(
        index=0, error_code=56, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1, error_message=message
    )
    answer = make(responses=[make.Responses(name="t", partition_responses=[part])])
    expected = headers.response_frame(PRODUCE, 11, 77, answer)
    assert hotpath.encode_produce_response(11, 77, [("t", [(0, 56, -1, -1, -1, None, message)])]) == expected


def test_the_collection_of_garbage_goes_on_after_a_large_request() -> None:
    """Garbage collection is off while a large request is decoded, since it would take most of the time."""
    message = PRODUCE.Request(
        acks=1,
        topic_data=[
            PRODUCE.Request.TopicData(
                name="t",
                partition_data=[PRODUCE.Request.TopicData.PartitionData(index=0, records=bytes(2 << 20))] * 3,
            )
        ],
    )
    frame = headers.request_frame(PRODUCE, 9, 1, "client", message)[4:]
    for data in (frame, frame[:-1]):
        for collecting in (True, False):
            (gc.enable if collecting else gc.disable)()
            try:
                request = hotpath.decode_produce_frame(data)
                assert data is frame
                assert [len(records) for _, records in request.topics[0][1]] == [2 << 20] * 3
            except ProtocolError:
                assert data is not frame
            finally:
                assert gc.isenabled() == collecting
                gc.enable()


def test_a_string_that_could_not_be_written_again_is_refused() -> None:
    for length, is_read in ((10922, True), (10923, False)):
        frame = bytes.fromhex("0000 0003 00000001 ffff") + length.to_bytes(2, "big") + b"\xff" * length
        frame += bytes.fromhex("ffff 00001388 00000000")
        if is_read:
            request = hotpath.decode_produce_frame(frame)
            assert request is not None
            assert request.transactional_id == "\ufffd" * length
        else:
            with pytest.raises(ProtocolError, match=r"a string before byte \d+ that is not UTF-8"):
                hotpath.decode_produce_frame(frame)


def region_of(path, content, position=0, length=None):
    path.write_bytes(content)
    handle = FileHandle(os.open(path, os.O_RDONLY), path)
    handle.cut_off = CutOff()
    return FileRegion(handle, position, len(content) if length is None else length)


def fetched(*records):
    partitions = [(index, 0, 9, 9, 0, None, -1, one, None) for index, one in enumerate(records)]
    return encode_fetch_response(12, 1, 0, 0, 7, [("t", bytes(16), partitions)])


def test_small_regions_in_memory_are_read_into_the_response(tmp_path):
    content = bytes(range(200))
    region = region_of(tmp_path / "log", content, 50, 100)
    assert fetched(region) == fetched(content[50:150])
    assert b"".join(fetched(region, b"more")) == b"".join(fetched(content[50:150], b"more"))


def test_the_regions_that_a_response_holds_in_memory_are_limited(tmp_path):
    region = region_of(tmp_path / "log", bytes(4096))
    parts = fetched(*[region] * 10)
    assert sum(part is region for part in parts) == 6
    assert fetched(region_of(tmp_path / "large", bytes(4097)))[1].length == 4097


@pytest.mark.parametrize("what", ["truncated", "shorter than the region", "of records to convert"])
def test_other_regions_are_left_to_the_sender(tmp_path, what):
    region = region_of(tmp_path / "log", bytes(100), 0, 101 if what == "shorter than the region" else None)
    if what == "truncated":
        region.handle.cut_off.truncated(50)
    elif what == "of records to convert":
        region = SimpleNamespace(length=100)
    assert fetched(region)[1] is region
