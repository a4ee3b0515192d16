"""The interface of the decoders, which convert the values of a batch to columns.

Values that do not match the schema are returned with their index and the reason. A null value (a tombstone) matches
every schema: all its fields are null.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Decoded:
    """The result of decoding the values of a batch.

    Attributes:
        rows: The fields of the values that match the schema, in the order of the values.
        bad: For each value that does not match the schema, its index in the batch and the reason, in order.
    """

    rows: pa.Table
    bad: list[tuple[int, str]]


class Decoder(Protocol):
    """An object that converts record values to columns. `fields` is the Arrow schema of the columns."""

    fields: pa.Schema

    def decode(self, values: pa.Array) -> Decoded:
        """Return the values of a batch (a binary array) as columns.

        The result also has the index and the reason for each value that does not match the schema.
        """
