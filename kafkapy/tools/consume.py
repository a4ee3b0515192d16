"""`kafkapy consume`: the records of a topic as lines."""

import enum
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.client.cluster import Cluster
from kafkapy.client.consumer import Consumer, ConsumerRecord
from kafkapy.client.original.filters import TopicFilter
from kafkapy.tools.consumed_topics import BlacklistOption, WhitelistOption, matching, pattern_of, wanted_topics
from kafkapy.tools.errors import CallError
from kafkapy.tools.options import DEFAULT_SERVER, Servers, cluster_of, given, through_zookeeper, timestamp_of
from kafkapy.tools.output import progress
from kafkapy.tools.record_formats import Format, line_maker


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
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; repeat it for more.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", "-n", min=0, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Do not stop at the end: wait for more.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="As a member of this group: go on where it has come to."),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="read_committed leaves out aborted and open transactions.")
    ] = Isolation.READ_UNCOMMITTED,
    form: Annotated[Format, typer.Option("--format", help="What to print of each record.")] = Format.VALUE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    separator: Annotated[str, typer.Option("--key-separator", "-K", help="Between key and value.")] = "\t",
    servers: Servers = DEFAULT_SERVER,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            "-z",
            metavar="HOST:PORT/CHROOT",
            help="As a member of a group in ZooKeeper, as Kafka's consumers of 0.7 to 0.10.",
        ),
    ] = None,
    consumer_config: Annotated[
        Path | None, typer.Option("--consumer-config", metavar="FILE", help="With --zookeeper: a consumer.properties.")
    ] = None,
) -> None:
    """Print the records of a topic or several, in order within each partition, up to where they end now.

    --from takes earliest, latest, an offset (-5: five before the end of each partition), an ISO 8601 time
    (2024-01-31, 2024-01-31T12:00:00Z; UTC if it names no zone) or @ and milliseconds since 1970.

    With --group the partitions are shared with the other members of the group, and what is printed is committed; --from
    then says where partitions begin of which nothing is committed. Ctrl-C leaves the group.

    With --zookeeper the group is there, beside Kafka's own consumers of 0.7 to 0.10. Without --group it is one of its
    own, console-consumer-NUMBER, and nothing is left of it.

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
    if through_zookeeper(context, zookeeper, None):
        from kafkapy.tools.consume_zookeeper import consume_zookeeper, consumer_properties

        properties = consumer_properties(str(zookeeper), group, consumer_config)
        if isolation is Isolation.READ_COMMITTED:
            raise CallError("--isolation read_committed does not go with --zookeeper: such a consumer reads everything")
        _check_group(properties.get("group.id", "one of its own"), start, partition)
        if given(context, "start") or "auto.offset.reset" not in properties:
            properties["auto.offset.reset"] = "largest" if start == "latest" else "smallest"
        if not consume_zookeeper(properties, consumer_config, wanted, most=most, follow=follow, show=show):
            raise KeyboardInterrupt
        return
    if consumer_config is not None:
        raise CallError("--consumer-config goes with --zookeeper")
    if group is not None:
        from kafkapy.tools.consume_group import consume_group

        _check_group(group, start, partition)
        with cluster_of(servers) as cluster:
            if isinstance(wanted, TopicFilter) and not follow:
                matching(wanted, _all_topics(cluster))
            finished = consume_group(
                cluster,
                pattern_of(wanted) if isinstance(wanted, TopicFilter) else wanted,
                group,
                reset="latest" if start == "latest" else "earliest",
                isolation=isolation.value,
                most=most,
                follow=follow,
                show=show,
            )
        if not finished:
            raise KeyboardInterrupt
        return
    begin = _beginning(start)
    out = sys.stdout.buffer
    if by_filter and partition:
        raise CallError("--partition goes with one TOPIC, not with --whitelist and --blacklist")
    with cluster_of(servers) as cluster:
        names = matching(wanted, _all_topics(cluster)) if isinstance(wanted, TopicFilter) else [wanted]
        consumer = Consumer(cluster, isolation=isolation.value)
        consumer.assign(
            [
                (name, index)
                for name in names
                for index in (sorted(set(partition)) if partition else range(len(cluster.topic(name).partitions)))
            ]
        )
        ends = consumer.end_offsets()
        begin(consumer, ends)
        ahead = sum(max(0, end - consumer.positions[where]) for where, end in ends.items())
        records = _for_ever(consumer) if follow else consumer.records(until=ends)
        with progress(f"Reading {' '.join(names)}", None if follow else ahead, unit="records") as advance:
            if most != 0:
                for number, record in enumerate(records, 1):
                    out.write(show(record))
                    if number % 1024 == 0:
                        advance(number)
                    if number == most:
                        break
            out.flush()


def _all_topics(cluster: Cluster) -> list[str]:
    cluster.refresh()
    return list(cluster.topics)


def _check_group(group: str, start: str, partitions: list[int] | None) -> None:
    if not group:
        raise CallError("--group '' is no name; give one to the consumers that share the partitions")
    if partitions:
        raise CallError("--partition does not go with --group: the group shares out the partitions")
    if start not in ("earliest", "latest"):
        raise CallError(
            f"--from {start!r} does not go with --group, only earliest and latest do, for partitions of which nothing "
            "is committed; kafkapy groups reset-offsets moves a group"
        )


def _for_ever(consumer: Consumer) -> Iterator[ConsumerRecord]:
    """Records as they come; what was printed is seen before the wait for more."""
    while True:
        yield from consumer.poll()
        sys.stdout.buffer.flush()


def _beginning(start: str) -> Callable[[Consumer, dict[tuple[str, int], int]], None]:
    """How to move a consumer that stands at the earliest records to where --from says."""
    if start == "earliest":
        return lambda consumer, ends: None
    if start == "latest":
        return lambda consumer, ends: consumer.positions.update(ends)
    try:
        offset = int(start)
    except ValueError:
        try:
            timestamp = timestamp_of(start)
        except ValueError as error:
            raise CallError(
                f"--from {start!r} is neither earliest nor latest, nor an offset, nor a time as in 2024-01-31T12:00:00Z"
            ) from error
        return lambda consumer, ends: consumer.seek_to_timestamp(timestamp)

    def at_offset(consumer: Consumer, ends: dict[tuple[str, int], int]) -> None:
        for where, end in ends.items():
            wanted = offset if offset >= 0 else end + offset
            consumer.positions[where] = min(max(wanted, consumer.positions[where]), end)

    return at_offset
