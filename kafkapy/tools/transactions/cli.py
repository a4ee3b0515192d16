"""The command `kafkapy transactions`: lists, describes and aborts transactions, and finds hanging ones."""

from typing import Annotated

import typer

from kafkapy.client.administration.txn_admin import ProducerState, TransactionAdmin, TransactionDescription
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.coordinator.transaction_records import STATES
from kafkapy.errors import Errors, KafkaError
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, cluster_of, named
from kafkapy.tools.common.output import counted, print_json, print_table
from kafkapy.tools.common.times import duration_of
from kafkapy.tools.main import sentence_of
from kafkapy.tools.transactions.abort import abort
from kafkapy.tools.transactions.tables import (
    print_hanging,
    print_producers,
    print_transactions,
    producer_document,
    transaction_document,
)

app = typer.Typer(no_args_is_help=True, help="List and describe transactions, find those that hang, and abort.")

Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated.")
]
BrokerId = Annotated[
    int | None, typer.Option("--broker", metavar="ID", help="Ask this replica instead of the leaders.")
]


@app.command("list")
def list_transactions(
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE,...", help=f"Only in these states: {', '.join(STATES)}.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", min=0, help="Only of this producer; may be repeated.")
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="TIME", help="Only transactions older than this: 90s, 15m, 1d."),
    ] = None,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the transactional ids of the cluster with the states of their transactions.

    Examples:

        kafkapy transactions list

        kafkapy transactions list --state ongoing --longer-than 15m
    """
    states = named("--state", state, STATES)
    longer_ms = -1 if longer_than is None else duration_of("--longer-than", longer_than)
    with cluster_of(servers, command_config) as cluster:
        found = TransactionAdmin(cluster).list_transactions(
            states=states, producer_ids=producer_id or (), longer_than_ms=longer_ms
        )
    if as_json:
        print_json(
            [
                {
                    "transactionalId": one.id,
                    "state": one.state,
                    "producerId": one.producer_id,
                    "coordinator": one.coordinator,
                }
                for one in found
            ]
        )
    elif found:
        print_table(
            ["transactional id", "state", "producer id>", "coordinator>"],
            [(one.id, one.state, one.producer_id, one.coordinator) for one in found],
        )
    else:
        chosen = bool(states or producer_id or longer_than)
        print("There are no such transactional ids." if chosen else "There are no transactional ids.")


@app.command("describe")
def describe_transactions(
    ids: Annotated[list[str] | None, typer.Argument(metavar="TRANSACTIONAL-ID", help="Default: all.")] = None,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the transactions of transactional ids: state, age, and the partitions in them.

    Example: kafkapy transactions describe copier-1
    """
    if "" in (ids or ()):
        raise CallError("a transactional id must not be empty")
    with cluster_of(servers, command_config) as cluster:
        admin = TransactionAdmin(cluster)
        answers = admin.describe(ids or [one.id for one in admin.list_transactions()])
    found = [answer for answer in answers.values() if isinstance(answer, TransactionDescription)]
    if as_json:
        print_json([transaction_document(one) for one in found])
    elif found:
        print_transactions(found)
    elif not answers:
        print("There are no transactional ids.")
    if failed := [_refusal(id, answer) for id, answer in answers.items() if isinstance(answer, KafkaError)]:
        raise ToolError("; ".join(failed))


@app.command("describe-producers")
def describe_producers(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Partitions = None,
    broker: BrokerId = None,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the producers whose state a partition keeps, and where their open transactions begin.

    Example: kafkapy transactions describe-producers flights --partition 0
    """
    with cluster_of(servers, command_config) as cluster:
        wanted = _partitions(cluster, [topic], partition, broker)
        answers = TransactionAdmin(cluster).producers(wanted, broker=broker)
    rows: list[tuple[TopicPartition, ProducerState]] = []
    for where, states in answers.items():
        if isinstance(states, KafkaError):
            raise states
        rows += [(where, state) for state in states]
    if as_json:
        print_json([producer_document(where, state) for where, state in rows])
    elif rows:
        print_producers(rows)
    else:
        print(f"There is no producer state in {counted(len(wanted), 'partition')} of {topic}.")


@app.command("find-hanging")
def find_hanging(
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Default: all topics.")] = None,
    partition: Partitions = None,
    broker: BrokerId = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Only transactions without a write for this long.")
    ] = "15m",
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Find transactions that are open in a partition but that no coordinator will end.

    Such a transaction holds back the last stable offset, so readers of committed records get nothing after it.
    --older-than must not be less than the brokers' transaction.max.timeout.ms, by default 15 minutes.

    Example: kafkapy transactions find-hanging flights
    """
    if partition and len(topics or ()) != 1:
        raise CallError("--partition needs exactly one topic")
    older_ms = duration_of("--older-than", older_than)
    with cluster_of(servers, command_config) as cluster:
        wanted = _partitions(cluster, topics, partition, broker)
        found = TransactionAdmin(cluster).find_hanging(wanted, older_ms, broker=broker)
    if as_json:
        print_json([{**producer_document(one.partition, one.producer), "transactionalId": one.id} for one in found])
        return
    if not found:
        print(f"No transaction hangs in {counted(len(wanted), 'partition')}.")
        return
    print_hanging(found)
    (topic, index), first = found[0].partition, found[0].producer
    print(
        "This aborts the first: "
        f"kafkapy transactions abort --topic {topic} --partition {index} --start-offset {first.txn_start_offset}"
    )


app.command("abort")(abort)


def _partitions(
    cluster: Cluster, topics: list[str] | None, numbers: list[int] | None, broker: int | None
) -> list[TopicPartition]:
    """Return the partitions of the named topics, or of all topics. `numbers` limits them to these partitions, and
    `broker` to partitions that have a replica on this broker. Raises KafkaError for a topic or partition that does not
    exist, ToolError for an unknown broker."""
    if not topics:
        cluster.refresh()
    found = [
        (name, index)
        for name in topics or sorted(cluster.topics)
        for index, one in cluster.topic(name).partitions.items()
        if (numbers is None or index in numbers) and (broker is None or broker in one.replicas)
    ]
    for number in numbers or ():
        cluster.leader_of((topics or [""])[0], number)  # raises KafkaError if there is no such partition
    if broker is not None and broker not in cluster.brokers:
        known = ", ".join(str(node) for node in sorted(cluster.brokers))
        raise ToolError(f"there is no broker {broker}; the cluster has {known}")
    return found


def _refusal(id: str, error: KafkaError) -> str:
    if error.code == Errors.TRANSACTIONAL_ID_NOT_FOUND:
        return f"there is no transactional id {id!r}"
    return sentence_of(error).rstrip(".")
