"""Detects log directories that another program has written to, so that the broker does not start on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafkapy.log.directories import identity
from kafkapy.log.directories.log_dirs import LogDirs
from kafkapy.log.directories.meta_properties import NAME as META_PROPERTIES
from kafkapy.metadata.local.tree import FILE_NAME

# The embedded metadata tree after `kafkapy zk export` has moved its content to ZooKeeper and renamed the file.
EXPORTED = f"{FILE_NAME}.exported"


def why_not_usable(log_dirs: Sequence[Path], dirs: LogDirs) -> str | None:
    """Return None if a new metadata tree may be created in the first log directory. Otherwise return a message that
    says why not, and what to do."""
    first = log_dirs[0].absolute()
    if (first / EXPORTED).exists():
        return (
            f"the metadata of {first} was moved to ZooKeeper by `kafkapy zk export`: set zookeeper.connect, or bring "
            "it back with `kafkapy zk import`"
        )
    partitions = dirs.stored_partitions()
    meta = identity.stored(dirs.online)
    if not partitions and (meta is None or not meta.is_kraft):
        return None
    found = f"partitions ({partitions[0][0]}-{partitions[0][1]} is one)" if partitions else "a KRaft broker's files"
    for directory in log_dirs[1:]:
        if (directory / FILE_NAME).exists():
            return f"the metadata is in {directory.absolute()}, not in {first}: name that directory first in log.dirs"
    adopt = f"`kafkapy log adopt {' '.join(str(directory.absolute()) for directory in log_dirs)}`"
    if meta is not None and not (first / META_PROPERTIES).exists():
        return (
            f"{first} is the first of log.dirs and should hold the metadata, but is empty, while others of log.dirs "
            f"hold {found}: bring it back, or name first the directory that has {FILE_NAME}. If Apache Kafka wrote "
            f"them: {adopt}"
        )
    return (
        f"log.dirs holds {found} and {first} no kafkapy metadata: another broker, such as Apache Kafka, wrote them. "
        f"Adopt them with {adopt}, or name an empty directory in log.dirs"
    )
