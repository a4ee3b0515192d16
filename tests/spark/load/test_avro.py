"""Avro values become columns, with the schema of the options or of an id, and values that do not fit are reported."""

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kafkapy.spark.load.avro_schema import ANY_ID, AvroValues
from kafkapy.spark.load.avro_values import AvroDecoder
from kafkapy.spark.load.errors import LoadError, WrongOption

OLD: dict[str, Any] = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "s", "type": ["null", "string"], "default": None}]}
RICH = {
    "type": "record",
    "name": "rich",
    "namespace": "space",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": "space.kind"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "double"}]}},
        {"name": "hash", "type": {"type": "fixed", "name": "hash", "size": 2}},
    ],
}


def written(schema: Any, row: dict[str, Any], prefix: bytes = b"") -> bytes:
    out = io.BytesIO(prefix)
    out.seek(len(prefix))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def decoded(values: AvroValues, *messages: bytes | None) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    found = AvroDecoder(values).decode(pa.array(messages, pa.binary()))
    assert found.rows.schema == values.fields()
    return found.rows.to_pylist(), found.bad


def test_a_record_becomes_columns() -> None:
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, datetime.timezone.utc)
    row = {
        "kind": "A",
        "other": "B",
        "at": at,
        "day": at.date(),
        "fare": Decimal("1.25"),
        "tags": ["x"],
        "counts": {"y": 2},
        "inner": {"x": 0.5},
        "hash": b"ab",
    }
    ((got,), bad) = decoded(AvroValues(plain=json.dumps(RICH)), written(RICH, row))
    assert not bad
    assert got == {**row, "counts": [("y", 2)]}


def test_a_value_that_does_not_match_the_schema_is_reported_and_the_others_are_loaded() -> None:
    values = AvroValues(plain=json.dumps(OLD))
    one, two, three = (written(OLD, {"n": n}) for n in (1, 2, 3))
    rows, bad = decoded(values, one, b"", None, two + b"!", three)
    assert [row["n"] for row in rows] == [1, None, 3]
    assert bad == [(1, "it ends within the record"), (3, "1 bytes are left over after the record")]


def test_the_id_before_a_value_names_its_schema() -> None:
    values = AvroValues(by_id=((7, json.dumps(OLD)), (9, json.dumps(NEW))))
    rows, bad = decoded(
        values,
        written(OLD, {"n": 1}, b"\0\0\0\0\7"),
        written(NEW, {"n": 2, "s": "x"}, b"\0\0\0\0\11"),
        written(OLD, {"n": 3}, b"\0\0\0\0\10"),
        written(OLD, {"n": 4}),
    )
    assert rows == [{"n": 1, "s": None}, {"n": 2, "s": "x"}]
    assert bad == [
        (2, "it was written with schema 8, which was not given"),
        (3, "it does not begin with a registry's prefix, a zero byte and a schema id"),
    ]


def test_any_id_may_be_accepted() -> None:
    rows, bad = decoded(AvroValues(by_id=((ANY_ID, json.dumps(OLD)),)), written(OLD, {"n": 1}, b"\0\1\2\3\4"))
    assert (rows, bad) == ([{"n": 1}], [])


def test_a_time_that_no_column_can_hold_is_a_value_that_does_not_fit() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": {"type": "int", "logicalType": "date"}}]}
    plain = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
    rows, bad = decoded(
        AvroValues(plain=json.dumps(schema)), written(plain, {"n": 0}), written(plain, {"n": 2**31 - 1})
    )
    assert len(rows) == 1
    assert [place for place, _ in bad] == [1]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "the Avro schema is not JSON"),
        ('"string"', "is not that of a record"),
        ({**OLD, "fields": [{"name": "n", "type": ["int", "string"]}]}, "a union of several types in field 'n'"),
        ({**OLD, "fields": [{"name": "n", "type": "unknown"}]}, "names the type 'unknown' in field 'n'"),
        ({**OLD, "fields": [{"name": "n", "type": 5}]}, "has 5 in field 'n', which is not a type"),
        ({**OLD, "fields": [{"name": "n", "type": {"type": "array"}}]}, "lacks 'items'"),
        ({**OLD, "fields": [{"name": "n", "type": ["null", "r"]}]}, "names the type 'r' in field 'n'"),
    ],
)
def test_a_schema_that_gives_no_columns_is_refused(schema: Any, message: str) -> None:
    values = AvroValues(plain=schema if isinstance(schema, str) else json.dumps(schema))
    with pytest.raises(WrongOption) as caught:
        values.fields()
    assert message in str(caught.value)


def test_a_schema_that_fastavro_refuses_is_reported() -> None:
    schema = {**OLD, "fields": [{"name": "n", "type": {"type": "enum", "name": "without_symbols"}}]}
    with pytest.raises(LoadError, match="the Avro schema is wrong"):
        AvroDecoder(AvroValues(plain=json.dumps(schema)))
