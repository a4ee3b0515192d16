"""Opens the metadata tree that a command's options name: in ZooKeeper, or in the log directory of a broker without
ZooKeeper."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkapy.extras import how_to_install
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Tree
from kafkapy.tools import start
from kafkapy.tools.common.errors import CallError, ToolError

if TYPE_CHECKING:
    from kafkapy.metadata.zookeeper.client import ZooKeeperSettings
    from kafkapy.server.config.broker_config import BrokerConfig

# Without zookeeper.connection.timeout.ms: less than a broker's default, because a person waits.
_CONNECTION_TIMEOUT_MS = 10_000

ZooKeeperAddress = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", "-z", metavar="HOST:PORT/CHROOT", help="ZooKeeper servers, with the cluster's chroot at the end."
    ),
]
LogDirectory = Annotated[
    Path | None,
    typer.Option(
        "--directory", "-d", metavar="DIRECTORY", help="The first log directory of a stopped broker without ZooKeeper."
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="A broker's properties file: zookeeper.connect, TLS and login (zookeeper.ssl.*), log.dirs.",
    ),
]


def config_of(zookeeper: str | None, file: Path | None) -> BrokerConfig:
    """Return the broker settings in the file, overridden by --zookeeper. Raises CallError, ToolError, PropertiesError,
    ConfigError."""
    return start.config_of(file, {} if zookeeper is None else {"zookeeper.connect": zookeeper}, "--zookeeper:")


def zookeeper_settings_of(zookeeper: str | None, file: Path | None) -> ZooKeeperSettings:
    """Return the settings for connecting to ZooKeeper, from --zookeeper and the file. A chroot that does not exist will
    not be created.

    Raises CallError if no ZooKeeper is named, ToolError if kazoo is not installed, and the errors of `config_of`.
    """
    config = config_of(zookeeper, file)
    if not config["zookeeper.connect"]:
        raise CallError("say which ZooKeeper: --zookeeper HOST:PORT/CHROOT, or a --command-config that sets it")
    from kafkapy.server.config.apply import zookeeper_settings
    from kafkapy.server.config.security import check_zookeeper

    check_zookeeper(config)
    try:
        settings = zookeeper_settings(config)._replace(make_chroot=False)
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise ToolError(f"ZooKeeper needs the library kazoo: {how_to_install('zookeeper')}") from None
    if config["zookeeper.connection.timeout.ms"] is None:
        settings = settings._replace(connection_timeout_ms=_CONNECTION_TIMEOUT_MS)
    return settings


def directory_of(directory: Path | None, file: Path | None) -> Path:
    """Return --directory, or without it the first of log.dirs in the file. Raises CallError if neither is given, and
    the errors of `config_of`."""
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
    """Context manager that opens the metadata tree that the options name, and yields it. In ZooKeeper, only the
    top-level nodes in `roots` and the nodes below them are read; None means all.

    Raises CallError, ToolError, ZooKeeperError, LocalTreeError, and the errors of `config_of`.
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
    tree = _in_zookeeper(zookeeper_settings_of(zookeeper, file), roots)
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


def _in_zookeeper(settings: ZooKeeperSettings, roots: Collection[str] | None) -> Tree:
    from kafkapy.metadata.zookeeper.tree import ZooKeeperTree

    return ZooKeeperTree(settings, roots)
