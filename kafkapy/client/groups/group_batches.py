"""A group consumer that returns raw batches instead of records.

with GroupBatches("127.0.0.1:9092", "copy", isolation="read_committed") as consumer:
    consumer.subscribe(re.compile("orders.*"))
    while True:
        for chunk in consumer.poll_batches():
            print(chunk.where, chunk.start, len(chunk.data))
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkapy._ext.entry_walk import entries_end
from kafkapy.client.cluster import TopicPartition
from kafkapy.client.fetching.engine import FetchedPartition
from kafkapy.client.fetching.fetcher import Fetcher
from kafkapy.client.groups.group_consumer import GroupConsumer
from kafkapy.errors import Errors, KafkaError


class FetchedBatches(NamedTuple):
    """The batches of one partition from one Fetch, of any format.

    The first batch may begin before `start`, the fetched offset. The last one may be incomplete.

    after: The offset after the last complete batch.
    aborted: (producer id, first offset) of the aborted transactions among them, for read_committed.
    """

    where: TopicPartition
    data: memoryview
    start: int
    after: int
    aborted: list[tuple[int, int]]


class _BatchFetcher(Fetcher):
    """Fetches raw batches instead of records."""

    def _read(self, fetched: FetchedPartition, position: int) -> tuple[Sequence[Any], int]:
        whole, size, after = entries_end(fetched.data)
        named = f"{fetched.where[0]}-{fetched.where[1]} at offset {position}"
        if size < 0 and not whole:
            raise KafkaError(Errors.CORRUPT_MESSAGE, f"{named}: the broker sends malformed batches")
        if not whole:  # brokers before Kafka 0.10.1 also truncate the first batch
            text = f"{named} has a batch of {size} bytes, more than one fetch of a partition may bring; allow more"
            raise KafkaError(Errors.RECORD_LIST_TOO_LARGE, text)
        after = max(after, position)
        return [FetchedBatches(fetched.where, fetched.data, position, after, fetched.aborted)], after


class GroupBatches(GroupConsumer):
    """A GroupConsumer with `poll_batches` in place of `poll`."""

    _fetcher_class = _BatchFetcher

    def poll_batches(self, timeout_s: float = 0.5) -> list[FetchedBatches]:
        """Return the next batches, at most one FetchedBatches of each partition. Behaves like `poll`.

        Raises KafkaError also for malformed batches and for a batch that is larger than a fetch.
        """
        found: list[Any] = self.poll(timeout_s)
        return found

    def lags(self) -> dict[TopicPartition, int]:
        """Return the number of offsets between position and end of each partition for which both are known."""
        states = self._assigned.states.items()
        return {
            where: max(0, state.end - state.position)
            for where, state in states
            if state.position is not None and state.end >= 0
        }
