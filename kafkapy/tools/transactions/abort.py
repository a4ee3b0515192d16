"""The command `kafkapy transactions abort`: aborts the open transaction of a transactional id, or a hanging transaction
in a partition."""

from typing import Annotated

import typer

from kafkapy.client.administration.txn_admin import ProducerState, TransactionAdmin
from kafkapy.client.cluster import TopicPartition
from kafkapy.errors import Errors, KafkaError
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Servers, cluster_of
from kafkapy.tools.common.partition_ranges import partitions_text

# States in which a coordinator can still abort; from PrepareEpochFence it aborts by itself.
OPEN = ("Ongoing", "PrepareEpochFence")


def abort(
    id: Annotated[
        str | None,
        typer.Argument(metavar="TRANSACTIONAL-ID", help="Abort its open transaction through the coordinator."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic of a hanging transaction.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Its partition.")] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, help="The offset at which the transaction begins.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Abort in the partition even if a coordinator knows the transaction.")
    ] = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Abort a transaction.

    With a transactional id, its coordinator aborts the open transaction in all partitions and fences the producer,
    which then fails. With --topic, --partition and --start-offset, an abort marker is written to this one partition:
    for a hanging transaction that `kafkapy transactions find-hanging` has found.

    Examples:

        kafkapy transactions abort copier-1

        kafkapy transactions abort --topic flights --partition 0 --start-offset 4711
    """
    in_partition = (topic, partition, start_offset)
    if id == "":
        raise CallError("the transactional id must not be empty")
    if id is not None and in_partition == (None, None, None) and not force:
        with cluster_of(servers, command_config) as cluster:
            _abort_id(TransactionAdmin(cluster), id)
    elif id is None and topic is not None and partition is not None and start_offset is not None:
        with cluster_of(servers, command_config) as cluster:
            _abort_in_partition(TransactionAdmin(cluster), (topic, partition), start_offset, force)
    else:
        raise CallError("say what to abort: a transactional id, or --topic, --partition and --start-offset")


def _abort_id(admin: TransactionAdmin, id: str) -> None:
    found = admin.describe([id])[id]
    if isinstance(found, KafkaError):
        if found.code == Errors.TRANSACTIONAL_ID_NOT_FOUND:
            raise ToolError(f"there is no transactional id {id!r}")
        raise found
    if found.state not in OPEN:
        raise ToolError(f"transactional id {id!r} has no open transaction: it is {found.state}")
    admin.abort(id)
    print(f"Aborted the transaction of {id} in {partitions_text(found.partitions)}; its producer is fenced.")


def _abort_in_partition(admin: TransactionAdmin, where: TopicPartition, start_offset: int, force: bool) -> None:
    producer = _producer_at(admin, where, start_offset)
    known = admin.known_transactions([producer.producer_id]).get(producer.producer_id)
    if known is not None and where in known.partitions and not force:
        raise ToolError(
            f"the transaction at {start_offset} in {where[0]}:{where[1]} does not hang: transactional id {known.id!r} "
            f"is {known.state}; `kafkapy transactions abort {known.id}` aborts all of it, --force only this part"
        )
    admin.abort_in_partition(where, producer)
    print(f"Aborted the transaction at {start_offset} in {where[0]}:{where[1]}.")


def _producer_at(admin: TransactionAdmin, where: TopicPartition, start_offset: int) -> ProducerState:
    states = admin.producers([where])[where]
    if isinstance(states, KafkaError):
        raise states
    opened = {state.txn_start_offset: state for state in states if state.txn_start_offset is not None}
    if start_offset not in opened:
        others = ", ".join(map(str, sorted(opened)))
        there = f"those that are open there begin at {others}" if others else "none is open there"
        raise ToolError(f"no open transaction begins at {start_offset} in {where[0]}:{where[1]}: {there}")
    return opened[start_offset]
