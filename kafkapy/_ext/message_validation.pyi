from collections.abc import Callable, Iterable
from typing import final

from typing_extensions import Buffer

from kafkapy._ext.validation import ValidatedBatch

@final
class CheckedMessages:
    @property
    def size(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def in_order(self) -> bool: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def index_of_max(self) -> int: ...

def check_messages(
    buffer: Buffer,
    decompress: Callable[[int, memoryview], Iterable[bytes]],
    *,
    now_ms: int,
    timestamp_type: int,
    before_max_ms: int,
    after_max_ms: int,
    compact: bool,
    max_message_bytes: int,
) -> CheckedMessages: ...
def store_in_place(buffer: Buffer, checked: CheckedMessages, timestamp_type: int, now_ms: int) -> ValidatedBatch: ...
def message_batch(
    data: memoryview,
    magic: int,
    codec: int,
    count: int,
    timestamp_type: int,
    max_timestamp: int,
    index_of_max: int,
    rebuilt: bool = False,
    remake: Callable[[int], bytearray] | None = None,
) -> ValidatedBatch: ...
