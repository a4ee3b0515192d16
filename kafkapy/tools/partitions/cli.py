"""The command `kafkapy partitions`: moves partitions to other brokers, shows the progress, and cancels moves."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.client.administration.admin import Admin
from kafkapy.client.administration.partition_admin import PartitionAdmin, Reassignment
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.errors import KafkaError
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Partitions, Servers, cluster_of
from kafkapy.tools.common.output import counted, print_json, print_table
from kafkapy.tools.common.selection import check_partitions, check_selection, named_partitions
from kafkapy.tools.partitions.plan import Move, brokers_of, read_file, with_factor
from kafkapy.tools.partitions.throttle import clear_throttle, set_throttle
from kafkapy.tools.topics.interface import Document

app = typer.Typer(no_args_is_help=True, help="Move partitions to other brokers.")

LOOK_EVERY_S = 0.5

Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="A topic; may be repeated.")]
KeepThrottle = Annotated[
    bool, typer.Option("--keep-throttle", help="Leave the throttle in place when nothing is being moved any more.")
]
Sizes = Mapping[TopicPartition, Mapping[int, int]]  # bytes of each replica, by broker


@app.command("reassign")
def reassign(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A file of kafka-reassign-partitions, instead of options.")
    ] = None,
    topics: Topics = None,
    partitions: Partitions = None,
    replicas: Annotated[
        str | None,
        typer.Option("--replicas", metavar="ID,ID", help="The brokers of each partition, the preferred leader first."),
    ] = None,
    factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", help="Add or remove replicas, so that each partition has this many."
        ),
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Without --topic: also the topics of groups and transactions.")
    ] = False,
    throttle: Annotated[
        int | None, typer.Option("--throttle", metavar="BYTES", help="Copy at most this many bytes/s on each broker.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", "--yes", help="Carry out the plan, not only show it.")] = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show which partitions move where, and how many bytes are copied; with --execute, begin the moves.

    Examples:

        kafkapy partitions reassign --topic flights --partition 0 --replicas 3,1,2

        kafkapy partitions reassign --replication-factor 3 --internal --throttle 50000000 --execute

        kafkapy partitions reassign move.json --execute
    """
    _check(file, topics, partitions, replicas, factor, internal, throttle)
    with cluster_of(servers, command_config) as cluster:
        admin, mover = Admin(cluster), PartitionAdmin(cluster)
        cluster.refresh()
        targets = _targets(cluster, file, topics or [], partitions, replicas, factor, internal)
        moves = _moves(cluster, targets, _sizes(admin))
        _refuse_moving(moves, mover.reassignments())
        failed: dict[TopicPartition, KafkaError] = {}
        if execute and moves:
            if throttle is not None:
                set_throttle(admin, moves, throttle)
            results = mover.reassign({(move.topic, move.partition): move.target for move in moves})
            failed = {partition: error for partition, error in results.items() if error is not None}
            if len(failed) == len(moves) and throttle is not None and not mover.reassignments():
                clear_throttle(admin)
    _show_plan(moves, failed, execute=execute, as_json=as_json)
    if failed:
        raise typer.Exit(1)


@app.command("status")
def status(
    wait: Annotated[bool, typer.Option("--wait", help="Return when nothing is being moved any more.")] = False,
    keep_throttle: KeepThrottle = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the partitions that are being moved, and how much is copied. If there are none, remove the throttle.

    Example: kafkapy partitions status --wait
    """
    with cluster_of(servers, command_config) as cluster:
        admin, mover = Admin(cluster), PartitionAdmin(cluster)
        found = mover.reassignments()
        if found and not (wait and as_json):
            _show_progress(_progress(admin, found), as_json=as_json)
        while found and wait:
            time.sleep(LOOK_EVERY_S)
            left = mover.reassignments()
            if left and len(left) != len(found) and not as_json:
                print(f"{counted(len(left), 'partition')} left.", flush=True)
            found = left
        if found:
            return
        cleared = [] if keep_throttle else clear_throttle(admin)
    if as_json:
        print_json([])
    else:
        print("No partition is being moved.")
        _show_cleared(cleared)


@app.command("cancel")
def cancel(
    topics: Topics = None,
    partitions: Partitions = None,
    every: Annotated[bool, typer.Option("--all", help="All partitions that are being moved.")] = False,
    keep_throttle: KeepThrottle = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Cancel moves: the partitions keep the replicas that they had before, perhaps in another order.

    Examples:

        kafkapy partitions cancel --all

        kafkapy partitions cancel --topic flights --partition 3
    """
    check_selection("partitions cancel", topics, partitions, every=every)
    with cluster_of(servers, command_config) as cluster:
        admin, mover = Admin(cluster), PartitionAdmin(cluster)
        moving = mover.reassignments()
        chosen = {*moving} if every else {*named_partitions(cluster, topics or [], partitions)} & {*moving}
        results = mover.reassign(dict.fromkeys(sorted(chosen))) if chosen else {}
        failed = {partition: error for partition, error in results.items() if error is not None}
        cleared = [] if keep_throttle or mover.reassignments() else clear_throttle(admin)
    print(f"Canceled the move of {counted(len(results) - len(failed), 'partition')}.")
    _show_cleared(cleared)
    _show_failed(failed)
    if failed:
        raise typer.Exit(1)


def _check(
    file: Path | None,
    topics: list[str] | None,
    partitions: list[int] | None,
    replicas: str | None,
    factor: int | None,
    internal: bool,
    throttle: int | None,
) -> None:
    """Raise CallError for options of `reassign` that are missing, invalid, or exclude each other."""
    if (file is not None) + (replicas is not None) + (factor is not None) != 1:
        raise CallError("partitions reassign needs one of --replicas, --replication-factor and a file")
    if file is not None and (topics or partitions or internal):
        raise CallError("a file says which partitions: --topic, --partition and --internal do not go with it")
    if replicas is not None and not topics:
        raise CallError("--replicas needs --topic")
    check_partitions(topics, partitions)
    if throttle is not None and throttle < 1:
        raise CallError(f"--throttle {throttle} is not a number of bytes per second from 1 on")


def _targets(
    cluster: Cluster,
    file: Path | None,
    topics: Sequence[str],
    partitions: Sequence[int] | None,
    replicas: str | None,
    factor: int | None,
    internal: bool,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the target replicas of each partition, as the options or the file say."""
    if file is not None:
        targets = read_file(file)
        for topic, index in targets:
            named_partitions(cluster, [topic], [index])
        return targets
    names = topics or [one.name for one in cluster.topics.values() if internal or not one.internal]
    wanted = named_partitions(cluster, sorted(names), partitions)
    if replicas is not None:
        return dict.fromkeys(wanted, brokers_of(replicas))
    current = {
        (topic.name, index): one.replicas
        for topic in cluster.topics.values()
        for index, one in topic.partitions.items()
    }
    racks = {number: broker.rack for number, broker in cluster.brokers.items()}
    return with_factor(current, wanted, factor or 0, racks)


def _moves(cluster: Cluster, targets: Mapping[TopicPartition, tuple[int, ...]], sizes: Sizes) -> list[Move]:
    """Return a move for each partition whose target differs from its present replicas, in order. Raise ToolError for a
    new replica on a broker that does not run."""
    moves = []
    for (topic, index), target in sorted(targets.items()):
        one = cluster.topics[topic].partitions[index]
        for broker in target:
            if broker not in cluster.brokers and broker not in one.replicas:
                known = ", ".join(map(str, sorted(cluster.brokers)))
                raise ToolError(f"{topic}-{index} is to move to broker {broker}, which does not run; running: {known}")
        if target != one.replicas:
            by_broker = sizes.get((topic, index), {})
            size = by_broker.get(one.leader, max(by_broker.values(), default=0))
            moves.append(Move(topic, index, one.replicas, target, size))
    return moves


def _refuse_moving(moves: Sequence[Move], moving: Mapping[TopicPartition, Reassignment]) -> None:
    for move in moves:
        if (move.topic, move.partition) in moving:
            raise ToolError(
                f"{move.topic}-{move.partition} is being moved already: wait (kafkapy partitions status --wait) or "
                "cancel the move (kafkapy partitions cancel)"
            )


def _sizes(admin: Admin) -> dict[TopicPartition, dict[int, int]]:
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for directory in admin.describe_log_dirs():
        for partition, size in directory.partitions.items():
            sizes.setdefault(partition, {})[directory.broker] = size
    return sizes


def _progress(admin: Admin, moving: Mapping[TopicPartition, Reassignment]) -> list[Document]:
    """Return a document for each partition that is being moved: its replicas, and the bytes copied and to copy."""
    sizes = _sizes(admin)
    found = []
    for (topic, index), one in sorted(moving.items()):
        by_broker = sizes.get((topic, index), {})
        size = max((by_broker.get(broker, 0) for broker in one.replicas if broker not in one.adding), default=0)
        found.append(
            {
                "topic": topic,
                "partition": index,
                "replicas": list(one.replicas),
                "adding": list(one.adding),
                "removing": list(one.removing),
                "copiedBytes": sum(min(size, by_broker.get(broker, 0)) for broker in one.adding),
                "bytes": size * len(one.adding),
            }
        )
    return found


def _show_plan(
    moves: Sequence[Move], failed: Mapping[TopicPartition, KafkaError], *, execute: bool, as_json: bool
) -> None:
    if as_json:
        print_json(
            [
                {
                    "topic": move.topic,
                    "partition": move.partition,
                    "replicas": list(move.current),
                    "target": list(move.target),
                    "bytes": move.copied,
                    "begun": execute and (move.topic, move.partition) not in failed,
                    "error": error.message if (error := failed.get((move.topic, move.partition))) else None,
                }
                for move in moves
            ]
        )
        return
    if not moves:
        print("Nothing is to be moved: the partitions have these replicas already.")
        return
    print_table(
        ["topic", "partition>", "replicas", "target", "added", "removed", "bytes to copy>"],
        [
            (
                *(move.topic, move.partition),
                *(",".join(map(str, ids)) for ids in (move.current, move.target, move.added, move.removed)),
                f"{move.copied:,}",
            )
            for move in moves
        ],
    )
    total = f"{counted(len(moves), 'partition')}, {counted(sum(move.copied for move in moves), 'byte')} to copy."
    if execute:
        print(f"Began to move {counted(len(moves) - len(failed), 'partition')}: kafkapy partitions status --wait")
        _show_failed(failed)
    else:
        print(f"{total} Nothing has been changed; --execute does it.")


def _show_progress(progress: list[Document], *, as_json: bool) -> None:
    if as_json:
        print_json(progress)
        return
    print_table(
        ["topic", "partition>", "replicas", "adding", "removing", "copied>", "bytes>"],
        [
            (
                *(one["topic"], one["partition"]),
                *(",".join(map(str, one[ids])) for ids in ("replicas", "adding", "removing")),
                *(f"{one[count]:,}" for count in ("copiedBytes", "bytes")),
            )
            for one in progress
        ],
    )


def _show_cleared(topics: Sequence[str]) -> None:
    if topics:
        print(f"Removed the throttle of {counted(len(topics), 'topic')}.")


def _show_failed(failed: Mapping[TopicPartition, KafkaError]) -> None:
    if failed:
        print_table(
            ["topic", "partition>", "error"],
            [(topic, index, error.message) for (topic, index), error in sorted(failed.items())],
        )
