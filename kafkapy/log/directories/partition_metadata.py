"""`partition.metadata`: the topic id of a partition's directory (Kafka's PartitionMetadataFile, KIP-516)."""

from __future__ import annotations

import base64
import os
from functools import lru_cache

from kafkapy.log.directories.checkpoints import text_lines
from kafkapy.log.storage.files import Files

NAME = "partition.metadata"
_ID_BYTES = 16


class PartitionMetadataError(ValueError):
    """Raised when a partition.metadata file has no valid topic id. The message names the file and the error."""


def format_metadata(topic_id: bytes) -> bytes:
    """Return the content of a partition.metadata file with this topic id: two lines, the second without a newline."""
    text = base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    return f"version: 0\ntopic_id: {text}".encode()


def parse_metadata(data: bytes, path: str) -> bytes:
    """Return the topic id (16 bytes) in `data`, the content of the file `path`. Raises PartitionMetadataError."""
    try:
        return _topic_id(data)
    except ValueError as reason:
        raise PartitionMetadataError(f"{path} has {reason}") from None


@lru_cache(maxsize=16)  # all partitions of a topic have the same content
def _topic_id(data: bytes) -> bytes:
    fields = {}
    for line in text_lines(data):
        key, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"a line that is not `key: value`: {line!r}")
        fields[key.strip()] = value.strip()
    if fields.get("version") != "0":
        raise ValueError(f"version {fields.get('version')}, expected 0")
    text = fields.get("topic_id", "")
    try:
        topic_id = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError:  # not base64, or not even ASCII
        topic_id = b""
    if len(topic_id) != _ID_BYTES:
        raise ValueError(f"the topic id {text!r}, which is not 16 bytes in base64")
    return topic_id


def read_topic_id(files: Files, directory: str, data: bytes | None = None) -> bytes | None:
    """Return the topic id (16 bytes) in the partition.metadata file of a partition's directory, None if there is no
    file.

    `data`: the file's content, if the caller has read it. Raises PartitionMetadataError, OSError.
    """
    path = os.path.join(directory, NAME)
    if data is None:
        try:
            data = files.read(path)
        except FileNotFoundError:
            return None
    return parse_metadata(data, path)


def write_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    """Write the partition.metadata file and make it durable. Raises OSError.

    Called before the first append, so that recovered records always have a topic id. The parent directory is synced
    too, because no flush of the log would sync the name of the partition's directory.
    """
    files.replace(os.path.join(directory, NAME), format_metadata(topic_id))
    files.sync_dir(os.path.dirname(directory))
