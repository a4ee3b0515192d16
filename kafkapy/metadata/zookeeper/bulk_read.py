"""Reads many nodes with one request to ZooKeeper: MultiRead (ZooKeeper 3.6 and later), which kazoo does not have.

A request sets no watches. Source: ZooKeeper's MultiOperationRecord and MultiResponse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import ZnodeStat

_ERROR = -1
_GET_DATA, _GET_CHILDREN = 4, 8
_NO_WATCH = b"\0"


class MultiRead:
    """A request in the form that kazoo sends. `reads` are pairs of a node's path, which begins with the chroot, and
    True to read the names of its children, False to read its data.

    The result has one element for each read: (data, ZnodeStat), a list of names, or an exception.
    """

    type = 22

    def __init__(self, reads: Sequence[tuple[str, bool]]) -> None:
        self._reads = reads

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for path, of_children in self._reads:
            kind = _GET_CHILDREN if of_children else _GET_DATA
            parts += (wire.multiheader_struct.pack(kind, False, -1), wire.write_string(path), _NO_WATCH)
        parts.append(wire.multiheader_struct.pack(-1, True, -1))
        return b"".join(parts)

    @staticmethod
    def deserialize(response: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        while True:
            kind, is_done, _ = wire.multiheader_struct.unpack_from(response, offset)
            offset += wire.multiheader_struct.size
            if is_done:
                return results
            result: Any
            if kind == _ERROR:
                (code,) = wire.int_struct.unpack_from(response, offset)
                offset += wire.int_struct.size
                result = EXCEPTIONS[code]()
            elif kind == _GET_DATA:
                data, offset = wire.read_buffer(response, offset)
                result = data, ZnodeStat._make(wire.stat_struct.unpack_from(response, offset))
                offset += wire.stat_struct.size
            else:
                result = []
                (count,) = wire.int_struct.unpack_from(response, offset)
                offset += wire.int_struct.size
                for _ in range(count):
                    name, offset = wire.read_string(response, offset)
                    result.append(name)
            results.append(result)
