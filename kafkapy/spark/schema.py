"""The rows of the source as Spark's types; kafkapy.arrow.rows has the same as Arrow's.

Source: KafkaRecordToRowConverter of Spark.
"""

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkapy.spark.options.given import BadOption

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def schema_of(columns: Sequence[str]) -> StructType:
    """Of these columns, in this order."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def check_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Raises BadOption unless the schema is what the source has: it cannot be chosen."""
    fixed = schema_of(columns)
    if schema != fixed:
        raise BadOption(
            f"the schema {schema.simpleString()} was asked for, and the rows of the source kafkapy are "
            f"{fixed.simpleString()}: leave .schema(...) away, and choose columns with the option 'columns'"
        )
