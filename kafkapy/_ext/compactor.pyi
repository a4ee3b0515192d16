from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

from kafkapy._ext.cursor import Writer
from kafkapy._ext.decided_txns import DecidedTransactions
from kafkapy._ext.keymap import KeyMap

@final
class Compactor:
    def __init__(
        self,
        keys: KeyMap,
        transactions: DecidedTransactions,
        *,
        mapped_to: int,
        now: int,
        delete_retention: int,
    ) -> None: ...
    @property
    def out(self) -> Writer: ...
    @property
    def unpacked(self) -> Writer: ...
    @property
    def position(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def records_read(self) -> int: ...
    @property
    def records_kept(self) -> int: ...
    @property
    def keyless(self) -> int: ...
    def begin_segment(
        self, base_offset: int, end: int, keep_old_tombstones: bool, producers: Iterable[tuple[int, int, int]]
    ) -> None: ...
    def feed(self, buffer: Buffer, position: int, payload: Buffer | None = None) -> bool: ...
    def packed(self, buffer: Buffer, compressed: Buffer) -> None: ...
