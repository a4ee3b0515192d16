"""Adopts log directories from beginning to end: locks and reads them, makes a plan, and writes the metadata tree."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafkapy.log.directories import dir_lock
from kafkapy.log.directories.dir_lock import DirLock, DirLocked
from kafkapy.log.directories.meta_properties import NAME as META_PROPERTIES
from kafkapy.log.directories.meta_properties import MetaProperties, write_meta
from kafkapy.log.storage.files import Files
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.inventory import Inventory, take_inventory
from kafkapy.server.adoption.knowledge import Knowledge
from kafkapy.server.adoption.plan import Plan, make_plan
from kafkapy.server.adoption.tree import give_to_owner, write_tree


def adopt(
    dirs: Sequence[Path],
    known: Knowledge,
    *,
    broker_id: int | None = None,
    dry_run: bool = False,
    show: Callable[[int], None] = lambda done: None,
) -> tuple[Inventory, Plan]:
    """Adopt the log directories of one Apache Kafka broker: write a metadata tree for kafkapy into the first directory.

    Return the inventory of the directories and the plan that was written. `known` is metadata from other sources. With
    `dry_run` nothing is written, and a broker may be using the directories. `show` is called with the number of bytes
    read so far. If the adoption fails, raise AdoptionError, OSError or LocalTreeError; the directories are then
    unchanged.
    """
    whole = [Path(os.path.abspath(directory)) for directory in dirs]
    for directory in whole:
        if not directory.is_dir():
            raise AdoptionError(f"{directory} is not a directory: name the directories of Kafka's log.dirs")
    if len({path.resolve() for path in whole}) < len(whole):
        raise AdoptionError(f"a directory is named twice: {', '.join(map(str, whole))}")
    if dry_run:
        found = take_inventory(whole, show)
        return found, make_plan(found, known, broker_id)
    with locked(whole):
        found = take_inventory(whole, show)
        plan = make_plan(found, known, broker_id)
        if found.meta is None:
            _write_broker_id(whole[0], plan)
        write_tree(whole[0], plan)
    return found, plan


def _write_broker_id(directory: Path, plan: Plan) -> None:
    """Write meta.properties, with the broker id and the cluster id, into a directory of Kafka 0.8, which has no such
    file. Kafka 0.8 ignores the file, so it does no harm if a crash prevents the rest of the adoption."""
    write_meta(Files(), str(directory), MetaProperties(plan.broker_id, plan.cluster_id), time.time())
    give_to_owner(directory / META_PROPERTIES, directory)


@contextmanager
def locked(dirs: Sequence[Path]) -> Iterator[None]:
    """Hold the lock files of the directories, which Kafka brokers lock too, during a with block. Raise AdoptionError if
    a running broker has locked a directory."""
    with ExitStack() as held:
        for directory in dirs:
            is_new = not (directory / dir_lock.NAME).exists()
            try:
                held.callback(DirLock(str(directory)).release)
            except DirLocked:
                raise AdoptionError(f"{directory} is in use by a running broker: stop it first") from None
            if is_new:
                give_to_owner(directory / dir_lock.NAME, directory)
        yield
