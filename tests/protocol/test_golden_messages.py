"""Messages that Kafka 3.9.1 wrote, of every API and version, are decoded as by Kafka and encoded to the same bytes."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kafkapy._ext import codec
from kafkapy.protocol import headers, reference
from kafkapy.protocol.apis import API_VERSIONS, APIS, FETCH, METADATA, PRODUCE
from kafkapy.protocol.layout import Layout, Step
from tests.protocol.random_messages import layout_of

GOLDEN = Path(__file__).parents[1] / "data" / "messages" / "kafka-3.9.1.jsonl"


def golden() -> list[Any]:
    with GOLDEN.open(encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    return [pytest.param(case, id=f"{APIS[case['api']].name}-{case['side']}-{case['version']}") for case in cases]


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join("KRaft" if word == "kraft" else word.capitalize() for word in rest)


def uuid_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def picture(message: Any, layout: Layout) -> dict[str, Any]:
    """Return the message as Kafka's JSON converters print it."""
    content = {camel_case(step.name): value_picture(getattr(message, step.name), step) for step in layout.steps}
    defaults = layout.cls()
    for step in layout.tagged:
        value = getattr(message, step.name)
        if value != getattr(defaults, step.name):
            content[camel_case(step.name)] = value_picture(value, step)
    return content


def value_picture(value: Any, step: Step) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [value_picture(element, step) for element in value]
    if step.layout is not None:
        return picture(value, step.layout)
    pictures = {"uuid": uuid_text, "bytes": lambda data: base64.b64encode(data).decode(), "records": lambda _: ""}
    return pictures.get(step.kind, lambda same: same)(value)


@pytest.mark.parametrize("case", golden())
def test_kafkas_message_is_decoded_and_encoded_again(case: dict[str, Any]) -> None:
    api = APIS[case["api"]]
    layout = layout_of(api, case["side"], case["version"])
    data = bytes.fromhex(case["hex"])
    for program in (codec.Program(layout), reference.Program(layout)):
        message = program.decode(data)
        assert picture(message, layout) == case["content"]
        assert program.encode(message) == data


def test_every_version_of_every_api_has_a_golden_message() -> None:
    found = {(case.values[0]["api"], case.values[0]["side"], case.values[0]["version"]) for case in golden()}
    assert found == {
        (api.key, side, version)
        for api in APIS.values()
        for side in ("request", "response")
        for version in range(api.min_version, api.max_version + 1)
    }


# Frames written by hand from the protocol guide, KIP-482 and KIP-511.


def test_the_first_frame_of_librdkafka() -> None:
    """ApiVersions v3 is a flexible request, so it has header v2, whose client id keeps its int16 length."""
    frame = bytes.fromhex(
        "0012 0003 00000001 0007 72646b61666b61 00"  # api, version, correlation id, client id, no tagged fields
        "0b 6c696272646b61666b61 06 322e362e30 00"  # librdkafka, 2.6.0
    )
    header, offset = headers.read_request_header(frame)
    assert header == (18, 3, 1, "rdkafka")
    assert API_VERSIONS.decode_request(frame, 3, offset) == API_VERSIONS.Request(
        client_software_name="librdkafka", client_software_version="2.6.0"
    )


def test_a_metadata_request_for_all_topics_is_null_since_version_1_and_empty_in_version_0() -> None:
    assert METADATA.encode_request(METADATA.Request(), 0).hex() == "00000000"
    assert METADATA.encode_request(METADATA.Request(topics=None), 1).hex() == "ffffffff"
    assert METADATA.encode_request(METADATA.Request(topics=None), 12).hex(" ") == "00 01 00 00"


def test_a_produce_request_by_hand() -> None:
    topic = PRODUCE.Request.TopicData
    message = PRODUCE.Request(
        acks=-1,
        timeout_ms=30000,
        topic_data=[topic(name="t", partition_data=[topic.PartitionData(index=3, records=b"RR")])],
    )
    assert headers.request_frame(PRODUCE, 3, 5, "me", message) == bytes.fromhex(
        "00000029 0000 0003 00000005 0002 6d65"  # size, header v1
        "ffff ffff 00007530"  # no transactional id, acks, timeout
        "00000001 0001 74 00000001 00000003 00000002 5252"
    )
    assert headers.request_frame(PRODUCE, 9, 5, "me", message) == bytes.fromhex(
        "00000022 0000 0009 00000005 0002 6d65 00"  # header v2: the client id keeps its int16 length
        "00 ffff 00007530"
        "02 02 74 02 00000003 03 5252 00 00 00"
    )


def test_a_fetch_response_by_hand() -> None:
    topic = FETCH.Response.Responses
    part = topic.Partitions(
        partition_index=1, high_watermark=9, last_stable_offset=9, log_start_offset=0, records=b"RR",
        diverging_epoch=topic.Partitions.DivergingEpoch(epoch=2, end_offset=5),
    )  # fmt: skip
    message = FETCH.Response(session_id=7, responses=[topic(topic_id=bytes(15) + b"\x01", partitions=[part])])
    assert headers.response_frame(FETCH, 13, 5, message) == bytes.fromhex(
        "00000059 00000005 00"  # size, header v1
        "00000000 0000 00000007"
        "02 00000000000000000000000000000001"
        "02 00000001 0000 0000000000000009 0000000000000009 0000000000000000 01 ffffffff 03 5252"
        "01 00 0d 00000002 0000000000000005 00"  # one tagged field: tag 0, 13 bytes
        "00 00"
    )
