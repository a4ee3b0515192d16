"""`kafkapy zk export` and `import`: a broker's metadata out of its directory into ZooKeeper, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.tools.options import Json
from kafkapy.tools.output import counted, print_json
from kafkapy.tools.zk_places import CommandConfig, LogDirectory, ZooKeeperAddress, directory_of, keeper_of

if TYPE_CHECKING:
    from kafkapy.server.relocation import Moved

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the metadata that is there already.")]
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

    Topics with their ids, settings, epochs, the cluster's id, what old consumers committed: all of it goes, the records
    stay where they are. Then the broker starts with zookeeper.connect, as Apache Kafka 3.9 could. What was in the
    directory is set aside. If it stops half way, the broker is as before; run it again.

    Examples:

        kafkapy zk export --directory /var/lib/kafkapy --zookeeper zk1:2181,zk2:2181/kafka --dry-run

        kafkapy zk export --command-config server.properties
    """
    settings = keeper_of(zookeeper, command_config)
    home = directory_of(directory, command_config)
    from kafkapy.server.relocation import to_zookeeper

    moved = to_zookeeper(home, settings, overwrite=overwrite, dry_run=dry_run)
    place = f"ZooKeeper at {settings.connect}"
    if as_json:
        print_json(_as_json(moved, str(home), place, moved_now=not dry_run))
        return
    _tell(moved, place, dry_run=dry_run)
    if not dry_run:
        print(f"Start the broker with zookeeper.connect={settings.connect} and the same log.dirs.")


def import_tree(
    zookeeper: ZooKeeperAddress = None,
    directory: LogDirectory = None,
    command_config: CommandConfig = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move a stopped broker's metadata from ZooKeeper into its directory.

    The directory is the first of the log.dirs that the broker had until now, and the broker the only one of its
    cluster. Then it starts without zookeeper.connect. What is in ZooKeeper stays there, and gets old.

    Example: kafkapy zk import --zookeeper zk1:2181/kafka --directory /var/lib/kafkapy
    """
    settings = keeper_of(zookeeper, command_config)
    home = directory_of(directory, command_config)
    from kafkapy.server.relocation import to_directory

    moved = to_directory(settings, home, overwrite=overwrite, dry_run=dry_run)
    place = str(home)
    if as_json:
        print_json(_as_json(moved, f"ZooKeeper at {settings.connect}", place, moved_now=not dry_run))
        return
    _tell(moved, place, dry_run=dry_run)
    if not dry_run:
        print(
            "Start the broker without zookeeper.connect and with the same log.dirs. What is in ZooKeeper at "
            f"{settings.connect} is left and gets old: start nothing on it."
        )


def _tell(moved: Moved, place: str, *, dry_run: bool) -> None:
    if moved.begun:
        print(f"An earlier try has left {counted(moved.begun, 'node')} there, and is gone on with.")
    for verb, paths in (("replace", moved.work.other), ("remove", moved.work.extra)):
        if dry_run and paths:
            rest = len(paths) - _SHOWN
            print(f"Would {verb} {', '.join(paths[:_SHOWN])}{f' and {rest} more' if rest > 0 else ''}.")
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
