"""JSON lines from columns are those that `kafkapy consume --json` prints, byte for byte."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext.columns import Columns
from kafkapy._ext.json_lines import json_lines
from kafkapy.client.fetching.consumer import ConsumerRecord
from kafkapy.record.batch import build
from kafkapy.record.columns import column_builder
from kafkapy.tools.common.record_json import record_line
from tests.harness.examples import examples

PREFIX = '{"topic":"é\\"","partition":7,"offset":'.encode()
NAMES = ("offset", "timestamp", "key", "value", "headers")
CONTENTS = st.none() | st.binary(max_size=40) | st.text(max_size=40).map(str.encode)
ODD_TEXT = st.text(st.sampled_from('a"\\\t\n\r\x00\x08\x0c\x1f\x7f\x80é日\U0001f600'), max_size=30)
RECORDS = st.lists(
    st.tuples(
        st.integers(-1, 2**62),
        CONTENTS,
        CONTENTS | ODD_TEXT.map(str.encode),
        st.lists(st.tuples(ODD_TEXT, CONTENTS), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=10,
)


def columns_of(records, base_offset=0):
    builder = column_builder(NAMES)
    list(builder.feed(build(records, base_offset=base_offset)))
    return builder.finish()


@settings(max_examples=examples(200), deadline=None)
@given(RECORDS, st.integers(0, 2**62))
def test_lines_are_those_of_the_consumer(records, base_offset):
    wanted = "".join(
        record_line(ConsumerRecord('é"', 7, base_offset + n, timestamp, key, value, headers)) + "\n"
        for n, (timestamp, key, value, headers) in enumerate(records)
    )
    assert json_lines(columns_of(records, base_offset), PREFIX) == wanted.encode()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 1000, 100_001])
@pytest.mark.parametrize("byte", [b"a", b'"', b"\n", b"\x00", b"\xff", "é".encode()])
def test_values_of_any_length_are_written_whole(size, byte):
    value = (byte * size)[: size // len(byte) * len(byte)]
    (line,) = json_lines(columns_of([(1, None, value, ())]), PREFIX).splitlines()
    assert json.loads(line)["value"] == json.loads(record_line(ConsumerRecord("t", 0, 0, 1, None, value, ())))["value"]


def test_the_least_and_the_largest_numbers():
    columns = columns_of([(-(2**63), None, None, ()), (2**63 - 1, None, None, ())], 2**63 - 2)
    found = [json.loads(line) for line in json_lines(columns, PREFIX).splitlines()]
    assert [(one["offset"], one["timestamp"]) for one in found] == [(2**63 - 2, -(2**63)), (2**63 - 1, 2**63 - 1)]


def test_columns_that_are_shorter_than_they_say_are_refused():
    columns = columns_of([(1, b"k", b"v", ())])
    with pytest.raises(ValueError, match="too short for the number of rows"):
        json_lines(Columns(9, 1, 0, columns.columns), PREFIX)
