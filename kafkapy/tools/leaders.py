"""The command `kafkapy leaders`: elects the leaders of partitions."""

from typing import Annotated

import typer

from kafkapy.client.administration.partition_admin import PartitionAdmin
from kafkapy.client.cluster import Cluster
from kafkapy.errors import name_of
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Partitions, Servers, cluster_of
from kafkapy.tools.common.output import counted, print_json, print_table
from kafkapy.tools.common.selection import check_selection, named_partitions

app = typer.Typer(no_args_is_help=True, help="Elect the leaders of partitions.")


@app.callback()
def leaders() -> None:
    """Elect the leaders of partitions."""


@app.command("elect")
def elect(
    topics: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="All partitions of this topic; may be repeated.")
    ] = None,
    partitions: Partitions = None,
    every: Annotated[bool, typer.Option("--all", help="All partitions of all topics.")] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="For partitions without a leader, elect a replica that is not in sync; records may be lost.",
        ),
    ] = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Make the first replica of each partition its leader again if it is in sync, for example after broker restarts.

    The exit code is 1 if an election fails.

    Examples:

        kafkapy leaders elect --all

        kafkapy leaders elect --topic flights --partition 3 --unclean
    """
    check_selection("leaders elect", topics, partitions, every=every)
    with cluster_of(servers, command_config) as cluster:
        asked = None if every else named_partitions(cluster, topics or [], partitions)
        results = PartitionAdmin(cluster).elect_leaders(asked, unclean=unclean)
        cluster.refresh(dict.fromkeys(topic for topic, _ in results))
        rows = [
            {
                "topic": topic,
                "partition": index,
                "leader": _leader(cluster, topic, index),
                "elected": error is None,
                "error": None if error is None else name_of(error.code),
                "message": None if error is None else error.message,
            }
            for (topic, index), error in sorted(results.items())
        ]
    failed = [row for row in rows if row["error"] not in (None, "ELECTION_NOT_NEEDED")]
    if as_json:
        print_json(rows)
    else:
        elected = [row for row in rows if row["elected"]]
        print(f"Elected the leaders of {counted(len(elected), 'partition')}.")
        if elected:
            print_table(
                ["topic", "partition>", "leader>"], [(one["topic"], one["partition"], one["leader"]) for one in elected]
            )
        unchanged = len(rows) - len(elected) - len(failed)
        if unchanged:
            print(f"No election was needed for {counted(unchanged, 'partition')}.")
        if failed:
            print(f"The election failed for {counted(len(failed), 'partition')}.")
            print_table(
                ["topic", "partition>", "error", "message"],
                [(one["topic"], one["partition"], one["error"], one["message"]) for one in failed],
            )
    if failed:
        raise typer.Exit(1)


def _leader(cluster: Cluster, topic: str, index: int) -> int | None:
    known = cluster.topics.get(topic)
    one = known.partitions.get(index) if known is not None else None
    return one.leader if one is not None and one.leader >= 0 else None
