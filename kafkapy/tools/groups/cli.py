"""The command `kafkapy groups`: lists and describes consumer groups, resets their offsets, deletes them."""

from typing import Annotated

import typer

from kafkapy.tools.common.errors import CallError, fail_if_any
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, named
from kafkapy.tools.common.output import print_json
from kafkapy.tools.common.partition_ranges import topics_and_partitions
from kafkapy.tools.groups.backend import ThroughZooKeeper, group_backend
from kafkapy.tools.groups.offset_files import export_offsets, import_offsets
from kafkapy.tools.groups.reset import reset_offsets
from kafkapy.tools.groups.tables import print_listing, print_members, print_offsets, print_states

# Kafka's ConsumerGroupState and GroupType, without share groups.
STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
TYPES = ("classic", "consumer")

app = typer.Typer(no_args_is_help=True, help="List and describe consumer groups, reset their offsets, delete them.")

GroupNames = Annotated[list[str], typer.Argument(metavar="GROUP", help="One group or more.")]


@app.command("list")
def list_groups(
    context: typer.Context,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE,...", help=f"Only in these states: {', '.join(STATES)}.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE,...", help=f"Only of these types: {', '.join(TYPES)}.")
    ] = None,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the groups with their states.

    Examples:

        kafkapy groups list

        kafkapy groups list --state stable,empty --json

        kafkapy groups list --zookeeper localhost:2181/kafka
    """
    if zookeeper is not None and (state or kind):
        raise CallError("--state and --type do not go with --zookeeper: no coordinator keeps states of these groups")
    states, types = named("--state", state, STATES), named("--type", kind, TYPES)
    with group_backend(context, servers, zookeeper, command_config) as backend:
        groups = backend.listing(states, types)
    if as_json:
        print_json(groups)
    elif groups:
        print_listing(groups)
    elif states or types:
        print("There are no such groups.")
    else:
        print(f"There are no groups{_in(backend.place)}.")


@app.command("describe")
def describe_groups(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Default: all groups.")] = None,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show offsets and lag. This is the default.")] = False,
    members: Annotated[
        bool, typer.Option("--members", help="Show the members and the partitions assigned to each.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show state, assignor and coordinator, one line per group.")
    ] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show committed offsets and lag of groups, or their members.

    With --zookeeper the table also has the place of each offset, ZooKeeper or Kafka, and the consumer thread that owns
    the partition.

    Examples:

        kafkapy groups describe reports

        kafkapy groups describe reports --members

        kafkapy groups describe --state

        kafkapy groups describe old-reports --zookeeper localhost:2181/kafka
    """
    if offsets + members + state > 1:
        raise CallError("say one of --offsets, --members and --state")
    if state and zookeeper is not None:
        raise CallError("--state does not go with --zookeeper: no coordinator keeps states of these groups")
    with group_backend(context, servers, zookeeper, command_config) as backend:
        groups, failed = backend.describe(names or (), offsets=not members and not state)
    if as_json:
        print_json([group.document for group in groups])
    elif state and groups:
        print_states(groups)
    else:
        for number, group in enumerate(groups):
            if number:
                print()
            print_members(group) if members else print_offsets(group)
        if not groups and not failed:
            print(f"There are no groups{_in(backend.place)}.")
    fail_if_any(failed)


app.command("reset-offsets")(reset_offsets)
app.command("export-offsets")(export_offsets)
app.command("import-offsets")(import_offsets)


@app.command("delete")
def delete_groups(
    context: typer.Context,
    names: GroupNames,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if a group does not exist.")] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete groups without members, and their committed offsets.

    With --zookeeper they are deleted from ZooKeeper; offsets that they keep in Kafka stay.

    Examples:

        kafkapy groups delete reports

        kafkapy groups delete old-reports --zookeeper localhost:2181/kafka
    """
    failed = []
    with group_backend(context, servers, zookeeper, command_config) as backend:
        for name, refusal in backend.delete(names):
            if refusal is None:
                print(f"Deleted group {name}{f' from {backend.place}' if backend.place else ''}.")
            elif refusal.is_missing and if_exists:
                print(f"Group {name} is not there.")
            else:
                failed.append(refusal.sentence)
    fail_if_any(failed)


@app.command("delete-offsets")
def delete_offsets(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:PARTITIONS]", help="As flights or flights:0,2-4; may be repeated."
        ),
    ],
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete committed offsets of a group for topics that none of its members subscribes to.

    A group in ZooKeeper must have no members at all.

    Examples:

        kafkapy groups delete-offsets reports --topic flights

        kafkapy groups delete-offsets reports --topic flights:0,2-4 --topic weather
    """
    wanted = topics_and_partitions("--topic", topic)
    with group_backend(context, servers, zookeeper, command_config) as backend:
        for sentence in backend.delete_offsets(name, wanted):
            print(sentence)


def _in(place: str) -> str:
    return f" in {place}" if place else ""
