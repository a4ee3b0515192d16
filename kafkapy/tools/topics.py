"""`kafkapy topics`: list, create, describe, alter and delete topics."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.client.admin import DELETE, EARLIEST, LATEST, SET, TOPIC, Admin
from kafkapy.client.cluster import Topic, TopicPartition
from kafkapy.client.descriptions import FoundOffset, NewTopic
from kafkapy.errors import Errors, KafkaError
from kafkapy.tools.errors import CallError
from kafkapy.tools.options import (
    DEFAULT_SERVER,
    CommandConfig,
    Json,
    Servers,
    cluster_of,
    key_values,
    through_zookeeper,
)
from kafkapy.tools.output import print_json, print_table
from kafkapy.tools.topic_creation import create_each

if TYPE_CHECKING:
    from kafkapy.tools.topics_zookeeper import ZooKeeperTopics

app = typer.Typer(no_args_is_help=True, help="List, create, describe, alter and delete topics.")

Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the topic; repeat it for more."),
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
    nodes = _through_zookeeper(context, zookeeper, command_config)
    if nodes is not None:
        return nodes.show_list(as_json=as_json)
    with Admin(cluster_of(servers)) as admin, admin.cluster:
        topics = admin.list_topics()
    if as_json:
        print_json([_summary(topic) for topic in topics])
    elif topics:
        print_table(
            ["topic", "partitions>", "replicas>", "id"],
            [(t.name, len(t.partitions), _replicas(t), topic_id_text(t.topic_id)) for t in topics],
        )
    else:
        print("There are no topics.")


@app.command("create")
def create_topics(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="One topic or more.")],
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: as the broker is set.")] = -1,
    replicas: Annotated[int, typer.Option("--replication-factor", "-r", help="-1: as the broker is set.")] = -1,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is no error.")] = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Only check whether it could be made.")
    ] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Create topics.

    Examples:

        kafkapy topics create flights --partitions 4 --config retention.ms=3600000

        kafkapy topics create flights -p 4 -r 1 --zookeeper localhost:2181/kafka
    """
    nodes = _through_zookeeper(context, zookeeper, command_config)
    if nodes is not None:
        return nodes.create(
            names,
            partitions,
            replicas,
            key_values("--config", config or ()),
            if_not_exists=if_not_exists,
            validate_only=validate_only,
        )
    settings: dict[str, str | None] = dict(key_values("--config", config or ()))
    with Admin(cluster_of(servers)) as admin, admin.cluster:

        def make(name: str) -> str:
            asked = [NewTopic(name, partitions, replicas, settings)]
            made = admin.create_topics(asked, validate_only=validate_only)
            return _count(len(made[0].partitions), "partition")

        create_each(names, make, if_not_exists=if_not_exists, validate_only=validate_only)


@app.command("describe")
def describe_topics(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="None: all topics.")] = None,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show partitions with leader, replicas, offsets, and the settings that differ from the broker's.

    Example: kafkapy topics describe flights
    """
    nodes = _through_zookeeper(context, zookeeper, command_config)
    if nodes is not None:
        return nodes.describe(names or (), as_json=as_json)
    with Admin(cluster_of(servers)) as admin, admin.cluster:
        topics = [admin.describe_topic(name) for name in names] if names else admin.list_topics()
        described = [_described(admin, topic) for topic in topics]
    if as_json:
        print_json(described)
        return
    for topic in described:
        settings = ", ".join(f"{key}={value}" for key, value in topic["configs"].items()) or "as the broker is set"
        print(f"Topic {topic['name']}, id {topic['id']}, settings: {settings}")
        print_table(
            ["partition>", "leader>", "epoch>", "replicas", "in sync", "first offset>", "end offset>"],
            [
                (
                    p["partition"],
                    p["leader"],
                    p["leaderEpoch"],
                    _ids(p["replicas"]),
                    _ids(p["isr"]),
                    p["start"],
                    p["end"],
                )
                for p in topic["partitions"]
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
        typer.Option("--delete-config", metavar="KEY", help="Back to the broker's setting; repeat it."),
    ] = None,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Add partitions, or change settings.

    Example: kafkapy topics alter flights --partitions 8 --config cleanup.policy=compact
    """
    changes: list[tuple[str, int, str | None]] = [
        (key, SET, value) for key, value in key_values("--config", config or ()).items()
    ]
    changes += [(key, DELETE, None) for key in delete_config or ()]
    if partitions is None and not changes:
        raise CallError("topics alter needs --partitions, --config or --delete-config")
    nodes = _through_zookeeper(context, zookeeper, command_config)
    if nodes is not None:
        return nodes.alter(name, partitions, key_values("--config", config or ()), delete_config or ())
    with Admin(cluster_of(servers)) as admin, admin.cluster:
        if changes:
            admin.alter_configs(TOPIC, name, changes)
            print(f"Changed {_count(len(changes), 'setting')} of topic {name}.")
        if partitions is not None:
            admin.create_partitions(name, partitions)
            print(f"Topic {name} has {_count(partitions, 'partition')} now.")


@app.command("delete")
def delete_topics(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC")],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that is not there is no error.")] = False,
    servers: Servers = DEFAULT_SERVER,
    zookeeper: ThroughZooKeeper = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete topics and everything in them.

    Example: kafkapy topics delete flights
    """
    nodes = _through_zookeeper(context, zookeeper, command_config)
    if nodes is not None:
        return nodes.delete(names, if_exists=if_exists)
    with Admin(cluster_of(servers)) as admin, admin.cluster:
        for name in names:
            try:
                admin.delete_topics([name])
            except KafkaError as error:
                if error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION and if_exists:
                    print(f"Topic {name} is not there.")
                    continue
                raise
            print(f"Deleted topic {name}.")


def _through_zookeeper(context: typer.Context, zookeeper: str | None, file: Path | None) -> "ZooKeeperTopics | None":
    """None where a broker is to be asked; CallError for options that do not go together."""
    if not through_zookeeper(context, zookeeper, file):
        return None
    assert zookeeper is not None
    from kafkapy.tools.topics_zookeeper import ZooKeeperTopics

    return ZooKeeperTopics(zookeeper, file)


def topic_id_text(topic_id: bytes) -> str:
    """The 22 characters that Kafka shows for an id; empty where there is none."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii") if any(topic_id) else ""


def _summary(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic_id_text(topic.topic_id),
        "internal": topic.internal,
        "partitionCount": len(topic.partitions),
        "replicationFactor": _replicas(topic),
    }


def _described(admin: Admin, topic: Topic) -> dict[str, Any]:
    where: list[TopicPartition] = [(topic.name, index) for index, one in topic.partitions.items() if one.leader >= 0]
    starts = admin.offsets(dict.fromkeys(where, EARLIEST))
    ends = admin.offsets(dict.fromkeys(where, LATEST))
    entries = admin.describe_configs(TOPIC, topic.name)
    return {
        **_summary(topic),
        "configs": {entry.name: entry.value for entry in entries if entry.source == "DYNAMIC_TOPIC_CONFIG"},
        "partitions": [
            {
                "partition": one.index,
                "leader": one.leader if one.leader >= 0 else None,
                "leaderEpoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
                "start": _offset(starts.get((topic.name, one.index))),
                "end": _offset(ends.get((topic.name, one.index))),
            }
            for one in topic.partitions.values()
        ],
    }


def _offset(found: FoundOffset | None) -> int | None:
    return None if found is None else found.offset


def _replicas(topic: Topic) -> int:
    return max((len(one.replicas) for one in topic.partitions.values()), default=0)


def _ids(ids: list[int]) -> str:
    return ",".join(str(one) for one in ids)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
