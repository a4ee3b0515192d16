"""Types of ext/columns.pyx."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, final

from kafkapy._ext.arrow_memory import Memory as Memory

COLUMNS: dict[str, int]

class Bytes(NamedTuple):
    """A column of bytes: row i is data[offsets[i]:offsets[i + 1]]; validity None: no row is null."""

    offsets: Memory
    data: Memory
    validity: Memory | None
    nulls: int

class Headers(NamedTuple):
    """The headers of row i are number offsets[i] to offsets[i + 1] - 1; names are UTF-8."""

    offsets: Memory
    names: Bytes
    values: Bytes

class Columns(NamedTuple):
    """`size`: bytes of the rows, about; `without_timestamp`: how many rows have timestamp -1 (if it was asked for)."""

    rows: int
    size: int
    without_timestamp: int
    columns: dict[str, Memory | Bytes | Headers]

@final
class ColumnBuilder:
    def __init__(
        self,
        decompress: Callable[[int, memoryview, int], Iterable[bytes]],
        names: tuple[str, ...] = ...,
        *,
        max_rows: int = ...,
        max_bytes: int = ...,
        large_offsets: bool = False,
        skip_control: bool = True,
        min_offset: int | None = None,
        end_offset: int | None = None,
        min_timestamp: int | None = None,
        end_timestamp: int | None = None,
        aborted: Iterable[tuple[int, int]] = (),
        partition: int = -1,
        check_crc: bool = True,
    ) -> None: ...
    @property
    def past_end(self) -> bool: ...
    @property
    def batches(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def consumed(self) -> int: ...
    def set_aborted(self, aborted: Iterable[tuple[int, int]]) -> None: ...
    def feed(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> Iterator[Columns]: ...
    def finish(self) -> Columns | None: ...
