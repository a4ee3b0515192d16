from typing import Any, TypeAlias, TypeVar, overload

from typing_extensions import Buffer

from kafkapy._ext.batch import BatchHeader

Fields: TypeAlias = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
Kind = TypeVar("Kind", bound=tuple[Any, ...])

class CorruptRecords(ValueError): ...

@overload
def decode_records(payload: Buffer, header: BatchHeader) -> list[Fields]: ...
@overload
def decode_records(payload: Buffer, header: BatchHeader, kind: type[Kind]) -> list[Kind]: ...
def decode_records_of(
    payload: Buffer, header: BatchHeader, kind: type[Kind], topic: str, partition: int, position: int
) -> list[Kind]: ...
def find_timestamp(
    payload: Buffer, header: BatchHeader, timestamp: int, min_offset: int = 0
) -> tuple[int, int] | None: ...
