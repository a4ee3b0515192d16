"""Records as lines of JSON, both ways."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.client.fetching.consumer import ConsumerRecord
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.common.options import timestamp_of
from kafkapy.tools.common.record_json import RecordLine, parse_record, record_line

content = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=5), content), max_size=3).map(tuple)


@given(
    st.builds(
        ConsumerRecord,
        st.just("t"),
        st.integers(0, 9),
        st.integers(0),
        st.integers(0, 2**63 - 1),
        content,
        content,
        headers,
    )
)
def test_produce_accepts_the_output_of_consume(record):
    line = record_line(record).encode()
    assert parse_record(line, 1) == RecordLine(
        record.value, record.key, record.headers, record.partition, record.timestamp
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, RecordLine(None, None, (), None, None)),
        ({"value": "v", "key": None}, RecordLine(b"v", None, (), None, None)),
        ({"value": {"a": [1, "é"]}}, RecordLine('{"a":[1,"é"]}'.encode(), None, (), None, None)),
        ({"value": 1.5, "key": True}, RecordLine(b"1.5", b"true", (), None, None)),
        ({"value": {"base64": "AP8="}}, RecordLine(b"\x00\xff", None, (), None, None)),
        ({"headers": {"h": "x", "n": None}}, RecordLine(None, None, (("h", b"x"), ("n", None)), None, None)),
        ({"headers": [["h", "1"], ["h", "2"]]}, RecordLine(None, None, (("h", b"1"), ("h", b"2")), None, None)),
        ({"partition": 2, "timestamp": 5, "topic": "t", "offset": 9}, RecordLine(None, None, (), 2, 5)),
        ({"timestamp": "1970-01-01T00:00:01Z"}, RecordLine(None, None, (), None, 1000)),
    ],
)
def test_an_object_is_a_record(given, expected):
    assert parse_record(json.dumps(given).encode(), 1) == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "line 7 is not JSON: "),
        (b"\xff", "line 7 is not JSON: "),
        (b"[1]", "line 7 is not a JSON object"),
        (b'{"valu": 1}', "line 7 has 'valu'; a record has headers, key, partition, timestamp, value"),
        (b'{"value": {"base64": "?"}}', "line 7: '?' is not base64"),
        (b'{"value": {"base64": 1}}', "line 7: 1 is not base64"),
        (b'{"headers": "x"}', "line 7: headers 'x' are neither an object nor a list"),
        (b'{"headers": [["a"]]}', "line 7: headers"),
        (b'{"partition": -1}', "line 7: partition -1 is not a number from 0 on"),
        (b'{"partition": "0"}', "line 7: partition '0' is not a number from 0 on"),
        (b'{"timestamp": true}', "line 7: timestamp True is neither"),
        (b'{"timestamp": "monday"}', "line 7: "),
        (b'{"timestamp": 9223372036854775808}', "line 7: timestamp 9223372036854775808 is neither"),
        (b'{"timestamp": "@9223372036854775808"}', "line 7: timestamp '@9223372036854775808' is neither"),
        (b'{"headers": {"\\ud800": "x"}}', "line 7: "),
    ],
)
def test_the_error_for_an_invalid_record_names_the_line(line, words):
    with pytest.raises(ToolError) as error:
        parse_record(line, 7)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-02", 86400000),
        ("1970-01-01T00:00:00.250", 250),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01Z", 1000),
        ("@1600000000000", 1600000000000),
    ],
)
def test_times_are_iso_8601_or_milliseconds(text, milliseconds):
    assert timestamp_of(text) == milliseconds
