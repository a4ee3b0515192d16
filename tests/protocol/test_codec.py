"""The fast codec and the plain one give the same values, bytes and errors for every API and version."""

import random
import re
import sys
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext import codec
from kafkapy.errors import KafkaError, ProtocolError, UnsupportedVersion
from kafkapy.protocol import reference
from kafkapy.protocol.apis import APIS, MAX_REQUEST_ELEMENTS, METADATA, UPDATE_METADATA, Api
from kafkapy.protocol.compiler import parse
from kafkapy.protocol.layout import Layout, lay_out
from kafkapy.protocol.message import make_class
from tests.harness.examples import examples
from tests.protocol.random_messages import as_tuple, layout_of, mutate, random_message

EVERY_TYPE = """
api 999 EveryType    versions 0-3    flexible 2+

request
  an_int8          int8
  an_int16         int16             default -7
  an_int32         int32             default 0x7fffffff
  an_int64         int64      1+     default -1
  a_bool           bool              default true
  a_float64        float64           default 0.5
  a_uuid           uuid
  a_string         string            default hello
  a_null_string    string            nullable  default null
  some_bytes       bytes
  null_bytes       bytes             nullable
  some_records     records           nullable
  a_struct         struct
    inner          int32
  a_null_struct    struct     1+     nullable 2+  default null
    inner          int32
  numbers          []int64           nullable 1+
  flags            []bool
  ids              []uuid
  texts            []string
  doubles          []float64  3+     ignorable
  blobs            []bytes
  shorts           []int16
  bytes            []int8
  structs          []
    name           string
    deeper         []         2+
      deepest      int8
  tagged_int       int32      2+     default 5  tag 1
  tagged_array     []int32    2+     tag 0
  tagged_struct    struct     2+     tag 300
    x              int32             default 1
    y              string            nullable  default null  tag 0
  tagged_null      string     3+     nullable  default null  tag 2  ignorable
  tagged_null_struct  struct  2+     nullable  tag 4
    x              int8
response
"""


def every_type(version: int) -> Layout:
    schema = parse(EVERY_TYPE, "every_type.schema")
    cls = make_class("EveryTypeRequest", schema.request, __name__)
    return lay_out(cls, schema.request, schema.head, version, f"EveryType request v{version}")


def layouts() -> list[Any]:
    cases = [pytest.param(every_type(version), id=f"EveryType-{version}") for version in range(4)]
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            for side in ("request", "response"):
                cases.append(pytest.param(layout_of(api, side, version), id=f"{api.name}-{side}-{version}"))
    return cases


def outcome(action: Any, *arguments: Any) -> Any:
    """Return a call's result, or the class and text of its error."""
    try:
        return action(*arguments)
    except (ProtocolError, KafkaError, ValueError) as error:
        return type(error), str(error)


def plain(message: Any) -> Any:
    """Return a value for comparisons: NaN is not equal to itself, but its text is."""
    text = re.sub(r"<memory at 0x[0-9a-f]+>", "<memory>", repr(message))
    return text if "nan" in text else message


@pytest.mark.parametrize("layout", layouts())
def test_round_trips_and_both_codecs_agree(layout: Layout) -> None:
    fast, slow = codec.Program(layout), reference.Program(layout)

    @settings(max_examples=examples(6), deadline=None)
    @given(seed=st.integers(0, 2**64 - 1))
    def run(seed: int) -> None:
        rng = random.Random(seed)
        message = random_message(layout, rng)
        data = slow.encode(message)
        assert fast.encode(message) == data
        assert fast.encode(as_tuple(message)) == data == slow.encode(as_tuple(message))
        assert fast.encode_frame(b"head", message) == (len(data) + 4).to_bytes(4, "big") + b"head" + data
        assert slow.encode_frame(b"head", message) == fast.encode_frame(b"head", message)
        assert fast.decode(data) == message == slow.decode(data)
        framed = b"before" + data + b"trailing bytes are not looked at"
        assert fast.decode(memoryview(framed), 6) == message == slow.decode(memoryview(framed), 6)
        for _ in range(12):
            damaged = mutate(data, rng)
            assert plain(outcome(fast.decode, damaged)) == plain(outcome(slow.decode, damaged))

    run()


@pytest.mark.parametrize("version", range(4))
def test_every_prefix_of_a_message_is_refused(version: int) -> None:
    layout = every_type(version)
    data = codec.Program(layout).encode(random_message(layout, random.Random(version)))
    for end in range(len(data)):
        for program in (codec.Program(layout), reference.Program(layout)):
            with pytest.raises(ProtocolError, match=f"^EveryType request v{version}: "):
                program.decode(data[:end])


@settings(max_examples=examples(300), deadline=None)
@given(data=st.binary(max_size=200), version=st.integers(0, 3))
def test_both_codecs_agree_on_any_bytes(data: bytes, version: int) -> None:
    fast = outcome(codec.Program(every_type(version)).decode, data)
    slow = outcome(reference.Program(every_type(version)).decode, data)
    assert plain(fast) == plain(slow)


def small(text: str) -> tuple[Any, Any, Any]:
    """Return the message class of a request, version 0 flexible or not, and both codecs for it."""
    schema = parse(text, "small.schema")
    cls = make_class("SmallRequest", schema.request, __name__)
    layout = lay_out(cls, schema.request, schema.head, schema.head.versions.last, "Small request v0")
    return cls, codec.Program(layout), reference.Program(layout)


def one_field(field: str, flexible: str = "none") -> tuple[Any, Any, Any]:
    return small(f"api 9 Small versions 0 flexible {flexible}\nrequest\n  x {field}\nresponse\n")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("int8", 128),
        ("int8", -129),
        ("int16", 1 << 15),
        ("int32", -(1 << 31) - 1),
        ("int64", 1 << 63),
        ("int64", 1 << 200),
        ("int32", 1.0),
        ("int32", "1"),
        ("int32", None),
        ("float64", "1"),
        ("float64", 10**400),
        ("uuid", bytes(15)),
        ("uuid", "0123456789abcdef"),
        ("uuid", bytearray(16)),
        ("string", b"bytes"),
        ("string", None),
        ("string", "é" * 16384),
        ("bytes", "text"),
        ("bytes", 7),
        ("bytes", None),
        ("bytes", memoryview(b"abcdef")[::2]),
        ("records", None),
        ("[]int32", None),
        ("[]int32", 7),
        ("[]int32", {1, 2}),
        ("[]int32", [None]),
        ("[]string nullable", [None]),
        ("[]string", "text"),
    ],
)
@pytest.mark.parametrize("flexible", ["none", "0+"])
def test_a_value_that_does_not_fit_is_refused_by_name(field: str, value: object, flexible: str) -> None:
    cls, fast, slow = one_field(field, flexible)
    with pytest.raises(ValueError, match=r"^Small request v0: x: ") as refused:
        fast.encode(cls(x=value))
    assert outcome(slow.encode, cls(x=value)) == (ValueError, str(refused.value))


def test_a_tuple_without_all_fields_is_refused() -> None:
    _, fast, slow = one_field("int32")
    with pytest.raises(ValueError, match=r"^Small request v0: x: \(\) does not have all fields"):
        fast.encode(())
    assert outcome(slow.encode, ()) == outcome(fast.encode, ())


@pytest.mark.parametrize(
    ("field", "flexible", "data", "error"),
    [
        ("int32", "none", "00 00 00", "x: 4 bytes wanted at byte 0 with 3 bytes left"),
        ("string", "none", "ff ff", "x: null is not allowed here"),
        ("string", "none", "80 00", "x: null is not allowed here"),
        ("string", "none", "00 05 61", "x: 5 bytes wanted at byte 2 with 1 bytes left"),
        ("string", "0+", "81 80 02", "x: a string of 32768 bytes is longer than 32767"),
        (
            "string",
            "none",
            "2a ab" + 10923 * "ff",
            "x: a string that is not UTF-8, and 32769 bytes long with U+FFFD for its invalid bytes",
        ),
        ("string", "0+", "ff ff ff ff ff", "x: the varint at byte 0 is longer than 5 bytes"),
        ("bytes", "0+", "80 80 80 80 00", "x: null is not allowed here"),
        ("bytes", "0+", "ff ff ff ff 7f", "x: 4294967294 bytes wanted at byte 5 with 0 bytes left"),
        ("string", "0+", "ff ff", "x: 3 bytes wanted at byte 0 with 2 bytes left"),
        ("bytes", "0+", "ff ff ff ff 0f", "x: 4294967294 bytes wanted at byte 5 with 0 bytes left"),
        ("[]int8", "none", "7f ff ff ff 00", "x: 2147483647 elements claimed at byte 4 with 1 bytes left"),
        ("[]int8", "none", "ff ff ff fe", "x: null is not allowed here"),
        ("int8 tag 3", "0+", "01 03 02 00 00", "x: the field ends at byte 4, but its size says byte 5"),
        ("int8 tag 3", "0+", "01 03 00 00", "x: the field ends at byte 4, but its size says byte 3"),
        ("int8 tag 3", "0+", "01 04 05 00", "(tagged fields): 5 bytes wanted at byte 3 with 1 bytes left"),
        ("int8 tag 3", "0+", "ff ff ff ff 0f", "(tagged fields): 1 bytes wanted at byte 5 with 0 bytes left"),
    ],
)
def test_a_broken_message_is_refused_by_name(field: str, flexible: str, data: str, error: str) -> None:
    _, fast, slow = one_field(field, flexible)
    for program in (fast, slow):
        with pytest.raises(ProtocolError) as refused:
            program.decode(bytes.fromhex(data))
        assert str(refused.value) == f"Small request v0: {error}"


def test_the_longest_invalid_utf8_string_can_be_encoded_again() -> None:
    _, fast, slow = one_field("string", "none")
    for program in (fast, slow):
        found = program.decode(bytes.fromhex("2a aa" + 10922 * "ff"))
        assert found.x == "\ufffd" * 10922
        assert len(program.encode(found)) == 2 + 32766


def test_unknown_tagged_fields_are_skipped() -> None:
    cls, fast, slow = one_field("int8 tag 3", "0+")
    data = bytes.fromhex("03  00 02 ff ff  03 01 07  7f 00")
    assert fast.decode(data) == slow.decode(data) == cls(x=7)


def test_text_that_is_not_utf8_becomes_replacement_characters_and_lone_surrogates_question_marks() -> None:
    cls, fast, slow = one_field("string")
    data = bytes.fromhex("0003 61ff62")
    assert fast.decode(data) == slow.decode(data) == cls(x="a\ufffdb")
    assert fast.encode(cls(x="a\udcffb")) == slow.encode(cls(x="a\udcffb")) == b"\0\x03a?b"


def test_records_are_writable_slices_of_the_buffer() -> None:
    _, fast, slow = one_field("records nullable")
    for program in (fast, slow):
        frame = bytearray.fromhex("ff 00000002 0102")
        records = program.decode(memoryview(frame), 1).x
        records[0] = 0xAA
        assert frame[5:] == b"\xaa\x02"
        assert program.decode(bytes.fromhex("ffffffff")).x is None


@pytest.mark.parametrize("offset", [-1, 5, 2**62, -(2**62)])
def test_an_offset_outside_of_the_buffer_is_refused(offset: int) -> None:
    _, fast, slow = one_field("bytes")
    for program in (fast, slow):
        with pytest.raises(ValueError, match=str(offset)):
            program.decode(bytes(4), offset)


def test_any_bytes_like_object_can_be_written_and_read() -> None:
    cls, fast, slow = one_field("bytes")
    for value in (b"ab", bytearray(b"ab"), memoryview(b"xaby")[1:3]):
        assert fast.encode(cls(x=value)) == slow.encode(cls(x=value)) == b"\0\0\0\x02ab"
    for buffer in (b"\0\0\0\x02ab", bytearray(b"\0\0\0\x02ab"), memoryview(b"\0\0\0\x02ab")):
        assert fast.decode(buffer) == slow.decode(buffer) == cls(x=b"ab")


TWO_VERSIONS = "api 9 Small versions 0-1 flexible {}\nrequest\n  x {}\nresponse\n"


@pytest.mark.parametrize(
    ("field", "ignorable", "default", "other"),
    [
        ("int32 1", False, 0, 1),
        ("int32 1 default -1", False, -1, 0),
        ("int32 1 ignorable", True, 0, 1),
        ("string 1 nullable default null", False, None, ""),
        ("string 1 nullable", False, "", None),
        ("[]int32 1", False, [], [1]),
        ("[]int32 1 nullable", False, [], None),
        ("[]int32 1 nullable default null", False, None, []),
        ("bool 1 default true", False, True, False),
        ("int32 1 tag 0", False, 0, 1),
        ("int32 1 tag 0 ignorable", True, 0, 1),
    ],
)
def test_a_field_that_a_version_lacks(field: str, ignorable: bool, default: object, other: object) -> None:
    """As with Kafka, ignorable fields are dropped; others may only have their default."""
    schema = parse(TWO_VERSIONS.format("1+" if "tag" in field else "none", field), "small.schema")
    cls = make_class("SmallRequest", schema.request, __name__)
    layout = lay_out(cls, schema.request, schema.head, 0, "Small request v0")
    for program in (codec.Program(layout), reference.Program(layout)):
        assert program.encode(cls(x=default)) == b""
        assert program.decode(b"") == cls(x=default) == cls()
        if ignorable:
            assert program.encode(cls(x=other)) == b""
        else:
            with pytest.raises(UnsupportedVersion) as refused:
                program.encode(cls(x=other))
            assert refused.value.message == f"Small request v0: x: this version cannot carry {other!r}"


def test_a_tagged_field_is_written_only_when_it_is_not_the_default() -> None:
    cls, fast, slow = one_field("int8 tag 3 default 4", "0+")
    for program in (fast, slow):
        assert program.encode(cls()) == b"\0"
        assert program.encode(cls(x=5)).hex(" ") == "01 03 01 05"
        assert program.decode(b"\0").x == 4


@pytest.mark.parametrize(("y", "data"), [(None, "01 03 01 00"), (7, "01 03 06 01 00 00 00 07 00")])
def test_a_nullable_struct_in_a_tagged_field_begins_with_a_varint(y: int | None, data: str) -> None:
    """The bytes of the writer that Kafka 3.9's MessageDataGenerator generates: 0 for null, 1 before a struct."""
    text = "api 9 Small versions 0 flexible 0+\nrequest\n  x struct nullable tag 3\n    y int32\nresponse\n"
    cls, fast, slow = small(text)
    message = cls(x=None if y is None else cls.X(y=y))
    for program in (fast, slow):
        assert program.encode(message).hex(" ") == data
        assert program.decode(bytes.fromhex(data)) == message


def test_the_elements_of_a_message_are_limited_over_all_its_arrays() -> None:
    schema = parse("api 9 Small versions 0 flexible none\nrequest\n  a []\n    b []int8\nresponse\n", "small.schema")
    cls = make_class("SmallRequest", schema.request, __name__)
    layout = lay_out(cls, schema.request, schema.head, 0, "Small request v0")
    message = cls(a=[cls.A(b=[1, 2]), cls.A(b=[3])])
    for program in (codec.Program, reference.Program):
        data = program(layout).encode(message)
        assert program(layout, max_elements=5).decode(data) == message
        with pytest.raises(ProtocolError, match=r"^Small request v0: a\.b: the message has more than 4 elements$"):
            program(layout, max_elements=4).decode(data)


def test_a_request_of_a_million_tiny_elements_is_refused() -> None:
    count = MAX_REQUEST_ELEMENTS + 1
    data = count.to_bytes(4, "big") + bytes(2 * count)
    with pytest.raises(ProtocolError, match="Metadata request v1: topics: the message has more than 1000000 elements"):
        METADATA.decode_request(data, 1)


def test_the_metadata_of_200000_partitions_are_one_request() -> None:
    topic = UPDATE_METADATA.Request.TopicStates
    states = [topic.PartitionStates(partition_index=index, isr=[1, 2, 3], replicas=[1, 2, 3]) for index in range(1000)]
    message = UPDATE_METADATA.Request(topic_states=[topic(topic_name="t", partition_states=states)] * 200)
    data = UPDATE_METADATA.encode_request(message, 7)
    assert len(UPDATE_METADATA.decode_request(data, 7).topic_states) == 200


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_versions_outside_of_the_schema_are_refused(api: Api) -> None:
    for version in (api.min_version - 1, api.max_version + 1):
        with pytest.raises(UnsupportedVersion, match=f"{api.name} has the versions"):
            api.decode_request(b"", version)
        with pytest.raises(UnsupportedVersion, match=f"{api.name} has the versions"):
            api.encode_response(api.Response(), version)


@pytest.mark.parametrize("what", ["decode", "encode"])
def test_other_threads_run_while_a_large_message_is_decoded_or_encoded(what: str) -> None:
    """Between two steps of this thread there is only one call into the codec, so the other thread runs within it."""
    make = APIS[3].Response
    partitions = [make.Topics.Partitions(partition_index=index, replica_nodes=[1, 2, 3]) for index in range(100_000)]
    message = make(topics=[make.Topics(name="t", partitions=partitions)])
    encoded = APIS[3].encode_response(message, 9)
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0)  # gives the GIL back, for which the other thread would otherwise wait for ever

    before, after = 0, 0
    interval = sys.getswitchinterval()
    thread = threading.Thread(target=tick)
    thread.start()
    sys.setswitchinterval(1000)  # no other thread gets the GIL unless the holder releases it
    try:
        deadline = time.monotonic() + 60
        while after == before and time.monotonic() < deadline:
            before = ticks
            if what == "decode":
                APIS[3].decode_response(encoded, 9)
            else:
                APIS[3].encode_response(message, 9)
            after = ticks
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert after > before
