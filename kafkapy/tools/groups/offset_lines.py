"""Files of committed offsets in the format of Kafka's ExportZkOffsets and ImportZkOffsets. Each line is the path of a
node in ZooKeeper and its content: `/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET`.

Partitions of Kafka 0.7 are called BROKER-PARTITION. Source: kafka.tools.ExportZkOffsets of 0.7.2 and 0.8.2.2.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.common.output import utf_8
from kafkapy.tools.groups.plan_file import STANDARD

if TYPE_CHECKING:
    from kafkapy.client.original.assignment import Partition

Groups = Mapping[str, Mapping["Partition", int]]

_LINE = re.compile(r"/consumers/([^/:]+)/offsets/([a-zA-Z0-9._-]+)/(\d+(?:-\d+)?):(\d{1,19})", re.ASCII)
_SHAPE = "/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"
_LARGEST = 2**63 - 1


def read_lines(file: Path) -> dict[str, dict[Partition, int]]:
    """Return the offsets in a file, by group and partition. Raises ToolError, which names the first line that does not
    have the format."""
    found: dict[str, dict[Partition, int]] = {}
    for number, line in enumerate(_text(file).splitlines(), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or match[2] in (".", "..") or int(match[4]) > _LARGEST:
            raise ToolError(f"{file}, line {number}: {line[:200]!r} is not {_SHAPE}")
        group, topic, partition, offset = match.groups()
        its = found.setdefault(group, {})
        if its.setdefault((topic, partition), int(offset)) != int(offset):
            raise ToolError(f"{file}, line {number}: {topic}/{partition} of group {group!r} has another offset above")
    if not found:
        raise ToolError(f"{file} has no line {_SHAPE}")
    return found


def write_lines(file: Path, groups: Groups) -> None:
    """Write the committed offsets of groups to a file. Raises ToolError for a group name that the format cannot hold,
    or if the file cannot be written."""
    for group in groups:
        if not group.isprintable() or {"/", ":"} & set(group):
            raise ToolError(f"a group called {group!r} cannot be in a file of lines {_SHAPE}; name the others")
    text = "".join(
        f"/consumers/{group}/offsets/{topic}/{partition}:{offset}\n"
        for group, offsets in groups.items()
        for (topic, partition), offset in offsets.items()
    )
    if file == STANDARD:
        sys.stdout.write(text)
        return
    try:
        file.write_bytes(utf_8(text))
    except OSError as error:
        raise ToolError(f"{file} cannot be written: {error.strerror}") from error


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if file == STANDARD else file.read_text(encoding="utf-8")
    except OSError as error:
        raise ToolError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ToolError(f"{file} is no file of lines {_SHAPE}: {error}") from error
