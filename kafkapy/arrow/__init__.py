"""Reading topics as Arrow tables and writing tables to topics, with the columns of Spark's own Kafka source.

Needs pyarrow.
"""

try:
    import pyarrow  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise ModuleNotFoundError(
        "kafkapy.arrow needs pyarrow; install it with: pip install pyarrow", name="pyarrow"
    ) from None

from kafkapy.arrow.encode import RowEncoder
from kafkapy.arrow.read import read
from kafkapy.arrow.rows import SCHEMA, DamagedRows, schema_of
from kafkapy.arrow.write import Written, write

__all__ = ["SCHEMA", "DamagedRows", "RowEncoder", "Written", "read", "schema_of", "write"]
