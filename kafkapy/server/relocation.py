"""Moves the metadata of a stopped broker from its log directory into ZooKeeper, or back.

The new copy is complete, and was read back and compared, before the old copy is set aside. So a crash leaves the old
copy in place; running the move again completes it. In ZooKeeper the cluster id is written last (see metadata.transfer);
in the directory a rename publishes the complete file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.directories.meta_properties import MetaProperties, read_meta
from kafkapy.log.storage.files import Files
from kafkapy.metadata import paths
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.transfer import Difference, NodeData, changes, difference, is_unfinished, persistent_nodes
from kafkapy.metadata.tree import Tree, TreeError
from kafkapy.metadata.zookeeper.client import NoChroot, ZooKeeperSettings
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from kafkapy.server.adoption.adopt import locked
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.tree import check_whole, write_whole
from kafkapy.server.unadopted import EXPORTED

_UNFINISHED = f"{FILE_NAME}.importing"


class RelocationError(Exception):
    """Raised if a move of the metadata has failed or is incomplete; the message says why, and what to do."""


class Conflict(RelocationError):
    """Raised if the target of a move already holds other metadata."""


class Moved(NamedTuple):
    """The result of a move of the metadata, or of a dry run. `nodes` is the number of nodes to move, `begun` the number
    of those that an earlier, interrupted move has written, `work` the difference between source and target before the
    move."""

    cluster_id: str
    topics: list[str]
    nodes: int
    begun: int
    work: Difference


def to_zookeeper(
    log_dir: Path, settings: ZooKeeperSettings, *, overwrite: bool = False, dry_run: bool = False
) -> Moved:
    """Move the metadata from the first log directory of a stopped broker to ZooKeeper, and set the local tree aside by
    renaming its file.

    If the directory was exported before, only check that ZooKeeper holds the metadata. Raise RelocationError,
    ZooKeeperError or LocalTreeError.
    """
    log_dir = Path(os.path.abspath(log_dir))
    file = log_dir / FILE_NAME
    if not file.exists() and (log_dir / EXPORTED).exists():
        return _exported_before(log_dir, settings)
    _check_file(log_dir)
    try:
        with locked([log_dir]):
            source = LocalTree(file)
            try:
                moved = _fill_zookeeper(persistent_nodes(source), settings, overwrite=overwrite, dry_run=dry_run)
            finally:
                source.close()
            if not dry_run:
                check_whole(file)  # SQLite would replay a log that stays here into the next file of this name
                files = Files()
                files.rename(str(file), str(log_dir / EXPORTED))
                files.sync_dir(str(log_dir))
    except AdoptionError as error:
        raise RelocationError(str(error)) from None
    return moved


def to_directory(
    settings: ZooKeeperSettings, log_dir: Path, *, overwrite: bool = False, dry_run: bool = False
) -> Moved:
    """Copy the metadata from ZooKeeper to the first log directory of a stopped broker. The nodes in ZooKeeper are kept.

    Raise RelocationError, ZooKeeperError or LocalTreeError.
    """
    log_dir = Path(os.path.abspath(log_dir))
    meta = _meta_of(log_dir)
    tree = ZooKeeperTree(settings._replace(make_chroot=False), paths.TOP_LEVEL)
    try:
        _check_no_broker(tree, settings)
        source = persistent_nodes(tree)
        _check_cluster(tree, source, settings, meta, log_dir)
    finally:
        tree.close()
    try:
        with locked([log_dir]):
            current = _embedded(log_dir)
            moved = _plan(source, current)
            if moved.work and current and not overwrite:
                raise Conflict(_occupied(f"{log_dir / FILE_NAME}", moved, current))
            if moved.work and not dry_run:
                write_whole(log_dir, _UNFINISHED, lambda temporary: _fill(temporary, source))
            if not dry_run:
                (log_dir / EXPORTED).unlink(missing_ok=True)  # older than the metadata that is there now
    except AdoptionError as error:
        raise RelocationError(str(error)) from None
    return moved


def _fill_zookeeper(
    source: Mapping[str, NodeData], settings: ZooKeeperSettings, *, overwrite: bool, dry_run: bool
) -> Moved:
    if paths.CLUSTER_ID not in source:
        raise RelocationError(
            "the embedded metadata has no cluster id: no broker has run there, nothing is to be moved"
        )
    try:
        tree = ZooKeeperTree(settings._replace(make_chroot=not dry_run), paths.TOP_LEVEL)
    except NoChroot:
        return _plan(source, {})
    try:
        _check_no_broker(tree, settings)
        target = persistent_nodes(tree)
        moved = _plan(source, target)
        if moved.work and not overwrite and not is_unfinished(source, target):
            raise Conflict(_occupied(f"ZooKeeper at {settings.connect}", moved, target))
        for path in moved.work.extra:
            if any(f"{path}/{name}" not in target for name in tree.children(path)):
                raise RelocationError(f"{path} in ZooKeeper has nodes of clients that are alive: stop them first")
        if not dry_run:
            try:
                _fill(tree, source)
            except TreeError as error:
                raise RelocationError(
                    f"the metadata is only in part in ZooKeeper at {settings.connect} ({error}). The embedded one is "
                    f"as it was; once the reason is gone, run it again{' with --overwrite' if overwrite else ''}"
                ) from error
    finally:
        tree.close()
    return moved


def _fill(target: Tree, source: Mapping[str, NodeData]) -> None:
    for operations in changes(source, persistent_nodes(target)):
        target.commit(operations)
    left = difference(source, persistent_nodes(target))
    if left:
        raise RelocationError(
            f"another program is changing the metadata at the same time: {_first(left)} is not as it was"
        )


def _plan(source: Mapping[str, NodeData], target: Mapping[str, NodeData]) -> Moved:
    work = difference(source, target)
    above = f"{paths.TOPICS}/"
    topics = [path[len(above) :] for path in source if path.startswith(above) and "/" not in path[len(above) :]]
    begun = len(source) - len(work.missing) if target and paths.CLUSTER_ID not in target else 0
    return Moved(str(_cluster_id(source)), topics, len(source), begun, work)


def _embedded(log_dir: Path) -> dict[str, NodeData]:
    """Return the nodes of the metadata tree in a log directory; {} if there is no tree, or an unused one."""
    if not (log_dir / FILE_NAME).exists():
        return {}
    tree = LocalTree(log_dir / FILE_NAME)
    try:
        return persistent_nodes(tree)
    finally:
        tree.close()


def _exported_before(log_dir: Path, settings: ZooKeeperSettings) -> Moved:
    """Return the result of a move without work, for metadata that was moved to ZooKeeper before. Raise RelocationError
    if ZooKeeper does not hold the directory's cluster.

    Changes in ZooKeeper since the export are not a conflict: the broker uses ZooKeeper now.
    """
    cluster_id = _meta_of(log_dir).cluster_id
    held: dict[str, NodeData] = {}
    try:
        tree = ZooKeeperTree(settings._replace(make_chroot=False), paths.TOP_LEVEL)
    except NoChroot:
        pass
    else:
        try:
            held = persistent_nodes(tree)
        finally:
            tree.close()
    found = _cluster_id(held)
    if found != cluster_id:
        there = "no cluster" if found is None else f"cluster {found}"
        raise RelocationError(
            f"the metadata of {log_dir} was moved to ZooKeeper before ({EXPORTED} is what was set aside then), and at "
            f"{settings.connect} is {there}, not {cluster_id}: name the ZooKeeper and the chroot that it was moved to"
        )
    return _plan(held, held)


def _check_file(log_dir: Path) -> None:
    if not (log_dir / FILE_NAME).exists():
        raise RelocationError(
            f"{log_dir} has no embedded metadata ({FILE_NAME}): name the first of the broker's log.dirs"
        )


def _meta_of(log_dir: Path) -> MetaProperties:
    meta = read_meta(Files(), str(log_dir)) if log_dir.is_dir() else None
    if meta is None or meta.cluster_id is None:
        raise RelocationError(
            f"{log_dir} does not say which broker it belongs to (meta.properties): name the first of the broker's "
            "log.dirs"
        )
    return meta


def _check_no_broker(tree: ZooKeeperTree, settings: ZooKeeperSettings) -> None:
    """Raise RelocationError if a broker or a controller is registered in ZooKeeper, or if some nodes cannot be read."""
    if tree.hidden:
        raise RelocationError(
            f"{tree.hidden[0]} in ZooKeeper at {settings.connect} may not be read with this login, and would be lost: "
            "give the broker's own properties with --command-config"
        )
    ids = tree.children(paths.BROKER_IDS) if tree.exists(paths.BROKER_IDS) else []
    if ids or tree.exists(paths.CONTROLLER):
        who = f"broker {', '.join(ids)} is" if ids else "a controller is"
        raise RelocationError(
            f"{who} registered in ZooKeeper at {settings.connect}: stop it first; one that crashed is gone when its "
            "session has expired, so try again a little later"
        )


def _check_cluster(
    tree: Tree, source: Mapping[str, NodeData], settings: ZooKeeperSettings, meta: MetaProperties, log_dir: Path
) -> None:
    """Raise RelocationError unless the tree in ZooKeeper is that of the directory's cluster, and all replicas of all
    topics are on the directory's broker."""
    if paths.CLUSTER_ID not in source:
        raise RelocationError(
            f"there is no cluster in ZooKeeper at {settings.connect}: is the chroot right, as in HOST:2181/kafka, and "
            "was an export finished?"
        )
    found = _cluster_id(source)
    if found != meta.cluster_id:
        raise RelocationError(
            f"{log_dir} belongs to cluster {meta.cluster_id}, and in ZooKeeper at {settings.connect} is cluster {found}"
        )
    for name in tree.children(paths.TOPICS) if tree.exists(paths.TOPICS) else ():
        path = paths.topic(name)
        try:
            replicas = paths.from_json(source[path].data, path)["partitions"].values()
            others = sorted({int(one) for brokers in replicas for one in brokers} - {meta.broker_id})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RelocationError(f"the metadata at {path} is not that of a topic: {error}") from None
        if others:
            raise RelocationError(
                f"topic {name} has replicas on other brokers ({', '.join(map(str, others))}), and an embedded tree is "
                f"for broker {meta.broker_id} alone: move them to it first, with Kafka's reassignment tool"
            )


def _cluster_id(nodes: Mapping[str, NodeData]) -> str | None:
    """Return the cluster id in the nodes of a tree; None if there is none. Raise RelocationError if the node is
    malformed."""
    node = nodes.get(paths.CLUSTER_ID)
    try:
        return str(paths.from_json(node.data, paths.CLUSTER_ID)["id"]) if node is not None else None
    except KeyError:
        raise RelocationError(f"the metadata at {paths.CLUSTER_ID} has no id") from None
    except ValueError as error:
        raise RelocationError(str(error)) from None


def _occupied(where: str, moved: Moved, target: Mapping[str, NodeData]) -> str:
    held = _cluster_id(target)
    if held is None:
        what = "other nodes"
    else:
        what = "other metadata of this cluster" if held == moved.cluster_id else f"cluster {held}"
    return (
        f"{where} holds {what} already (nodes that differ: {_total(moved.work)}, such as {_first(moved.work)}); "
        "--overwrite replaces it, and --overwrite --dry-run shows what that means"
    )


def _first(work: Difference) -> str:
    return next(iter([*work.extra, *work.other, *work.missing]), paths.BROKER_SEQUENCE)


def _total(work: Difference) -> int:
    return len(work.extra) + len(work.other) + len(work.missing) + bool(work.broker_ids)
