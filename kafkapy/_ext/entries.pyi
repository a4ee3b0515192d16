from collections.abc import Iterator
from typing import TypeAlias

from typing_extensions import Buffer

from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.legacy import MessageHeader

_Entry: TypeAlias = BatchHeader | MessageHeader

def read_entry(buffer: Buffer, position: int = 0) -> _Entry: ...
def next_entry(buffer: Buffer, position: int = 0) -> _Entry | None: ...
def iter_entries(buffer: Buffer, start: int = 0) -> Iterator[_Entry]: ...
def check_entry(buffer: Buffer, position: int = 0) -> _Entry: ...
