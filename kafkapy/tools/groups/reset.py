"""The command `kafkapy groups reset-offsets`: plans new offsets; shows the plan, writes it to a file or commits it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.client.administration.admin import Admin
from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.group_types import OffsetAndMetadata
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, timestamp_of
from kafkapy.tools.common.output import counted, print_json, print_table
from kafkapy.tools.common.partition_ranges import topics_and_partitions
from kafkapy.tools.common.times import duration_of
from kafkapy.tools.groups.backend import ThroughZooKeeper, group_backend
from kafkapy.tools.groups.offset_files import commit_each
from kafkapy.tools.groups.plan_file import STANDARD, read_plan, write_plan
from kafkapy.tools.groups.reset_plan import Goal, Reset, plan_goal, plan_offsets

LAST_TIMESTAMP = 2**63 - 1

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def reset_offsets(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="One group or more.")] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:PARTITIONS]", help="As flights or flights:0,2-4; may be repeated."
        ),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All partitions with a committed offset.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the partition.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the committed offset; if none, to the end.")
    ] = False,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="2024-01-31T12:00:00Z, or @ and ms since 1970.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="TIME", help="To this long before now: 90s, 1d12h, PT1H30M.")
    ] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="By this many offsets; -10: ten back.")] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="To the offsets in a file that --export wrote."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the offsets; without this the plan is only shown.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan. This is the default.")] = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write the plan to a CSV file; -: to standard output."),
    ] = None,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Plan new offsets for groups that have no members, and commit them with --execute.

    An offset outside a partition becomes its first offset or its end. With --zookeeper the offsets are committed to
    ZooKeeper, to Kafka, or to both: wherever the group has offsets.

    Examples:

        kafkapy groups reset-offsets reports --topic flights --to-earliest

        kafkapy groups reset-offsets reports --topic flights:0,2 --to-datetime 2024-01-31T12:00 --execute

        kafkapy groups reset-offsets reports --all-topics --shift-by -100 --export plan.csv

        kafkapy groups reset-offsets old-reports --topic flights --to-latest --zookeeper localhost:2181/kafka
    """
    goal, number = _goal(to_earliest, to_latest, to_current, to_datetime, by_duration, to_offset, shift_by, from_file)
    if bool(names) + all_groups != 1 and (from_file is None or names or all_groups):
        raise CallError("say which groups: their names, or --all-groups")
    if "" in (names or ()):
        raise CallError("the name of a group is empty, and a reset would make a group of that name")
    if (topic is not None) + all_topics + (from_file is not None) != 1:
        raise CallError(
            "--from-file names topics itself, so neither --topic nor --all-topics goes with it"
            if from_file
            else "say which topics: --topic TOPIC, --topic TOPIC:0,2-4 or --all-topics"
        )
    if execute and dry_run:
        raise CallError("--execute and --dry-run contradict each other")
    if export == STANDARD and as_json:
        raise CallError("--export - and --json both want standard output; name a file")
    scope = topics_and_partitions("--topic", topic or ())
    named = list(dict.fromkeys(names or ()))
    from_plan = None if from_file is None else read_plan(from_file, named)
    with group_backend(context, servers, zookeeper, command_config) as backend:
        wanted = named or (list(from_plan) if from_plan and not all_groups else backend.names())
        backend.refuse_active(wanted)
        plan: list[Reset] = []
        for group, found in backend.committed(wanted).items():
            committed = _numbered(found)
            if from_plan is not None:
                if group not in from_plan:
                    raise ToolError(f"{from_file} has no line for group {group!r}")
                plan += plan_offsets(backend.admin, group, from_plan[group], committed)
            else:
                partitions = _partitions(backend.admin, group, scope, committed, quiet=all_groups)
                plan += plan_goal(backend.admin, group, partitions, committed, goal, number)
        if export is not None:  # before the commits: if the file cannot be written, nothing has been changed
            write_plan(export, plan, with_group=len(named) != 1)
        if execute:
            new: dict[str, dict[tuple[str, str], int]] = {}
            for line in plan:
                new.setdefault(line.group, {})[line.topic, str(line.partition)] = line.new
            commit_each(backend, new)
    if export != STANDARD:
        _show(plan, execute, as_json)


def _goal(
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_datetime: str | None,
    by_duration: str | None,
    to_offset: int | None,
    shift_by: int | None,
    from_file: Path | None,
) -> tuple[Goal, int]:
    """Return the goal that the options name, with its number (see Goal). Raises CallError unless the user gave exactly
    one goal or --from-file."""
    goals: list[tuple[Goal, int]] = []
    goals += [(Goal.EARLIEST, 0)] * to_earliest + [(Goal.LATEST, 0)] * to_latest + [(Goal.CURRENT, 0)] * to_current
    if to_datetime is not None:
        try:
            goals.append((Goal.TIME, min(timestamp_of(to_datetime), LAST_TIMESTAMP)))
        except (ValueError, OverflowError) as error:
            raise CallError(f"--to-datetime {to_datetime!r} is no time, as in 2024-01-31T12:00:00Z") from error
    if by_duration is not None:
        goals.append((Goal.AGE, duration_of("--by-duration", by_duration)))
    if to_offset is not None:
        goals.append((Goal.OFFSET, to_offset))
    if shift_by is not None:
        goals.append((Goal.SHIFT, shift_by))
    if len(goals) + (from_file is not None) != 1:
        raise CallError(
            "say one thing to reset to: --to-earliest, --to-latest, --to-current, --to-datetime, --by-duration, "
            "--to-offset, --shift-by or --from-file"
        )
    return goals[0] if goals else (Goal.OFFSET, 0)


def _numbered(found: Mapping[tuple[str, str], int]) -> Offsets:
    """Return the committed offsets with partition numbers as int. Partitions of Kafka 0.7 are left out, because later
    brokers do not know their names."""
    return {(topic, int(name)): OffsetAndMetadata(at) for (topic, name), at in found.items() if name.isdecimal()}


def _partitions(
    admin: Admin, group: str, scope: Mapping[str, list[int] | None], committed: Offsets, *, quiet: bool
) -> list[TopicPartition]:
    """Return the partitions to reset: the partitions named by --topic, or without --topic all existing partitions with
    a committed offset. Raises ToolError if the group has committed nothing, unless `quiet`."""
    if not scope:
        admin.cluster.refresh(dict.fromkeys(topic for topic, _ in committed))
        there = [where for where in committed if where[1] in admin.cluster.topics[where[0]].partitions]
        if not there and not quiet:
            raise ToolError(f"group {group!r} has committed nothing; name the topics with --topic")
        return there
    chosen = []
    for topic, numbers in scope.items():
        known = admin.cluster.topic(topic).partitions
        chosen += [(topic, number) for number in (known if numbers is None else numbers)]
    return chosen


def _show(plan: list[Reset], executed: bool, as_json: bool) -> None:
    if as_json:
        print_json({"executed": executed, "offsets": [line._asdict() for line in plan]})
        return
    if plan:
        notes = any(line.note for line in plan)
        print_table(
            ["group", "topic", "partition>", "committed>", "new>", *(["note"] if notes else [])],
            [
                (*line[:3], "-" if line.committed is None else line.committed, line.new, *([line.note] * notes))
                for line in plan
            ],
        )
    if executed:
        print(f"Committed {counted(len(plan), 'offset')}.")
    else:
        print("This is the plan; nothing was changed. --execute carries it out.")
