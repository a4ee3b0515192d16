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

# A file in the directory of a log that is about to be moved here from another log directory: see kafkapy.log.moves.
MOVED_IN = "kafkapy-moved-in"

LIVE_DIR = ""
DELETE_DIR = "-delete"
STRAY_DIR = "-stray"
FUTURE_DIR = "-future"

# The topic whose directory is a KRaft broker's metadata log. It is not a topic of the cluster and never loaded.
KRAFT_METADATA = "__cluster_metadata"

MAX_OFFSET = (1 << 63) - 1

NAME_MAX = 255
_OFFSET = re.compile(r"([0-9]{1,20})(\.[a-z.]+)")
_MARKED = re.compile(r"(\S+)-(\S+)\.(\S+)(-delete|-stray|-future)")


class LogDirName(NamedTuple):
    """The parts of a partition directory's name.

    `kind` is the ending of the name: LIVE_DIR (none), DELETE_DIR, STRAY_DIR or FUTURE_DIR.
    """

    topic: str
    partition: int
    kind: str


def file_name(offset: int, suffix: str) -> str:
    """Return the file name for an offset: twenty digits, so that names sort like offsets, and the suffix."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """Return the offset in a file name such as 00000000000000000042.log, None if the name has another form."""
    match = _OFFSET.fullmatch(name)
    return offset if match and (offset := int(match[1])) <= MAX_OFFSET else None


def dir_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_dir_name(topic: str, partition: int, kind: str) -> str:
    """Return a unique directory name of the form TOPIC-PARTITION.UNIQUE-delete or, depending on `kind`, -stray.

    The topic is shortened if the name would exceed 255 bytes.
    """
    ending = f"-{partition}.{os.urandom(16).hex()}{kind}"
    return topic[: NAME_MAX - len(ending)] + ending


def future_dir_name(topic: str, partition: int) -> str:
    """Return a unique directory name of the form TOPIC-PARTITION.UNIQUE-future. It may be longer than the 255 bytes
    that a file system allows, because the topic cannot be shortened: the name is all that says whose log this is.
    """
    return f"{topic}-{partition}.{os.urandom(16).hex()}{FUTURE_DIR}"


def parse_dir_name(name: str) -> LogDirName | None:
    """Return the parts of a partition directory's name.

    Return None if the name has another form, or if the directory is the metadata log of KRaft.
    """
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
