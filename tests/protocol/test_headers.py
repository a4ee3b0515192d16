"""Headers, whole frames, and the response to an ApiVersions request of an unknown version."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.errors import Errors, ProtocolError
from kafkapy.protocol import api_versions, headers
from kafkapy.protocol.apis import (
    API_VERSIONS,
    APIS,
    CONTROLLED_SHUTDOWN,
    DESCRIBE_CLUSTER,
    METADATA,
    PRODUCE,
    Api,
)
from tests.harness.varints import encode_uvarint
from tests.protocol.random_messages import layout_of, mutate, random_message


def versions() -> list[Any]:
    return [
        pytest.param(api, version, id=f"{api.name}-{version}")
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
    ]


@pytest.mark.parametrize(("api", "version"), versions())
def test_frames_of_every_version_are_read_back(api: Api, version: int) -> None:
    rng = random.Random(version)
    request = random_message(layout_of(api, "request", version), rng)
    frame = headers.request_frame(api, version, -2, "été", request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, offset = headers.read_request_header(memoryview(frame)[4:])
    client_id = "" if (api, version) == (CONTROLLED_SHUTDOWN, 0) else "été"  # the only header without a client id
    assert header == headers.RequestHeader(api.key, version, -2, client_id)
    assert api.decode_request(frame[4:], version, offset) == request

    response = random_message(layout_of(api, "response", version), rng)
    frame = headers.response_frame(api, version, 77, response)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, offset = headers.read_response_header(memoryview(frame)[4:], api, version)
    assert correlation_id == 77
    assert api.decode_response(frame[4:], version, offset) == response


def test_header_versions_by_hand() -> None:
    v1 = bytes.fromhex("0003 0008 00000007 0002 6d65")
    assert headers.read_request_header(v1) == ((3, 8, 7, "me"), len(v1))
    v2 = bytes.fromhex("0003 0009 00000007 0002 6d65 00")
    assert headers.read_request_header(v2) == ((3, 9, 7, "me"), len(v2))
    tagged = bytes.fromhex("0003 0009 00000007 0002 6d65 02 00 01 aa ff01 00")
    assert headers.read_request_header(tagged + b"body") == ((3, 9, 7, "me"), len(tagged))
    null_client = bytes.fromhex("0003 0008 00000007 ffff")
    assert headers.read_request_header(null_client) == ((3, 8, 7, ""), len(null_client))
    assert headers.request_frame(METADATA, 0, 7, None, METADATA.Request())[12:14] == b"\xff\xff"


def test_api_versions_is_always_answered_with_header_v0() -> None:
    frame = headers.response_frame(API_VERSIONS, 3, 7, API_VERSIONS.Response())
    assert frame[4:].hex(" ", 4) == "00000007 00000100 00000000"
    assert headers.read_response_header(frame[4:], API_VERSIONS, 3) == (7, 4)
    assert headers.response_frame(DESCRIBE_CLUSTER, 0, 7, DESCRIBE_CLUSTER.Response())[4:9].hex() == "0000000700"


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ("", "a frame of 0 bytes is too short for a request header"),
        ("0003 0009 000000", "a frame of 7 bytes is too short for a request header"),
        ("0003 0009 00000007", "Metadata v9: the frame ends before the client id"),
        ("0003 0009 00000007 00", "Metadata v9: the frame ends before the client id"),
        ("0003 0009 00000007 7fff 61", "Metadata v9: a client id of 32767 bytes with 1 bytes left"),
        ("0003 0009 00000007 0000", "Metadata v9: request header: the frame ends inside a varint at byte 10"),
        (
            "0003 0009 00000007 0000 01 00 05 aa",
            "Metadata v9: request header: a tagged field of 5 bytes with 1 bytes left",
        ),
        ("0003 0009 00000007 0000 01 00 ffffffff0f", "a tagged field of 4294967295 bytes with 0 bytes left"),
        (
            "0003 0009 00000007 0000 ffffffffff",
            "Metadata v9: request header: the varint at byte 10 is longer than 5 bytes",
        ),
    ],
)
def test_a_broken_header_is_refused_with_the_reason(frame: str, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        headers.read_request_header(bytes.fromhex(frame))


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (3, 13), (3, -1), (18, 5), (0, 12)])
def test_the_error_names_an_unknown_api_or_version(key: int, version: int) -> None:
    frame = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x07garbage"
    with pytest.raises(headers.UnsupportedApi) as refused:
        headers.read_request_header(frame)
    assert (refused.value.api_key, refused.value.api_version, refused.value.correlation_id) == (key, version, 7)
    assert str(version if key in APIS else key) in str(refused.value)


@given(seed=st.integers(0, 2**64 - 1), version=st.integers(3, 11))
def test_damaged_headers_are_read_or_refused_and_never_end_beyond_the_frame(seed: int, version: int) -> None:
    rng = random.Random(seed)
    frame = headers.request_frame(PRODUCE, version, 1, "client", PRODUCE.Request())[4:]
    damaged = frame[:4] + mutate(frame[4:], rng)
    try:
        header, offset = headers.read_request_header(damaged)
    except ProtocolError:
        return
    assert (header.api_key, header.api_version) == (0, version)
    assert 10 <= offset <= len(damaged)


def test_a_broken_response_header_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a frame of 3 bytes is too short for a response header"):
        headers.read_response_header(bytes(3), METADATA, 9)
    with pytest.raises(ProtocolError, match="Metadata v9: response header"):
        headers.read_response_header(bytes(4), METADATA, 9)


def test_api_versions_of_an_unknown_version_gets_the_range_of_the_known_ones() -> None:
    frame = bytes.fromhex("0012 7fff 00000007") + b"what this version looks like, nobody knows"
    with pytest.raises(headers.UnsupportedApi) as refused:
        headers.read_request_header(frame)
    message = api_versions.unsupported({0: (3, 11), 18: (0, 4)})
    answer = headers.response_frame(API_VERSIONS, 0, refused.value.correlation_id, message)
    assert answer == bytes.fromhex("00000010 00000007 0023 00000001 0012 0000 0004")


def test_api_versions_lists_the_served_apis() -> None:
    response = api_versions.versions_response({18: (0, 4), 0: (3, 11)})
    assert response.error_code == Errors.NONE
    assert [(entry.api_key, entry.min_version, entry.max_version) for entry in response.api_keys] == [
        (0, 3, 11),
        (18, 0, 4),
    ]


def test_a_header_with_too_many_tagged_fields_is_refused_unread() -> None:
    start = bytes.fromhex("0003 0009 00000007 0002 6d65")
    some = start + encode_uvarint(1000) + bytes(2 * 1000)
    assert headers.read_request_header(some)[1] == len(some)
    with pytest.raises(ProtocolError, match="1001 tagged fields"):
        headers.read_request_header(start + encode_uvarint(1001) + bytes(2 * 1001))


def test_a_client_id_that_could_not_be_encoded_again_is_refused() -> None:
    head = bytes.fromhex("0003 0001 00000007")
    with pytest.raises(ProtocolError, match="a client id of 10923 bytes that is not UTF-8"):
        headers.read_request_header(head + (10923).to_bytes(2, "big") + b"\xff" * 10923)
    header, _ = headers.read_request_header(head + (10922).to_bytes(2, "big") + b"\xff" * 10922)
    assert header.client_id == "\ufffd" * 10922
