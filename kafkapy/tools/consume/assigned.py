"""`kafkapy consume` without a group: print the records of partitions up to where they end now."""

import sys
from collections.abc import Callable, Iterator

from kafkapy.client.cluster import Cluster
from kafkapy.client.fetched import ConsumerRecord, Isolation
from kafkapy.client.fetching.consumer import Consumer
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.options import timestamp_of
from kafkapy.tools.common.output import progress

Start = Callable[[Consumer, dict[tuple[str, int], int]], None]


def print_assigned(
    cluster: Cluster,
    topics: list[str],
    partitions: list[int] | None,
    start: Start,
    *,
    isolation: Isolation,
    most: int | None,
    follow: bool,
    show: Callable[[ConsumerRecord], bytes],
) -> None:
    """Print records until `most` are printed or, without `follow`, the partitions' current ends are reached.

    Args:
        partitions: of each topic; None or empty: all.
        start: of `start_of`.
    """
    out = sys.stdout.buffer
    consumer = Consumer(cluster, isolation=isolation)
    consumer.assign(
        [
            (name, index)
            for name in topics
            for index in (sorted(set(partitions)) if partitions else range(len(cluster.topic(name).partitions)))
        ]
    )
    ends = consumer.end_offsets()
    start(consumer, ends)
    ahead = sum(max(0, end - consumer.positions[where]) for where, end in ends.items())
    records = _follow(consumer) if follow else consumer.records(until=ends)
    with progress(f"Reading {' '.join(topics)}", None if follow else ahead, unit="records") as advance:
        if most != 0:
            for number, record in enumerate(records, 1):
                out.write(show(record))
                if number % 1024 == 0:
                    advance(number)
                if number == most:
                    break
        out.flush()


def start_of(text: str) -> Start:
    """Return a function that seeks a consumer from the earliest records to the position of --from.

    Raises CallError if the text is no position.
    """
    if text == "earliest":
        return lambda consumer, ends: None
    if text == "latest":
        return lambda consumer, ends: consumer.positions.update(ends)
    try:
        offset = int(text)
    except ValueError:
        try:
            timestamp = timestamp_of(text)
        except ValueError as error:
            raise CallError(
                f"--from {text!r} is neither earliest nor latest, nor an offset, nor a time as in 2024-01-31T12:00:00Z"
            ) from error
        return lambda consumer, ends: consumer.seek_to_timestamp(timestamp)

    def at_offset(consumer: Consumer, ends: dict[tuple[str, int], int]) -> None:
        for where, end in ends.items():
            wanted = offset if offset >= 0 else end + offset
            consumer.positions[where] = min(max(wanted, consumer.positions[where]), end)

    return at_offset


def _follow(consumer: Consumer) -> Iterator[ConsumerRecord]:
    """Yield records for ever. Standard output is flushed before each wait, so that printed lines are seen at once."""
    while True:
        yield from consumer.poll()
        sys.stdout.buffer.flush()
