"""Writes the metadata tree of adopted directories. The tree's file gets its final name when it is complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from kafkapy.log.storage.files import Files
from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.configs import BROKERS, encode_settings
from kafkapy.metadata.consumer_offsets import offset_operations
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.topic_nodes import PartitionState, Topic, creation
from kafkapy.metadata.tree import Create, Operation, Set
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.plan import Plan

UNFINISHED = f"{FILE_NAME}.adopting"


def write_tree(directory: Path, plan: Plan) -> Path:
    """Write the metadata tree of a plan into a directory that has no tree yet. Return the path of the tree's file.
    Raise AdoptionError if the disk is too full, or OSError."""

    def fill(tree: LocalTree) -> None:
        tree.commit(list(_operations(plan)))
        offsets = {paths.consumer_offset(*where): offset for where, offset in plan.consumer_offsets.items()}
        tree.commit(offset_operations(offsets, [paths.CONSUMERS]))

    return write_whole(directory, UNFINISHED, fill)


def write_whole(directory: Path, unfinished_name: str, fill: Callable[[LocalTree], None]) -> Path:
    """Write a metadata tree with the basic nodes and the nodes that `fill(tree)` adds, under the name
    `unfinished_name`, then rename its file to the final name. Return the path of the file.

    A crash before the rename leaves a file that nothing reads and that the next attempt replaces. Raise AdoptionError
    if the disk is too full for the tree, or OSError.
    """
    unfinished, final = directory / unfinished_name, directory / FILE_NAME
    _remove(unfinished)
    try:
        tree = LocalTree(unfinished)
        try:
            ClusterRegistry(tree)  # creates the basic nodes
            fill(tree)
        finally:
            tree.close()
        check_whole(unfinished)
        give_to_owner(unfinished, directory)
        files = Files()
        files.sync_path(str(unfinished))
        _remove_logs(final)  # of an earlier file of this name: SQLite would read them as those of the new file
        files.rename(str(unfinished), str(final))
        files.sync_dir(str(directory))
    except BaseException:
        _remove(unfinished)
        raise
    return final


def _operations(plan: Plan) -> Iterator[Operation]:
    if plan.cluster_id is not None:
        yield Create(paths.CLUSTER_ID, paths.to_json({"version": "1", "id": plan.cluster_id}))
    if plan.controller_epoch:
        yield Create(paths.CONTROLLER_EPOCH, str(plan.controller_epoch).encode())
    if plan.last_producer_id >= 0:
        yield Set(paths.PRODUCER_ID_BLOCK, paths.to_json(_block(plan)))
    for entity, settings in plan.broker_settings.items():
        yield Create(paths.config(BROKERS, entity), encode_settings(settings))
    for topic in plan.topics:
        states = {
            partition: PartitionState(plan.broker_id, epoch, [plan.broker_id], plan.controller_epoch)
            for partition, epoch in topic.epochs.items()
        }
        assignment = {partition: [plan.broker_id] for partition in topic.epochs}
        yield from creation(Topic(topic.name, topic.id, assignment), topic.settings, states)


def _block(plan: Plan) -> dict[str, object]:
    """Return the content of the node for the last block of producer ids: a block that is allocated to this broker and
    used up."""
    return {
        "version": 1,
        "broker": plan.broker_id,
        "block_start": str(plan.last_producer_id),
        "block_end": str(plan.last_producer_id),
    }


def check_whole(path: Path) -> None:
    """Raise AdoptionError if the file at `path`, which a LocalTree has closed, lacks a part of the tree.

    When SQLite closes a file, it copies the write-ahead log into the file and removes the log. If the disk is full, the
    log stays beside the file, and SQLite reports no error.
    """
    if Path(f"{path}-wal").exists():
        raise AdoptionError(f"the metadata do not fit into {path.parent}: free some space, and run it again")


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _remove_logs(path)


def _remove_logs(path: Path) -> None:
    """Remove the files that SQLite keeps beside the file at `path`."""
    for suffix in ("-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def give_to_owner(path: Path, directory: Path) -> None:
    """Give the file the owner of its directory if root runs the command: the broker's user must be able to write the
    file. If `path` is a symbolic link, the link gets the owner and its target does not: the target may be any file of
    the system."""
    owner = directory.stat()
    if os.geteuid() == 0 and (owner.st_uid, owner.st_gid) != (0, 0):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
