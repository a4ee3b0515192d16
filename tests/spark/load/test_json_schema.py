"""Schemas of JSON values, in the text that Spark writes."""

import pyarrow as pa
import pytest

from kafkapy.spark.load.errors import WrongOption
from kafkapy.spark.load.json_schema import JsonValues


def test_columns_are_read_as_spark_writes_them() -> None:
    text = "carrier STRING, dep_delay int, at timestamp, day DATE, fare decimal(10,2), "
    text += "tags array<struct<a: bigint, b: double>>"
    assert JsonValues(text).fields() == pa.schema(
        [
            ("carrier", pa.string()),
            ("dep_delay", pa.int32()),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("fare", pa.decimal128(10, 2)),
            ("tags", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.float64())]))),
        ]
    )
    assert JsonValues("struct<a:int,`b`:string>").fields() == pa.schema([("a", pa.int32()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it ends where a field's name is expected"),
        ("a", "it ends where a type is expected"),
        ("a nothing", "there is no type 'nothing'"),
        ("a int, A string", "there are two fields 'A'"),
        ("a int b", "'b' is not expected after the last field"),
        ("a array<int", "it ends where '>' is expected"),
        ("a decimal(50)", "must have 1 to 38 digits"),
        ("a decimal(2,5)", "must have 1 to 38 digits"),
        ("a array<date>", "a date within a struct or an array is not supported"),
        ("a int; b int", "'; b int' cannot be read"),
        ("1 int", "'1' is where a field's name is expected"),
    ],
)
def test_the_error_says_why_a_schema_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(WrongOption, match="the columns of the JSON values cannot be read: ") as caught:
        JsonValues(text).fields()
    assert message in str(caught.value)
