"""`kafkapy consume`: the records of a topic as lines."""

import enum
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from kafkapy.client.consumer import Consumer, ConsumerRecord
from kafkapy.tools.errors import CallError
from kafkapy.tools.options import DEFAULT_SERVER, Servers, cluster_of, timestamp_of
from kafkapy.tools.output import progress
from kafkapy.tools.record_formats import Format, line_maker


class Isolation(str, enum.Enum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
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
) -> None:
    """Print the records of a topic, in order within each partition, up to where it ends now.

    --from takes earliest, latest, an offset (-5: five before the end of each partition), an ISO 8601 time
    (2024-01-31, 2024-01-31T12:00:00Z; UTC if it names no zone) or @ and milliseconds since 1970.

    With --group the partitions are shared with the other members of the group, and what is printed is committed; --from
    then says where partitions begin of which nothing is committed. Ctrl-C leaves the group.

    Examples:

        kafkapy consume flights --max 10

        kafkapy consume flights --from 2024-01-31T12:00:00Z --json | jq .value

        kafkapy consume flights --from latest --follow --format full

        kafkapy consume flights --group reports --follow
    """
    show = line_maker(Format.JSON if as_json else form, separator)
    if group is not None:
        from kafkapy.tools.consume_group import consume_group

        _check_group(group, start, partition)
        with cluster_of(servers) as cluster:
            finished = consume_group(
                cluster,
                topic,
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
    with cluster_of(servers) as cluster:
        count = len(cluster.topic(topic).partitions)
        wanted = sorted(set(partition)) if partition else list(range(count))
        consumer = Consumer(cluster, isolation=isolation.value)
        consumer.assign([(topic, index) for index in wanted])
        ends = consumer.end_offsets()
        begin(consumer, ends)
        ahead = sum(max(0, end - consumer.positions[where]) for where, end in ends.items())
        records = _for_ever(consumer) if follow else consumer.records(until=ends)
        with progress(f"Reading {topic}", None if follow else ahead, unit="records") as advance:
            if most != 0:
                for number, record in enumerate(records, 1):
                    out.write(show(record))
                    if number % 1024 == 0:
                        advance(number)
                    if number == most:
                        break
            out.flush()


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
