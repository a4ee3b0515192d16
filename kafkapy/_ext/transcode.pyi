from typing import final

from typing_extensions import Buffer

from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.legacy import MessageHeader

KEPT: int
RELATIVE: int
NUMBERED: int

@final
class Converted:
    @property
    def payload(self) -> bytearray: ...
    @property
    def largest(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def index_of_max(self) -> int: ...
    @property
    def headers(self) -> bool: ...

def convert_payload(
    payload: Buffer,
    header: BatchHeader | MessageHeader | None,
    magic: int,
    *,
    offsets: int = ...,
    first_offset: int = ...,
    append_time: int | None = None,
    limit: int = ...,
) -> Converted: ...
def convert_run(buffer: Buffer, position: int, magic: int, first_offset: int) -> tuple[bytes, int]: ...
