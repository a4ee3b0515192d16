"""JSON values become columns, and values that do not fit are reported."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.spark.load.json_schema import JsonValues
from kafkapy.spark.load.json_values import JsonDecoder
from tests.harness.examples import examples

DECODER = JsonDecoder(JsonValues("a int, s string, d date").fields())


def decoded(*values: bytes | None) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    found = DECODER.decode(pa.array(values, pa.binary()))
    assert found.rows.schema == DECODER.fields
    return found.rows.to_pylist(), found.bad


def test_values_become_columns() -> None:
    rows, bad = decoded(b'{"a": 1, "s": "x", "d": "2013-01-31", "more": [1]}', b"{}", None)
    assert not bad
    nothing = (None, None, "None")
    assert [(row["a"], row["s"], str(row["d"])) for row in rows] == [(1, "x", "2013-01-31"), nothing, nothing]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "it is not JSON"),
        (b"  ", "it is not JSON"),
        (b"null", "it is not a JSON object but null"),
        (b"[1]", "it is not a JSON object but a list"),
        (b'{"a": 1', "it is not JSON"),
        (b'{"a": 1}{"a": 2}', "it is not JSON: Extra data"),
        (b'{"a": 1}\n{"a": 2}', "it is not JSON: Extra data"),
        (b'{"a": "1"}', "field 'a' is string, not number"),
        (b'{"a": 1.5}', "couldn't parse"),
        (b'{"a": 3000000000}', "couldn't parse"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"d": "yesterday"}', "yesterday"),
        (b'{"s": "\xff"}', "it is not UTF-8"),
        (b'\xef\xbb\xbf{"s": 5}', ""),
        pytest.param(
            b'{"a": "1", "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "it is nested too deeply", id="nested"
        ),
    ],
)
def test_a_value_that_does_not_fit_is_reported_and_the_others_are_loaded(value: bytes, reason: str) -> None:
    rows, bad = decoded(b'{"a": 1}', value, b'{"a": 3}')
    assert [row["a"] for row in rows] == [1, 3]
    ((place, message),) = bad
    assert place == 1
    assert reason in message
    assert "\n" not in message


def test_a_value_of_several_lines_is_one_object() -> None:
    rows, bad = decoded(b'{\n "a": 1,\r\n "s": "x"\n}', b'\n{"a": 2}')
    assert not bad
    assert [row["a"] for row in rows] == [1, 2]


def test_two_objects_and_an_empty_value_do_not_make_up_for_each_other() -> None:
    rows, bad = decoded(b'{"a": 1}{"a": 2}', b" ", b'{"a": 3}')
    assert [row["a"] for row in rows] == [3]
    assert [place for place, _ in bad] == [0, 1]


fitting = st.fixed_dictionaries(
    {}, optional={"a": st.integers(-(2**31), 2**31 - 1) | st.none(), "s": st.text(max_size=5), "other": st.booleans()}
)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("as"), inner, max_size=2),
    max_leaves=4,
)


def fits(value: bytes) -> bool:
    try:
        document = json.loads(value)
    except ValueError:
        return False
    if not isinstance(document, dict):
        return False
    a, s = document.get("a"), document.get("s")
    good = a is None or (isinstance(a, int) and not isinstance(a, bool) and -(2**31) <= a < 2**31)
    return good and (s is None or isinstance(s, str))


@settings(max_examples=examples(150))
@given(
    st.lists(
        fitting.map(json.dumps) | any_json.map(json.dumps) | st.sampled_from(["", " ", "{}{}", '{"a":}', "{} {"]),
        max_size=12,
    )
)
def test_each_value_is_decoded_as_if_it_were_alone(texts: list[str]) -> None:
    values = [text.encode("utf-8", "replace") for text in texts]
    rows, bad = decoded(*values)
    good = [value for value in values if fits(value)]
    assert [(row["a"], row["s"]) for row in rows] == [
        (json.loads(value).get("a"), json.loads(value).get("s")) for value in good
    ]
    assert [place for place, _ in bad] == [place for place, value in enumerate(values) if not fits(value)]
