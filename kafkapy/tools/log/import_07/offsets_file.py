"""The offsets file of an import. It maps the offsets of messages in Kafka 0.7 to offsets in the topic that they were
imported into.

The name is `TOPIC-PARTITION.offsets07`. The first 4096 bytes are a JSON object, padded with spaces, and a newline:

    version             1
    topic, partition    the partition that the records were imported into
    baseOffset          the offset of the first imported record in that partition
    records             the number of records
    entries             the number of entries that follow
    source              the directory of the 0.7 partition, its first offset (start) and the one after its last (end)

Then come the entries, 16 bytes each, ascending: the old offset of a stored message (int64, big-endian) and the new
offset of the first record in it (int64). The last entry is the end: the old and new offset after the last message. A
compressed message has one entry for all messages in it, because consumers of 0.7 could only begin at its start.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from kafkapy.log.storage.files import Files
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.common.output import utf_8

SUFFIX = ".offsets07"
HEADER = 4096
VERSION = 1

_ENTRY = Struct(">qq")
_CHUNK = 65536 // _ENTRY.size


class Head07(NamedTuple):
    """The header of an offsets file: the JSON object at its start."""

    topic: str
    partition: int
    base_offset: int
    records: int
    entries: int
    source: str
    start: int
    end: int


class Found07(NamedTuple):
    """The result of looking up an old offset. If `exact`, a message began at the requested offset. Otherwise
    `old_offset` is the start of the message before it, and `new_offset` belongs to that message."""

    old_offset: int
    new_offset: int
    exact: bool


def name_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}{SUFFIX}"


class OffsetsWriter:
    """Writes an offsets file: call `add` in ascending order of offsets, then `finish`, which gives the complete file
    its final name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = Path(f"{path}.tmp")
        self._file = open(self._unfinished, "wb")  # noqa: SIM115 (closed by finish or abandon)
        self._file.write(b" " * HEADER)
        self._count = 0

    def add(self, old_offset: int, new_offset: int) -> None:
        self._file.write(_ENTRY.pack(old_offset, new_offset))
        self._count += 1

    def finish(self, head: Head07) -> None:
        """Write the header with the number of entries, and give the file its final name. The file is durable on
        return."""
        self._file.seek(0)
        self._file.write(_encoded(head._replace(entries=self._count)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        files = Files()
        files.rename(str(self._unfinished), str(self._path))
        files.sync_dir(str(self._path.parent))

    def abandon(self) -> None:
        with suppress(OSError):  # a full disk: what is still buffered cannot be written, and is not needed
            self._file.close()
        self._unfinished.unlink(missing_ok=True)


def _encoded(head: Head07) -> bytes:
    value = {
        "version": VERSION,
        "topic": head.topic,
        "partition": head.partition,
        "baseOffset": head.base_offset,
        "records": head.records,
        "entries": head.entries,
        "source": {"directory": head.source, "start": head.start, "end": head.end},
    }
    data = utf_8(json.dumps(value, ensure_ascii=False))
    if len(data) >= HEADER:
        raise ToolError(f"the name of {head.source} is too long for the file of its offsets.")
    return data.ljust(HEADER - 1) + b"\n"


def read_head(path: Path) -> Head07:
    """Return the header of an offsets file. Raises ToolError if it is another kind of file or damaged; OSError."""
    with open(path, "rb") as file:
        data = file.read(HEADER)
        size = os.fstat(file.fileno()).st_size
    try:
        value: dict[str, Any] = json.loads(data)
        source = value["source"]
        head = Head07(
            value["topic"],
            value["partition"],
            value["baseOffset"],
            value["records"],
            value["entries"],
            source["directory"],
            source["start"],
            source["end"],
        )
        right = value["version"] == VERSION and size == HEADER + head.entries * _ENTRY.size and head.entries > 0
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path} is not a file of imported offsets, as `kafkapy log import` writes them.") from error
    if not right:
        raise ToolError(
            f"{path} is damaged, or of another version: it has version {value['version']}, {size} bytes and "
            f"{head.entries} entries."
        )
    return head


def look_up(path: Path, old_offsets: Iterable[int]) -> list[Found07]:
    """Return the new offset for each old offset. An old offset before the first message gets the first new offset, one
    after the last message the new end offset. Raises ToolError."""
    count = read_head(path).entries
    with open(path, "rb") as file:
        return [_floor(file.fileno(), count, offset) for offset in old_offsets]


def _floor(fd: int, count: int, offset: int) -> Found07:
    low, high = 0, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _entry(fd, middle)[0] <= offset:
            low = middle
        else:
            high = middle - 1
    old, new = _entry(fd, low)
    return Found07(old, new, old == offset)


def _entry(fd: int, number: int) -> tuple[int, int]:
    old, new = _ENTRY.unpack(os.pread(fd, _ENTRY.size, HEADER + number * _ENTRY.size))
    return old, new
