"""The interface of value decoders.

A decoder turns the values of a batch into columns. Values that do not match the schema are returned with their index
and the reason. A null value (a tombstone) matches every schema: all its fields are null.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Decoded:
    """The decoded values of a batch.

    rows: The fields of the matching values, in order. bad: (index in the batch, reason) of the others, in order.
    """

    rows: pa.Table
    bad: list[tuple[int, str]]


class Decoder(Protocol):
    """Decodes values (a binary array) to columns of `fields`."""

    fields: pa.Schema

    def decode(self, values: pa.Array) -> Decoded:
        """Decode the values of a batch."""
