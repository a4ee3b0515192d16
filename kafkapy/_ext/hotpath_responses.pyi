from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

class HasLength(Protocol):
    @property
    def length(self) -> int: ...

Records = Buffer | HasLength | None
ProducedPartition = tuple[int, int, int, int, int, list[tuple[int, str | None]] | None, str | None]
Tagged = tuple[tuple[int, int] | None, tuple[int, int] | None]
FetchedPartition = tuple[int, int, int, int, int, list[tuple[int, int]] | None, int, Records, Tagged | None]

def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str, list[ProducedPartition]]],
    throttle_ms: int = 0,
) -> bytes: ...
def encode_fetch_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[str, bytes, list[FetchedPartition]]],
    endpoints: Sequence[tuple[int, str, int, str | None]] = (),
) -> list[Buffer | HasLength]: ...
