"""The source of records of `kafkapy consume` without a group: partitions of topics, from --from up to their present
ends."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from kafkapy.client.cluster import Cluster
from kafkapy.client.fetched import ConsumerRecord, Isolation
from kafkapy.client.fetching.consumer import Consumer
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.options import timestamp_of
from kafkapy.tools.common.output import Progress, progress

AT_ONCE = 1024  # records between two updates of the progress bar

Ends = dict[tuple[str, int], int]
Start = Callable[[Consumer, Ends], None]


@contextmanager
def assigned_member(
    cluster: Cluster,
    topics: list[str],
    partitions: list[int] | None,
    start: Start,
    *,
    isolation: Isolation,
    follow: bool,
) -> Iterator["AssignedMember"]:
    """Context manager that yields a Member without a group, which reads these partitions. A progress bar is shown
    unless `follow`.

    Args:
        partitions: the partitions of each topic; None or empty for all.
        start: a result of `start_of`, which sets where to begin.
    """
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
    with progress(f"Reading {' '.join(topics)}", None if follow else ahead, unit="records") as advance:
        yield AssignedMember(consumer, None if follow else ends, advance)


class AssignedMember:
    """A Member without a group, which commits nothing. It reads up to the offsets `ends`, or if these are None follows
    new records."""

    def __init__(self, consumer: Consumer, ends: Ends | None, advance: Progress) -> None:
        self._consumer = consumer
        self._records = None if ends is None else consumer.records(until=ends)
        self._at_the_ends = False
        self._advance = advance
        self._count = 0

    def poll(self) -> Sequence[ConsumerRecord]:
        if self._records is None:
            return self._consumer.poll()
        records = list(islice(self._records, AT_ONCE))
        self._at_the_ends = len(records) < AT_ONCE
        return records

    def printed(self, records: Sequence[ConsumerRecord], count: int) -> None:
        self._count += count
        self._advance(self._count)
        self.commit()

    def is_at_the_ends(self) -> bool:
        return self._at_the_ends

    def commit(self) -> None:
        """Flush standard output, so that printed lines are seen. There is no group, so no offset is committed."""
        sys.stdout.buffer.flush()


def start_of(text: str) -> Start:
    """Return a function that moves a consumer to the position that `text`, the value of --from, names. The function
    expects a consumer whose positions are the earliest offsets, and the end offsets.

    Raises CallError if `text` is no position.
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

    def at_offset(consumer: Consumer, ends: Ends) -> None:
        for where, end in ends.items():
            wanted = offset if offset >= 0 else end + offset
            consumer.positions[where] = min(max(wanted, consumer.positions[where]), end)

    return at_offset
