"""The command `kafkapy topics`: lists, creates, describes, alters and deletes topics."""

from typing import Annotated

import typer

from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.printable import printable
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, key_values
from kafkapy.tools.common.output import counted, print_json, print_table
from kafkapy.tools.topics.backend import topic_backend
from kafkapy.tools.topics.choices import UNAVAILABLE, UNDER_MIN_ISR, UNDER_REPLICATED
from kafkapy.tools.topics.interface import Document

app = typer.Typer(no_args_is_help=True, help="List, create, describe, alter and delete topics.")

Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the topic; may be repeated."),
]

ThroughZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        "-z",
        metavar="HOST:PORT/CHROOT",
        help="Ask no broker: read and write the cluster's nodes in ZooKeeper, as Kafka's tools did up to 2.8.",
    ),
]


@app.command("list")
def list_topics(
    context: typer.Context,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the topics with their numbers of partitions and replicas.

    Example: kafkapy topics list --json
    """
    with topic_backend(context, servers, zookeeper, command_config) as backend:
        topics = backend.summaries()
    if as_json:
        print_json(topics)
    elif topics:
        with_state = any(topic.get("markedForDeletion") for topic in topics)
        print_table(
            ["topic", "partitions>", "replicas>", "id", *(["state"] if with_state else [])],
            [
                (
                    *(topic[key] for key in ("name", "partitionCount", "replicationFactor", "id")),
                    *(["marked for deletion" if topic["markedForDeletion"] else ""] if with_state else []),
                )
                for topic in topics
            ],
        )
    else:
        print("There are no topics.")


@app.command("create")
def create_topics(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="One topic or more.")],
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: the broker's num.partitions.")] = -1,
    replicas: Annotated[
        int, typer.Option("--replication-factor", "-r", help="-1: the broker's default.replication.factor.")
    ] = -1,
    assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment",
            metavar="ID:ID,ID:ID",
            help="The brokers of each partition, the preferred leader first: 1:2,2:3 is two partitions.",
        ),
    ] = None,
    config: Config = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if a topic exists already.")
    ] = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Only check whether the topics could be created.")
    ] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Create topics.

    Examples:

        kafkapy topics create flights --partitions 4 --config retention.ms=3600000

        kafkapy topics create flights --replica-assignment 1:2,2:3,3:1

        kafkapy topics create flights -p 4 -r 1 --zookeeper localhost:2181/kafka
    """
    settings = key_values("--config", config or ())
    brokers = None if assignment is None else _brokers_of(assignment)
    if brokers is not None and (partitions, replicas) != (-1, -1):
        raise CallError("--replica-assignment goes with neither --partitions nor --replication-factor")
    with topic_backend(context, servers, zookeeper, command_config) as backend:
        for name in names:
            try:
                count = backend.create(name, partitions, replicas, settings, brokers, validate_only=validate_only)
            except KafkaError as error:
                if error.code == Errors.TOPIC_ALREADY_EXISTS and if_not_exists:
                    print(f"Topic {name} is there already.")
                    continue
                raise
            if validate_only:
                print(f"Topic {name} could be created.")
            else:
                print(f"Created topic {name} with {counted(count, 'partition')}.")


def _brokers_of(text: str) -> dict[int, list[int]]:
    """Return the brokers of each partition, by partition, from `1:2,2:3`. Raise CallError for anything else."""
    found = {}
    for partition, brokers in enumerate(text.split(",")):
        ids = brokers.split(":")
        if not all(one.isascii() and one.isdigit() for one in ids):
            raise CallError(f"--replica-assignment {text!r}: {brokers!r} is not broker ids with colons, as in 1:2,2:3")
        found[partition] = [int(one) for one in ids]
    return found


@app.command("describe")
def describe_topics(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Default: all topics.")] = None,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated-partitions",
            "--under-replicated",
            help="Only partitions with replicas that are not in sync; the exit code is 1 if there are any.",
        ),
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions",
            help="Only partitions with fewer replicas in sync than min.insync.replicas; exit code as above.",
        ),
    ] = False,
    unavailable: Annotated[
        bool,
        typer.Option(
            "--unavailable-partitions",
            help="Only partitions whose leader is not available; exit code as above.",
        ),
    ] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show partitions with leader, replicas, offsets, and the settings that differ from the broker's.

    Examples:

        kafkapy topics describe flights

        kafkapy topics describe --under-replicated-partitions
    """
    chosen = [
        choice
        for choice, wanted in (
            (UNDER_REPLICATED, under_replicated),
            (UNDER_MIN_ISR, under_min_isr),
            (UNAVAILABLE, unavailable),
        )
        if wanted
    ]
    if len(chosen) > 1:
        raise CallError(f"say one of {', '.join(choice.option for choice in chosen)}, not several")
    with topic_backend(context, servers, zookeeper, command_config) as backend:
        # Without offsets: the leaders of such partitions may not respond.
        topics = backend.descriptions(names or (), with_offsets=not chosen)
        for choice in chosen:
            topics = choice.only(topics, backend)
    if as_json:
        print_json(topics)
    else:
        _show(topics)
        if chosen and not topics:
            print(chosen[0].none)
    if chosen and topics:
        raise typer.Exit(1)


def _show(topics: list[Document]) -> None:
    for topic in topics:
        settings = ", ".join(f"{key}={value}" for key, value in topic["configs"].items()) or "as the broker is set"
        marked = ", marked for deletion" if topic.get("markedForDeletion") else ""
        print(printable(f"Topic {topic['name']}, id {topic['id'] or 'none yet'}, settings: {settings}{marked}"))
        with_offsets = any("start" in one for one in topic["partitions"])
        print_table(
            [
                *("partition>", "leader>", "epoch>", "replicas", "in sync"),
                *(("first offset>", "end offset>") if with_offsets else ()),
            ],
            [
                (
                    *(one["partition"], one["leader"], one["leaderEpoch"]),
                    *(",".join(map(str, one[ids])) for ids in ("replicas", "isr")),
                    *((one["start"], one["end"]) if with_offsets else ()),
                )
                for one in topic["partitions"]
            ],
        )


@app.command("alter")
def alter_topic(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="The new, larger number.")] = None,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Use the broker's value again; may be repeated."),
    ] = None,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Add partitions, or change settings.

    Example: kafkapy topics alter flights --partitions 8 --config cleanup.policy=compact
    """
    changes, removed = key_values("--config", config or ()), delete_config or []
    if partitions is None and not changes and not removed:
        raise CallError("topics alter needs --partitions, --config or --delete-config")
    with topic_backend(context, servers, zookeeper, command_config) as backend:
        if changes or removed:
            backend.alter_settings(name, changes, removed)
            print(f"Changed {counted(len(changes) + len(removed), 'setting')} of topic {name}.")
        if partitions is not None:
            backend.add_partitions(name, partitions)
            print(f"Topic {name} has {counted(partitions, 'partition')} now.")


@app.command("delete")
def delete_topics(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC")],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if a topic does not exist.")] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete topics and all their records.

    Example: kafkapy topics delete flights
    """
    with topic_backend(context, servers, zookeeper, command_config) as backend:
        for name in names:
            try:
                print(backend.delete(name))
            except KafkaError as error:
                if error.code != Errors.UNKNOWN_TOPIC_OR_PARTITION or not if_exists:
                    raise
                print(f"Topic {name} is not there.")
