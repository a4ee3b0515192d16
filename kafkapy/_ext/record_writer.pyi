from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

from kafkapy._ext.batch import BatchHeader

def renumber(payload: Buffer, header: BatchHeader) -> tuple[bytes, int, int]: ...

@final
class RecordsEncoder:
    def __init__(self, base_timestamp: int | None = None, room: int = 1024) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def size(self) -> int: ...
    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str | Buffer, Buffer | None]] = (),
        offset_delta: int | None = None,
    ) -> None: ...
    def payload(self) -> bytes: ...

def coordinator_batch(
    records: list[tuple[bytes, bytes | None]],
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray: ...
