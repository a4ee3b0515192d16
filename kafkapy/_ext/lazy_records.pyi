from collections.abc import Iterator
from typing import final

from typing_extensions import Buffer

from kafkapy._ext.batch import BatchHeader

@final
class LazyRecords(Iterator[tuple[int, int, bytes | None, bytes | None]]):
    def __init__(self, payload: Buffer, header: BatchHeader) -> None: ...
    def __next__(self) -> tuple[int, int, bytes | None, bytes | None]: ...
