"""The command `kafkapy consume`: prints the records of topics as lines."""

import enum
import threading
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from kafkapy.client.cluster import Cluster
from kafkapy.client.original.filters import TopicFilter
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.interrupts import until_interrupted
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Servers, cluster_of, given, through_zookeeper
from kafkapy.tools.common.record_formats import ChosenFormat, Format, JsonFormat, line_maker
from kafkapy.tools.consume.assigned import assigned_member, start_of
from kafkapy.tools.consume.member import Member, print_records
from kafkapy.tools.consume.topic_choice import BlacklistOption, WhitelistOption, matching, pattern_of, wanted_topics


class Isolation(str, enum.Enum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def consume(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC")] = None,
    whitelist: WhitelistOption = None,
    blacklist: BlacklistOption = None,
    start: Annotated[
        str, typer.Option("--from", "-f", metavar="earliest|latest|OFFSET|TIMESTAMP", help="Where to begin.")
    ] = "earliest",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", "-n", min=0, help="Stop after this many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Do not stop at the end: wait for new records.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Join this group and begin at its committed offsets."),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="read_committed leaves out aborted and open transactions.")
    ] = Isolation.READ_UNCOMMITTED,
    form: ChosenFormat = Format.VALUE,
    as_json: JsonFormat = False,
    separator: Annotated[str, typer.Option("--key-separator", "-K", help="Between key and value.")] = "\t",
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            "-z",
            metavar="HOST:PORT/CHROOT",
            help="Join a group in ZooKeeper, as Kafka's consumers of 0.7 to 0.10 do.",
        ),
    ] = None,
    consumer_config: Annotated[
        Path | None, typer.Option("--consumer-config", metavar="FILE", help="With --zookeeper: a consumer.properties.")
    ] = None,
) -> None:
    """Print the records of a topic or several, in order within each partition, up to where they end now.

    --from takes earliest, latest, an offset (-5: five before the end of each partition), an ISO 8601 time
    (2024-01-31, 2024-01-31T12:00:00Z; UTC if it names no zone) or @ and milliseconds since 1970.

    With --group the partitions are shared with the other members of the group, and printed records are committed.
    --from then says where to begin in partitions without a committed offset. Ctrl-C leaves the group.

    With --zookeeper the group is in ZooKeeper, where Kafka's own consumers of 0.7 to 0.10 can be its members too.
    Without --group a new group, console-consumer-NUMBER, is used, and removed at the end.

    Examples:

        kafkapy consume flights --max 10

        kafkapy consume flights --from 2024-01-31T12:00:00Z --json | jq .value

        kafkapy consume flights --from latest --follow --format full

        kafkapy consume flights --group reports --follow

        kafkapy consume --whitelist 'flights|weather.*' --format full

        kafkapy consume flights --zookeeper localhost:2181/kafka --group old-reports --follow
    """
    wanted = wanted_topics(topic, whitelist, blacklist)
    by_filter = isinstance(wanted, TopicFilter)
    show = line_maker(Format.JSON if as_json else form, separator, with_topic=by_filter)
    in_zookeeper = through_zookeeper(context, zookeeper)
    if consumer_config is not None and not in_zookeeper:
        raise CallError("--consumer-config goes with --zookeeper")
    member: AbstractContextManager[Member]
    with ExitStack() as opened:
        if in_zookeeper:
            from kafkapy.tools.consume.zookeeper_member import consumer_properties, zookeeper_member

            properties = consumer_properties(str(zookeeper), group, consumer_config)
            if isolation is Isolation.READ_COMMITTED:
                raise CallError(
                    "--isolation read_committed does not go with --zookeeper: such a consumer reads everything"
                )
            _check_group(properties.get("group.id", "one of its own"), start, partition)
            if given(context, "start") or "auto.offset.reset" not in properties:
                properties["auto.offset.reset"] = "largest" if start == "latest" else "smallest"
            member = zookeeper_member(properties, consumer_config, wanted, follow=follow)
        elif group is not None:
            from kafkapy.tools.consume.kafka_member import kafka_member

            _check_group(group, start, partition)
            cluster = opened.enter_context(cluster_of(servers, command_config))
            if isinstance(wanted, TopicFilter) and not follow:
                matching(wanted, _all_topics(cluster))
            topics = pattern_of(wanted) if isinstance(wanted, TopicFilter) else wanted
            reset: Literal["earliest", "latest"] = "latest" if start == "latest" else "earliest"
            member = kafka_member(cluster, topics, group, reset=reset, isolation=isolation.value)
        else:
            begin = start_of(start)
            if by_filter and partition:
                raise CallError("--partition goes with one TOPIC, not with --whitelist and --blacklist")
            cluster = opened.enter_context(cluster_of(servers, command_config))
            names = matching(wanted, _all_topics(cluster)) if isinstance(wanted, TopicFilter) else [wanted]
            member = assigned_member(cluster, names, partition, begin, isolation=isolation.value, follow=follow)
        # Without a group there is nothing to commit, so Ctrl-C need not wait for the end of a step.
        in_group = in_zookeeper or group is not None
        interrupted = opened.enter_context(until_interrupted()) if in_group else threading.Event()
        print_records(member, interrupted, most=most, follow=follow, show=show)
    if interrupted.is_set():
        raise KeyboardInterrupt


def _all_topics(cluster: Cluster) -> list[str]:
    cluster.refresh()
    return list(cluster.topics)


def _check_group(group: str, start: str, partitions: list[int] | None) -> None:
    """Raise CallError for an empty group name, and for options that do not go with --group."""
    if not group:
        raise CallError("--group '' is no name; give one to the consumers that share the partitions")
    if partitions:
        raise CallError("--partition does not go with --group: the group shares out the partitions")
    if start not in ("earliest", "latest"):
        raise CallError(
            f"--from {start!r} does not go with --group, only earliest and latest do, for partitions of which nothing "
            "is committed; kafkapy groups reset-offsets moves a group"
        )
