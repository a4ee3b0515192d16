"""Reads the log directories of an Apache Kafka broker, and refuses those that must not be adopted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafkapy.log import names
from kafkapy.log.directories import clean_shutdown
from kafkapy.log.directories.meta_properties import MetaProperties, MetaPropertiesError, read_meta
from kafkapy.log.storage.files import Files
from kafkapy.metadata.local.tree import FILE_NAME
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.partition_dir import FoundPartition, read_partition, refuse_07, shifted


@dataclass
class Inventory:
    """The contents of a broker's log directories. `set_aside` has the partition directories that Kafka does not use,
    `copies` those of partitions that Kafka was moving to another log directory, and `doomed` those that Kafka was going
    to delete."""

    dirs: list[Path]
    meta: MetaProperties | None = None
    stopped_cleanly: bool = True
    is_kraft: bool = False
    partitions: dict[tuple[str, int], FoundPartition] = field(default_factory=dict)
    set_aside: list[Path] = field(default_factory=list)
    copies: list[Path] = field(default_factory=list)
    doomed: list[Path] = field(default_factory=list)

    @property
    def highest_producer_id(self) -> int:
        """The highest producer id in the logs of all partitions; -1 if there is none."""
        return max((found.highest.producer_id for found in self.partitions.values()), default=-1)


def bytes_to_read(dirs: Sequence[Path]) -> int:
    """Return the total size in bytes of all segment files in the directories. `take_inventory` has to read through
    them."""
    return sum(path.stat().st_size for directory in dirs for path in directory.glob(f"*-*/*{names.LOG}"))


def take_inventory(dirs: Sequence[Path], show: Callable[[int], None] = lambda done: None) -> Inventory:
    """Read the log directories of a broker, without changing them, and return their inventory.

    `show` is called with the number of bytes read so far. The caller must hold the locks of the directories, except for
    a dry run. Raise OSError, or AdoptionError if the directories cannot be adopted.
    """
    found = Inventory(list(dirs))
    for directory in dirs:
        _read_top(directory, found)
    live = [(name, path) for directory in dirs for name, path in _partition_dirs(directory, found)]
    _refuse_twice(live)
    done = 0
    for name, path in live:
        partition = read_partition(name.topic, name.partition, path, shifted(show, done))
        found.partitions[name.topic, name.partition] = partition
        done += partition.size
    if not live:
        raise AdoptionError(
            f"there is no partition of Apache Kafka in {', '.join(map(str, dirs))}, so there is nothing to adopt: a "
            "new directory is simply named in log.dirs"
        )
    return found


def _read_top(directory: Path, found: Inventory) -> None:
    """Store a log directory's meta.properties in `found`, and whether Kafka stopped cleanly. Raise AdoptionError if the
    directory is adopted already, if meta.properties is invalid, or if it names another broker or cluster than the
    directories before."""
    tree = directory / FILE_NAME
    if tree.exists() and tree.stat().st_size:
        raise AdoptionError(f"{directory} is adopted already: it holds {FILE_NAME}")
    try:
        meta = read_meta(Files(), str(directory))
    except MetaPropertiesError as error:
        raise AdoptionError(str(error)) from error
    if meta is not None:
        if found.meta is not None and meta.identity != found.meta.identity:
            raise AdoptionError(
                f"the directories do not belong together: {directory} is of broker {meta.broker_id} of cluster "
                f"{meta.cluster_id}, {found.dirs[0]} of broker {found.meta.broker_id} of {found.meta.cluster_id}"
            )
        found.meta = found.meta or meta
        found.is_kraft |= meta.is_kraft
    found.stopped_cleanly &= (directory / clean_shutdown.NAME).exists()


def _partition_dirs(directory: Path, found: Inventory) -> list[tuple[names.LogDirName, Path]]:
    """Return the parsed name and the path of each partition directory that is in use. Add the partition directories
    that Kafka has set aside, was going to delete, or was copying to, to `found`."""
    live = []
    for name in sorted(os.listdir(directory)):
        path = directory / name
        if not path.is_dir():
            continue
        refuse_07(path)
        found.is_kraft |= name.startswith(f"{names.KRAFT_METADATA}-")
        parsed = names.parse_dir_name(name)
        if parsed is None:
            continue
        if parsed.kind == names.DELETE_DIR:
            found.doomed.append(path)
        elif parsed.kind == names.FUTURE_DIR:
            found.copies.append(path)
        elif parsed.kind != names.LIVE_DIR:
            found.set_aside.append(path)
        else:
            live.append((parsed, path))
    return live


def _refuse_twice(live: Sequence[tuple[names.LogDirName, Path]]) -> None:
    seen: dict[tuple[str, int], Path] = {}
    for name, path in live:
        other = seen.setdefault((name.topic, name.partition), path)
        if other != path:
            raise AdoptionError(
                f"{name.topic}-{name.partition} is there twice, as {other} and as {path}: move the one that is not "
                "wanted away"
            )
