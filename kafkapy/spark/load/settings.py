"""The settings of a load, which are sent to every task."""

from dataclasses import dataclass

from kafkapy.client.fetched import Isolation
from kafkapy.client.security import PLAINTEXT, Security
from kafkapy.spark.load.avro_schema import AvroValues
from kafkapy.spark.load.json_schema import JsonValues

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The arguments of `load` that tasks need.

    Attributes:
        servers: Bootstrap servers, HOST:PORT separated by commas.
        isolation: read_committed skips aborted transactions and stops at the first open transaction.
        values: How values are decoded to columns. None: values become a column of bytes.
        headers: Whether rows have a column of headers.
        prefix: The prefix of the names of the record's columns and of directories.
        strict: True to end the load at a value that does not match the schema, instead of setting the value aside.
        batch_rows: The number of offsets in a batch, over all partitions.
        file_bytes: The size in bytes at which a file is full.
        timeout_s: How long to wait for a broker.
        security: TLS and login; the files that it names must exist for every task.
    """

    servers: str
    isolation: Isolation = "read_committed"
    values: JsonValues | AvroValues | None = None
    headers: bool = False
    prefix: str = ""
    strict: bool = False
    batch_rows: int = 4_000_000
    file_bytes: int = 256 * MIB
    timeout_s: float = 60.0
    security: Security = PLAINTEXT
