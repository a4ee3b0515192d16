"""What decoders of values have in common.

A decoder turns the values of a batch into columns. What does not fit is told with its place and the reason; a null
value (a tombstone) fits every schema: all its fields are null.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Decoded:
    """rows: the fields of the values that fit, in order. bad: (place in the batch, reason) of the others, in order."""

    rows: pa.Table
    bad: list[tuple[int, str]]


class Decoder(Protocol):
    """Turns values (a binary array) into columns of `fields`."""

    fields: pa.Schema

    def decode(self, values: pa.Array) -> Decoded: ...
