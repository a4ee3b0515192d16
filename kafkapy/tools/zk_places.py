"""Where a tree of nodes is, as commands are told: a ZooKeeper, or the directory of a broker that keeps it itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkapy.metadata.local import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Tree
from kafkapy.tools import start
from kafkapy.tools.errors import CallError, ToolError

if TYPE_CHECKING:
    from kafkapy.metadata.keeper_client import KeeperSettings
    from kafkapy.server.config import BrokerConfig

# Without zookeeper.connection.timeout.ms. A broker that starts has more patience than a person.
_PATIENCE_MS = 10_000

ZooKeeperAddress = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", "-z", metavar="HOST:PORT/CHROOT", help="ZooKeeper servers, with the cluster's chroot at the end."
    ),
]
LogDirectory = Annotated[
    Path | None,
    typer.Option(
        "--directory", "-d", metavar="DIRECTORY", help="The first log directory of a stopped broker, for its own tree."
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="A broker's properties: zookeeper.connect, TLS and login (zookeeper.ssl.*), log.dirs.",
    ),
]


def config_of(zookeeper: str | None, file: Path | None) -> BrokerConfig:
    """The file's settings with --zookeeper over them. Raises CallError, ToolError, PropertiesError, ConfigError."""
    return start.config_of(file, {} if zookeeper is None else {"zookeeper.connect": zookeeper}, "--zookeeper:")


def keeper_of(zookeeper: str | None, file: Path | None) -> KeeperSettings:
    """The ZooKeeper of --zookeeper or of the file; a chroot that is not there is not made. Raises as `config_of`."""
    config = config_of(zookeeper, file)
    if not config["zookeeper.connect"]:
        raise CallError("say which ZooKeeper: --zookeeper HOST:PORT/CHROOT, or a --command-config that sets it")
    try:
        from kafkapy.server.keeper_settings import keeper_settings
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise ToolError("ZooKeeper needs the library kazoo: pip install 'kafkapy[zookeeper]'") from None
    settings = keeper_settings(config)._replace(make_chroot=False)
    if config["zookeeper.connection.timeout.ms"] is None:
        settings = settings._replace(connection_timeout_ms=_PATIENCE_MS)
    return settings


def directory_of(directory: Path | None, file: Path | None) -> Path:
    """The directory of --directory, or the first of log.dirs in the file. Raises CallError and as `config_of`."""
    if directory is not None:
        return directory
    config = config_of(None, file)
    if not (config.is_set("log.dirs") or config.is_set("log.dir")):
        raise CallError("say which directory: --directory DIRECTORY, or a --command-config that sets log.dirs")
    return config.log_dirs[0]


@contextmanager
def opened(
    zookeeper: str | None, directory: Path | None, file: Path | None, roots: Collection[str] | None
) -> Iterator[Tree]:
    """The tree that was asked for; in ZooKeeper as much of it as lies below the names `roots` (None: all).

    Raises CallError, ToolError, KeeperError, LocalTreeError and what is wrong with the file.
    """
    if zookeeper is not None and directory is not None:
        raise CallError("say one place: --zookeeper or --directory, not both")
    if zookeeper is None and directory is None and file is None:
        raise CallError("say where the tree is: --zookeeper HOST:PORT/CHROOT or --directory DIRECTORY")
    embedded = directory is not None or (zookeeper is None and not config_of(None, file)["zookeeper.connect"])
    if embedded:
        with _embedded(directory_of(directory, file)) as tree:
            yield tree
        return
    tree = _in_zookeeper(keeper_of(zookeeper, file), roots)
    try:
        yield tree
    finally:
        tree.close()


@contextmanager
def _embedded(directory: Path) -> Iterator[Tree]:
    from kafkapy.server.adoption.adopt import locked
    from kafkapy.server.adoption.errors import AdoptionError

    home = directory.absolute()
    if not (home / FILE_NAME).exists():
        raise ToolError(f"{directory} has no tree of its own ({FILE_NAME}): name the first of the broker's log.dirs")
    try:
        with locked([home]):
            tree = LocalTree(home / FILE_NAME)
            try:
                yield tree
            finally:
                tree.close()
    except AdoptionError as error:
        raise ToolError(str(error)) from None


def _in_zookeeper(settings: KeeperSettings, roots: Collection[str] | None) -> Tree:
    from kafkapy.metadata.zookeeper import ZooKeeperTree

    return ZooKeeperTree(settings, roots)
