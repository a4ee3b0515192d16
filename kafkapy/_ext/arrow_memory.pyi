"""Types of ext/arrow_memory.pyx."""

from typing import final

from typing_extensions import Buffer

@final
class Memory(Buffer):
    @property
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
