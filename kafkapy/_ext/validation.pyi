from collections.abc import Callable, Iterable
from typing import final

from typing_extensions import Buffer

CORRUPT_MESSAGE: int
MESSAGE_TOO_LARGE: int
INVALID_TIMESTAMP: int
UNSUPPORTED_FOR_MESSAGE_FORMAT: int
UNSUPPORTED_COMPRESSION_TYPE: int
INVALID_RECORD: int

class InvalidBatch(ValueError):
    code: int
    message: str
    record_errors: list[tuple[int, str]]
    def __init__(self, code: int, message: str, record_errors: Iterable[tuple[int, str]] = ()) -> None: ...

@final
class ValidatedBatch:
    @property
    def data(self) -> memoryview: ...
    @property
    def size(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def offset_delta_of_max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def rebuilt(self) -> bool: ...
    @property
    def remake(self) -> Callable[[int], bytearray] | None: ...

def assign(batch: ValidatedBatch, base_offset: int, leader_epoch: int) -> None: ...
def built_batch(data: memoryview) -> ValidatedBatch: ...

@final
class BatchRules:
    def __init__(
        self,
        decompress: Callable[[int, memoryview], Iterable[bytes]],
        compress: Callable[[int, bytes], bytes],
        *,
        timestamp_type: int,
        before_max_ms: int,
        after_max_ms: int,
        compact: bool,
        target_codec: int,
        max_message_bytes: int,
        plain_only: bool = False,
    ) -> None: ...
    def validate(self, buffer: Buffer, now_ms: int, of_client: bool = True) -> ValidatedBatch: ...
