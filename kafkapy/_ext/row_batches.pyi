from typing import TypeAlias, final

from typing_extensions import Buffer

_Bytes: TypeAlias = tuple[Buffer | None, Buffer, Buffer | None, int, int, int]
_Numbers: TypeAlias = tuple[Buffer | None, Buffer, int]

class BadRow(ValueError):
    row: int
    reason: str
    def __init__(self, row: int, reason: str) -> None: ...

@final
class Rows:
    def __init__(
        self,
        count: int,
        key: _Bytes | None = None,
        value: _Bytes | None = None,
        headers: _Bytes | None = None,
        header_key: _Bytes | None = None,
        header_value: _Bytes | None = None,
        partition: _Numbers | None = None,
        timestamp: _Numbers | None = None,
        order: Buffer | None = None,
    ) -> None: ...
    @property
    def count(self) -> int: ...

@final
class TopicBatches:
    sticky: int
    def __init__(self, partitions: int, batch_bytes: int) -> None: ...
    @property
    def partitions(self) -> int: ...
    @property
    def open_bytes(self) -> int: ...
    @property
    def full(self) -> int: ...
    def append(self, rows: Rows, at: int, end: int, now: int) -> int: ...
    def open_partitions(self) -> list[int]: ...
    def take(self, partition: int) -> tuple[bytearray, int, int]: ...
