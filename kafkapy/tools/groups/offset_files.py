"""The commands `kafkapy groups export-offsets` and `import-offsets`, which write committed offsets to files and commit
offsets from files.

Both work with groups in Kafka and with groups in ZooKeeper, so they can move a group from one to the other.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.runtime.printable import printable
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers
from kafkapy.tools.common.output import counted, print_json, print_table
from kafkapy.tools.groups.backend import ThroughZooKeeper, group_backend
from kafkapy.tools.groups.interface import GroupBackend
from kafkapy.tools.groups.offset_lines import Groups, read_lines, write_lines
from kafkapy.tools.groups.plan_file import STANDARD


def export_offsets(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Default: all groups.")] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write; -: standard output.")
    ] = STANDARD,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Write what groups have committed as lines /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET.

    This is the format of Kafka's old ExportZkOffsets. With --zookeeper the offsets in ZooKeeper are written, without
    it those in Kafka.

    Examples:

        kafkapy groups export-offsets reports --zookeeper localhost:2181/kafka --output reports.txt

        kafkapy groups export-offsets --output all.txt
    """
    with group_backend(context, servers, zookeeper, command_config, with_kafka=False) as backend:
        wanted = list(dict.fromkeys(names or backend.names()))
        found = backend.committed(wanted)
        if without := [name for name in names or () if not found[name]]:
            backend.check_there(without)
        left_out = len(backend.problems)
    write_lines(output, found)
    if output != STANDARD:
        count = sum(map(len, found.values()))
        its = len([offsets for offsets in found.values() if offsets])
        print(f"Wrote {counted(count, 'offset')} of {counted(its, 'group')} to {output}.")
    if left_out:
        raise ToolError(f"{counted(left_out, 'offset')} could not be read: named above, and left out")


def import_offsets(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of export-offsets, or of ExportZkOffsets.")],
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Default: all groups in it.")] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the offsets; without this they are only shown.")
    ] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Commit the offsets in a file for groups that have no members.

    The file has lines /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, as Kafka's old ExportZkOffsets wrote them. With
    --zookeeper the offsets are committed to ZooKeeper, without it to Kafka.

    Examples:

        kafkapy groups import-offsets reports.txt

        kafkapy groups import-offsets reports.txt --execute

        kafkapy groups import-offsets all.txt reports --zookeeper localhost:2181/kafka --execute
    """
    lines = read_lines(file)
    if missing := [name for name in names or () if name not in lines]:
        raise ToolError(f"{file} has no line for group {missing[0]!r}")
    wanted = list(dict.fromkeys(names or lines))
    with group_backend(context, servers, zookeeper, command_config, with_kafka=False) as backend:
        backend.refuse_active(wanted)
        before = backend.committed(wanted)
        if execute:
            commit_each(backend, {name: lines[name] for name in wanted})
    plan = [(name, *where, before[name].get(where), offset) for name in wanted for where, offset in lines[name].items()]
    columns = ("group", "topic", "partition", "committed", "new")
    if as_json:
        print_json({"executed": execute, "offsets": [dict(zip(columns, row, strict=True)) for row in plan]})
        return
    print_table(
        ["group", "topic", "partition>", "committed>", "new>"],
        [tuple("-" if cell is None else cell for cell in row) for row in plan],
    )
    if execute:
        print(f"Committed {counted(len(plan), 'offset')}.")
    else:
        print("This is the plan; nothing was changed. --execute carries it out.")


def commit_each(backend: GroupBackend, groups: Groups) -> None:
    """Commit the offsets of one group after the other. After a failure, print on standard error which groups are
    already committed, and raise the error."""
    done: list[str] = []
    try:
        for name, offsets in groups.items():
            backend.commit(name, offsets)
            done.append(name)
    except BaseException:
        if done:
            print(
                f"kafkapy: committed already: {counted(len(done), 'group')}, {printable(', '.join(done))}.",
                file=sys.stderr,
            )
        raise
