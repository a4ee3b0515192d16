"""The commands `kafkapy zk export` and `import`: move a broker's metadata from its log directory into ZooKeeper, and
back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.runtime.printable import printable
from kafkapy.tools.common.options import Json
from kafkapy.tools.common.output import counted, print_json
from kafkapy.tools.zk.location import CommandConfig, LogDirectory, ZooKeeperAddress, directory_of, zookeeper_settings_of

if TYPE_CHECKING:
    from kafkapy.server.relocation import Moved

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace metadata that exists at the destination.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]
_SHOWN = 10


def export_tree(
    zookeeper: ZooKeeperAddress = None,
    directory: LogDirectory = None,
    command_config: CommandConfig = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move a stopped broker's metadata from its directory into ZooKeeper.

    All metadata is moved: topics with their ids, settings, epochs, the cluster id, offsets that old consumers
    committed. Records stay in their directories. Afterwards the broker, or Apache Kafka 3.9, starts with
    zookeeper.connect. The metadata file in the directory is renamed. If the export is interrupted, the broker's
    metadata is unchanged; run the export again, with --overwrite if the broker was started in between.

    Examples:

        kafkapy zk export --directory /var/lib/kafkapy --zookeeper zk1:2181,zk2:2181/kafka --dry-run

        kafkapy zk export --command-config server.properties
    """
    settings = zookeeper_settings_of(zookeeper, command_config)
    home = directory_of(directory, command_config)
    from kafkapy.server.relocation import to_zookeeper

    moved = to_zookeeper(home, settings, overwrite=overwrite, dry_run=dry_run)
    next_step = f"Start the broker with zookeeper.connect={settings.connect} and the same log.dirs."
    _report(moved, str(home), f"ZooKeeper at {settings.connect}", next_step, dry_run=dry_run, as_json=as_json)


def import_tree(
    zookeeper: ZooKeeperAddress = None,
    directory: LogDirectory = None,
    command_config: CommandConfig = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move a stopped broker's metadata from ZooKeeper into its directory.

    The directory is the first of the broker's log.dirs, and the broker must be the only one of its cluster.
    Afterwards, start the broker without zookeeper.connect. The metadata in ZooKeeper is not deleted, but no longer
    updated.

    Example: kafkapy zk import --zookeeper zk1:2181/kafka --directory /var/lib/kafkapy
    """
    settings = zookeeper_settings_of(zookeeper, command_config)
    home = directory_of(directory, command_config)
    from kafkapy.server.relocation import to_directory

    moved = to_directory(settings, home, overwrite=overwrite, dry_run=dry_run)
    next_step = (
        "Start the broker without zookeeper.connect and with the same log.dirs. The metadata in ZooKeeper at "
        f"{settings.connect} stays but is no longer updated: start no broker on it."
    )
    _report(moved, f"ZooKeeper at {settings.connect}", str(home), next_step, dry_run=dry_run, as_json=as_json)


def _report(moved: Moved, source: str, target: str, next_step: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(moved, source, target, moved_now=not dry_run))
        return
    _print_summary(moved, target, dry_run=dry_run)
    if not dry_run:
        print(next_step)


def _print_summary(moved: Moved, place: str, *, dry_run: bool) -> None:
    if moved.begun:
        print(f"An interrupted attempt has left {counted(moved.begun, 'node')} there; it is continued.")
    for verb, paths in (("replace", moved.work.other), ("remove", moved.work.extra)):
        if dry_run and paths:
            rest = len(paths) - _SHOWN
            print(printable(f"Would {verb} {', '.join(paths[:_SHOWN])}{f' and {rest} more' if rest > 0 else ''}."))
    what = f"cluster {moved.cluster_id} with {counted(len(moved.topics), 'topic')} ({counted(moved.nodes, 'node')})"
    if not moved.work:
        print(f"All of {what} is in {place} already.")
    elif dry_run:
        print(f"Would move {what} to {place}. Nothing was changed.")
    else:
        print(f"Moved {what} to {place}.")


def _as_json(moved: Moved, source: str, target: str, *, moved_now: bool) -> dict[str, Any]:
    return {
        "moved": moved_now,
        "from": source,
        "to": target,
        "clusterId": moved.cluster_id,
        "topics": moved.topics,
        "nodes": moved.nodes,
        "leftByEarlierTry": moved.begun,
        "created": moved.work.missing,
        "replaced": moved.work.other,
        "removed": moved.work.extra,
    }
