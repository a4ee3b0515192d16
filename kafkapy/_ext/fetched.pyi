"""Types of ext/fetched.pyx."""

from collections.abc import Mapping, Sequence

_Partition = tuple[bytes | str, int, int, int, int, tuple[int, int] | None, memoryview | None]

def decode_fetch_response(
    frame: bytes | bytearray | memoryview, version: int, start: int
) -> tuple[int, int, list[_Partition]]: ...
def encode_fetch_request(
    version: int,
    broker_id: int,
    broker_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    session_id: int,
    session_epoch: int,
    topics: Mapping[bytes | str, Sequence[tuple[int, tuple[int, int, int, int]]]],
    forgotten: Mapping[bytes | str, Sequence[int]],
) -> bytes: ...
