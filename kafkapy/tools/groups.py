"""`kafkapy groups`: list and describe consumer groups, reset their offsets, delete them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkapy.client.admin import Admin
from kafkapy.client.cluster import TopicPartition
from kafkapy.client.group_admin import GroupAdmin
from kafkapy.client.group_types import OffsetAndMetadata
from kafkapy.errors import Errors, KafkaError
from kafkapy.tools.errors import CallError, ToolError
from kafkapy.tools.group_answers import complain, existing, found_and_refused, refusal
from kafkapy.tools.group_homes import ThroughZooKeeper
from kafkapy.tools.group_offset_files import export_offsets, import_offsets
from kafkapy.tools.group_resets import reset_offsets
from kafkapy.tools.group_views import document, end_offsets, print_members, print_offsets, print_states, progress_of
from kafkapy.tools.options import DEFAULT_SERVER, CommandConfig, Json, Servers, cluster_of, named, through_zookeeper
from kafkapy.tools.output import counted, print_json, print_table
from kafkapy.tools.partition_words import in_words, topics_and_partitions

if TYPE_CHECKING:
    from kafkapy.tools.groups_zookeeper import ZooKeeperGroups

# Kafka's ConsumerGroupState and GroupType, as far as brokers of 3.9 in ZooKeeper mode have them, and those of others.
STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
TYPES = ("classic", "consumer")

app = typer.Typer(no_args_is_help=True, help="List and describe consumer groups, reset their offsets, delete them.")

GroupNames = Annotated[list[str], typer.Argument(metavar="GROUP", help="One group or more.")]


@app.command("list")
def list_groups(
    context: typer.Context,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE,...", help=f"Only in these: {', '.join(STATES)}.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE,...", help=f"Only of these: {', '.join(TYPES)}.")
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
    in_zookeeper = _in_zookeeper(context, zookeeper, command_config)
    if in_zookeeper is not None:
        if state or kind:
            raise CallError(
                "--state and --type do not go with --zookeeper: no coordinator keeps states of these groups"
            )
        return in_zookeeper.show_list(as_json=as_json)
    states = named("--state", state, STATES)
    types = named("--type", kind, TYPES)
    with cluster_of(servers) as cluster:
        groups = GroupAdmin(cluster).list_groups(states, types)
    if as_json:
        print_json(
            [
                {
                    "group": g.id,
                    "state": g.state,
                    "type": g.type,
                    "protocolType": g.protocol_type,
                    "coordinator": g.coordinator,
                }
                for g in groups
            ]
        )
    elif groups:
        print_table(
            ["group", "state", "type", "protocol type", "coordinator>"],
            [(g.id, g.state, g.type, g.protocol_type or "-", g.coordinator) for g in groups],
        )
    else:
        print("There are no such groups." if states or types else "There are no groups.")


@app.command("describe")
def describe_groups(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="None: all groups.")] = None,
    offsets: Annotated[bool, typer.Option("--offsets", help="Offsets and lag; this is what is shown anyway.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Who is in it, and what is assigned to whom.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, assignor and coordinator, a line a group.")] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show how far groups have come, or who is in them.

    With --zookeeper also where each offset is kept, in ZooKeeper or in Kafka, and which consumer thread owns what.

    Examples:

        kafkapy groups describe reports

        kafkapy groups describe reports --members

        kafkapy groups describe --state

        kafkapy groups describe old-reports --zookeeper localhost:2181/kafka
    """
    if offsets + members + state > 1:
        raise CallError("say one of --offsets, --members and --state")
    in_zookeeper = _in_zookeeper(context, zookeeper, command_config)
    if in_zookeeper is not None:
        if state:
            raise CallError("--state does not go with --zookeeper: no coordinator keeps states of these groups")
        return in_zookeeper.describe(names or (), members=members, as_json=as_json)
    with cluster_of(servers) as cluster:
        groups = GroupAdmin(cluster)
        wanted = names or [listing.id for listing in groups.list_groups()]
        found, failed = existing(groups, wanted)
        committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        ends: dict[TopicPartition, int] = {}
        if not members and not state:
            committed, refused = found_and_refused(groups.offsets(group.id for group in found))
            failed += refused
            assigned = [where for group in found for member in group.members for where in member.partitions or ()]
            ends = end_offsets(Admin(cluster), [*assigned, *(where for one in committed.values() for where in one)])
    progress = {group.id: progress_of(group, committed.get(group.id, {}), ends) for group in found}
    if as_json:
        print_json([document(group, None if members or state else progress[group.id]) for group in found])
    elif state and found:
        print_states(found)
    else:
        for number, group in enumerate(found):
            if number:
                print()
            print_members(group) if members else print_offsets(group, progress[group.id])
        if not wanted:
            print("There are no groups.")
    complain(failed)


app.command("reset-offsets")(reset_offsets)
app.command("export-offsets")(export_offsets)
app.command("import-offsets")(import_offsets)


@app.command("delete")
def delete_groups(
    context: typer.Context,
    names: GroupNames,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A group that is not there is no error.")] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete groups that have no members, and what they have committed.

    With --zookeeper they go from there, and what they have in Kafka stays.

    Examples:

        kafkapy groups delete reports

        kafkapy groups delete old-reports --zookeeper localhost:2181/kafka
    """
    in_zookeeper = _in_zookeeper(context, zookeeper, command_config)
    if in_zookeeper is not None:
        return in_zookeeper.delete(names, if_exists=if_exists)
    failed = []
    with cluster_of(servers) as cluster:
        for name, error in GroupAdmin(cluster).delete(names).items():
            if error is None:
                print(f"Deleted group {name}.")
            elif error.code == Errors.GROUP_ID_NOT_FOUND and if_exists:
                print(f"Group {name} is not there.")
            else:
                failed.append(refusal(name, error))
    complain(failed)


@app.command("delete-offsets")
def delete_offsets(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITIONS]", help="As flights or flights:0,2-4; repeat it."),
    ],
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete what a group has committed for topics that none of its members subscribes to.

    A group in ZooKeeper must have no members at all.

    Examples:

        kafkapy groups delete-offsets reports --topic flights

        kafkapy groups delete-offsets reports --topic flights:0,2-4 --topic weather
    """
    wanted = topics_and_partitions("--topic", topic)
    in_zookeeper = _in_zookeeper(context, zookeeper, command_config)
    if in_zookeeper is not None:
        return in_zookeeper.delete_offsets(name, wanted)
    with cluster_of(servers) as cluster:
        groups = GroupAdmin(cluster)
        answers = groups.delete_offsets(name, _committed_in(groups, name, wanted))
    gone = [where for where, error in answers.items() if error is None]
    if gone:
        print(f"Deleted {counted(len(gone), 'offset')} of group {name}: {in_words(gone)}.")
    if refused := [where for where, error in answers.items() if error is not None]:
        error = answers[refused[0]]
        assert error is not None
        if error.code != Errors.GROUP_SUBSCRIBED_TO_TOPIC:
            raise error
        topics = ", ".join(repr(one) for one in dict.fromkeys(topic for topic, _ in refused))
        raise ToolError(
            f"members of group {name!r} subscribe to {topics}, so its offsets there stay: stop them first "
            "(GROUP_SUBSCRIBED_TO_TOPIC)"
        )


def _in_zookeeper(context: typer.Context, zookeeper: str | None, file: Path | None) -> "ZooKeeperGroups | None":
    """None where brokers are to be asked; CallError for options that do not go together."""
    if not through_zookeeper(context, zookeeper, file):
        return None
    from kafkapy.tools.groups_zookeeper import ZooKeeperGroups

    return ZooKeeperGroups(str(zookeeper), file)


def _committed_in(groups: GroupAdmin, name: str, wanted: dict[str, list[int] | None]) -> list[TopicPartition]:
    """Those of the partitions that the group has committed; ToolError where it has committed nothing for one asked."""
    found = groups.offsets([name])[name]
    if isinstance(found, KafkaError):
        raise found
    if not found:
        complain(existing(groups, [name])[1])
    chosen: list[TopicPartition] = []
    for topic, numbers in wanted.items():
        its = [where for where in found if where[0] == topic] if numbers is None else [(topic, n) for n in numbers]
        missing = [where for where in its if where not in found]
        if missing or not its:
            what = in_words(missing) if missing else f"topic {topic!r}"
            raise ToolError(f"group {name!r} has committed nothing for {what}")
        chosen += its
    return chosen
