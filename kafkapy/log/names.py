"""Names of files and directories in a log directory (Kafka's LogFileUtils and LocalLog)."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

INDEXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

LIVE_DIR = ""
DELETE_DIR = "-delete"
STRAY_DIR = "-stray"
FUTURE_DIR = "-future"

# The topic whose directory is the own log of a KRaft broker: not one of the cluster's, and never loaded.
KRAFT_METADATA = "__cluster_metadata"

MAX_OFFSET = (1 << 63) - 1

_NAME_MAX = 255
_OFFSET = re.compile(r"([0-9]{1,20})(\.[a-z.]+)")
_MARKED = re.compile(r"(\S+)-(\S+)\.(\S+)(-delete|-stray|-future)")


class LogDirName(NamedTuple):
    """A partition's directory name taken apart; `kind` is LIVE_DIR, DELETE_DIR, STRAY_DIR or FUTURE_DIR."""

    topic: str
    partition: int
    kind: str


def file_name(offset: int, suffix: str) -> str:
    """Twenty digits, so that names sort as the offsets do."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset at the front of a file name; None for a file that is not named by one."""
    match = _OFFSET.fullmatch(name)
    return offset if match and (offset := int(match[1])) <= MAX_OFFSET else None


def dir_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_dir_name(topic: str, partition: int, kind: str) -> str:
    """TOPIC-PARTITION.UNIQUE-delete (or -stray), the topic cut so that the whole has at most 255 bytes."""
    ending = f"-{partition}.{os.urandom(16).hex()}{kind}"
    return topic[: _NAME_MAX - len(ending)] + ending


def parse_dir_name(name: str) -> LogDirName | None:
    """None if this is not the name of a partition's directory; the own log of KRaft is none."""
    kind = LIVE_DIR
    for marker in (DELETE_DIR, STRAY_DIR, FUTURE_DIR):
        if name.endswith(marker):
            if not _MARKED.fullmatch(name):
                return None
            kind, name = marker, name[: name.rindex(".")]
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or topic == KRAFT_METADATA or not partition.isascii() or not partition.isdigit():
        return None
    return LogDirName(topic, int(partition), kind)
