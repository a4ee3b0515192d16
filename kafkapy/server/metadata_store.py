"""Opens the metadata tree: in ZooKeeper if `zookeeper.connect` is set, otherwise in the first log directory."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.extras import how_to_install
from kafkapy.log.manager import LogManager
from kafkapy.metadata import paths
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Tree
from kafkapy.server.config.authorization import has_acls
from kafkapy.server.unadopted import why_not_usable

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig

log = logging.getLogger("kafkapy.server.broker")


class StartError(Exception):
    """Raised if the broker cannot start; the message says why, and what to do."""


def check_libraries(config: BrokerConfig) -> None:
    """Raise StartError if zookeeper.connect is set but kazoo, the ZooKeeper library, is not installed."""
    if config["zookeeper.connect"]:
        check_kazoo("zookeeper.connect")


def check_kazoo(setting: str) -> None:
    """Raise StartError if kazoo, the ZooKeeper library, which `setting` needs, is not installed."""
    try:
        import kafkapy.metadata.zookeeper.client  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        raise StartError(f"{setting} needs kazoo: {how_to_install('zookeeper')}") from None


def open_tree(config: BrokerConfig, logs: LogManager, on_failure: Callable[[Exception], None]) -> Tree:
    """Open the metadata tree and return it. `on_failure(error)` is called if a tree in the log directory cannot be
    written any more. Raise StartError, or the errors of the tree."""
    if config["zookeeper.connect"]:
        return _in_zookeeper(config, logs)
    return _embedded(config, logs, on_failure)


def _embedded(config: BrokerConfig, logs: LogManager, on_failure: Callable[[Exception], None]) -> Tree:
    first = config.log_dirs[0]
    offline = {directory: error for directory, error in logs.directories() if error is not None}
    if first in offline:
        raise StartError(f"the metadata is kept in {first}, the first of log.dirs: {offline[first]}")
    path = first / FILE_NAME
    if not path.exists() or not path.stat().st_size:  # an empty file has no metadata, as if it did not exist
        reason = why_not_usable(config.log_dirs, logs.dirs)
        if reason is not None:
            raise StartError(reason)
    shortage = next(one.env.shortage for one in logs.dirs.opened if one.path == first)
    return LocalTree(path, on_failure, shortage)


def _in_zookeeper(config: BrokerConfig, logs: LogManager) -> Tree:
    for directory in config.log_dirs:
        if os.path.exists(directory / FILE_NAME):  # False also if the directory cannot be read
            raise StartError(
                f"{directory} has its metadata embedded ({FILE_NAME}), and zookeeper.connect names another "
                "place for it: move it there with `kafkapy zk export`, remove zookeeper.connect, or name other log.dirs"
            )
    from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
    from kafkapy.server.config.apply import zookeeper_settings

    leaves = {*paths.NOT_FOLLOWED, *paths.FOR_CONTROLLER}
    if not has_acls(config):
        leaves.update(paths.FOR_AUTHORIZER)
    tree = ZooKeeperTree(zookeeper_settings(config), paths.TOP_LEVEL, leaves, paths.TOPICS)
    stored = logs.dirs.stored_cluster_id()
    if stored is not None and not tree.exists(paths.CLUSTER_ID):
        tree.close()
        raise StartError(
            f"log.dirs are of cluster {stored}, and there is no cluster in ZooKeeper at {config['zookeeper.connect']}: "
            "is the chroot right, as in HOST:2181/kafka?"
        )
    return tree


def metadata_directory(config: BrokerConfig) -> Path | None:
    """Return the log directory that holds the metadata, without which the broker cannot run. Return None if the
    metadata is in ZooKeeper."""
    return None if config["zookeeper.connect"] else config.log_dirs[0]
