"""Types of ext/offset_commit.pyx."""

def encode_commit(
    group: str,
    offsets: list[tuple[str, list[tuple[int, int, int, str, int]]]],
    now_ms: int,
    expire_ms: int,
    max_metadata: int,
) -> tuple[list[tuple[bytes, bytes | None]], list[int]]: ...
def encode_key(group: str, topic: str, partition: int) -> bytes: ...
def encode_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, expire_timestamp: int
) -> bytes: ...
