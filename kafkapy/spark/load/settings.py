"""What a load is asked to do; goes to every task."""

from dataclasses import dataclass

from kafkapy.client.fetched import Isolation
from kafkapy.spark.load.avro_schema import AvroValues
from kafkapy.spark.load.json_schema import JsonValues

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """As given to `load`.

    Attributes:
        servers: bootstrap servers, HOST:PORT separated by commas.
        isolation: read_committed leaves out what was aborted and stops before what is undecided.
        values: how values become columns; None: they stay the bytes that they are.
        headers: whether the rows have them.
        prefix: stands before the names of the record's own columns and of the directories.
        strict: a value that does not fit ends the load.
        batch_rows: how many offsets are landed at a time, over all partitions.
        file_bytes: where a file ends and the next one begins.
        timeout_s: how long a broker may not answer.
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
