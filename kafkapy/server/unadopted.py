"""Detects log directories that another program has written to, so that the broker does not start on them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kafkapy.log.directories import identity
from kafkapy.log.directories.log_dirs import LogDirs
from kafkapy.log.directories.meta_properties import NAME as META_PROPERTIES
from kafkapy.metadata.local.tree import FILE_NAME

# The embedded metadata tree after `kafkapy zk export` has moved its content to ZooKeeper and renamed the file.
EXPORTED = f"{FILE_NAME}.exported"


def why_kafka_07s(log_dirs: Sequence[Path]) -> str | None:
    """Return a message if one of log.dirs has logs of Kafka 0.7, None if not. This costs one system call for each
    directory that is in use already. A directory that cannot be read is passed over: LogDirs reports it."""
    for directory in log_dirs:
        try:
            is_used = (directory / META_PROPERTIES).exists() or not directory.is_dir()
            inside = [] if is_used else sorted(directory.iterdir())
        except OSError:
            continue
        found = _segment_07_in(inside) if inside else None
        if found is not None:
            return (
                f"log.dirs has {directory}, a directory of Kafka 0.7 ({found} is one of its files): name it as log.dir "
                "in a server.properties of 0.7, and that file in kafkapy.kafka07.properties; or import it with "
                "`kafkapy log import`"
            )
    return None


def _segment_07_in(paths: Sequence[Path]) -> Path | None:
    from kafkapy.log.offline.files_07 import is_segment_07, partition_of_07  # only for directories that are new here

    for inside in paths:
        if partition_of_07(inside.name) is not None and inside.is_dir():
            for file in sorted(inside.iterdir()):
                if is_segment_07(file):
                    return file
    return None


def why_not_usable(log_dirs: Sequence[Path], dirs: LogDirs) -> str | None:
    """Return None if a new metadata tree may be created in the first log directory. Otherwise return a message that
    says why not, and what to do."""
    first = log_dirs[0]
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
        if os.path.exists(directory / FILE_NAME):  # False also if the directory cannot be read
            return f"the metadata is in {directory}, not in {first}: name that directory first in log.dirs"
    adopt = f"`kafkapy log adopt {' '.join(map(str, log_dirs))}`"
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
