"""Topics as Arrow tables, in the columns of Spark's own Kafka source; needs pyarrow."""

from kafkapy.arrow.rows import SCHEMA, DamagedRows, schema_of

__all__ = ["SCHEMA", "DamagedRows", "schema_of"]
