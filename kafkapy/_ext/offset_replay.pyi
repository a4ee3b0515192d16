"""Types of ext/offset_replay.pyx."""

from collections.abc import Callable, Iterator
from typing import final

from kafkapy._ext.offset_table import OffsetTable

@final
class OffsetReplay:
    def __init__(
        self,
        table: OffsetTable,
        decompress: Callable[[int, memoryview, int], Iterator[bytes]],
        others: Callable[[bytes, bytes | None], object],
    ) -> None: ...
    @property
    def records(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    def feed(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> int: ...
