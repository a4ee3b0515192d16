from typing import Any, TypeVar, overload

from typing_extensions import Buffer

from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.records import Fields

_Kind = TypeVar("_Kind", bound=tuple[Any, ...])

@overload
def decode_message(buffer: Buffer, header: MessageHeader) -> Fields: ...
@overload
def decode_message(buffer: Buffer, header: MessageHeader, kind: type[_Kind]) -> _Kind: ...
@overload
def decode_set(payload: Buffer, header: MessageHeader) -> list[Fields]: ...
@overload
def decode_set(payload: Buffer, header: MessageHeader, kind: type[_Kind]) -> list[_Kind]: ...
def wrapper_value(buffer: Buffer, header: MessageHeader) -> tuple[int, int]: ...
def find_timestamp(
    payload: Buffer, header: MessageHeader, timestamp: int, min_offset: int = 0
) -> tuple[int, int] | None: ...
