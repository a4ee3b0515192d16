"""The type of a record as a Python object, and the types of buffers and headers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

# Limits the memory that a damaged file can take; batches that a broker has accepted stay below it.
MAX_PAYLOAD = 1 << 30

Buffer: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = Iterable[tuple[str, bytes | None]]


class Record(NamedTuple):
    """A record as a consumer gets it. `timestamp` is in milliseconds; `sequence` is -1 if the record has no producer
    sequence."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    sequence: int
