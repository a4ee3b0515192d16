"""The Spark schema of the rows that the source reads; kafkapy.arrow.rows has the Arrow schema.

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
    """Return the Spark schema of rows that have these columns of the source, in this order."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def check_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Raise BadOption if the schema that the user requested is not exactly the source's schema of these columns."""
    fixed = schema_of(columns)
    if schema != fixed:
        raise BadOption(
            f"the schema {schema.simpleString()} was requested, but the rows of the source kafkapy are "
            f"{fixed.simpleString()}: leave out .schema(...), and choose columns with the option 'columns'"
        )
