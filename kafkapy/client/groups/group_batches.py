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
    """The batches of one partition from one Fetch response, in any format.

    The first batch may begin before `start`, the fetched offset. The last batch may be incomplete.

    Attributes:
        where: The topic and partition.
        data: The encoded batches.
        after: The offset after the last complete batch.
        aborted: (producer id, first offset) of each aborted transaction with records in `data`, for read_committed.
    """

    where: TopicPartition
    data: memoryview
    start: int
    after: int
    aborted: list[tuple[int, int]]


class _BatchFetcher(Fetcher):
    """A Fetcher that returns the raw batches of a partition (as FetchedBatches) instead of decoded records."""

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
    """A GroupConsumer that returns raw batches: call `poll_batches` instead of `poll`."""

    _fetcher_class = _BatchFetcher

    def poll_batches(self, timeout_s: float = 0.5) -> list[FetchedBatches]:
        """Return the next batches, with at most one FetchedBatches for each partition. Otherwise the same as `poll`.

        Raise KafkaError also for malformed batches, and for a batch that is larger than a fetch may be.
        """
        found: list[Any] = self.poll(timeout_s)
        return found

    def lags(self) -> dict[TopicPartition, int]:
        """Return the lag of each partition: the number of offsets from the position to the end of the partition.

        Partitions whose position or end is not known yet are left out.
        """
        states = self._assigned.states.items()
        return {
            where: max(0, state.end - state.position)
            for where, state in states
            if state.position is not None and state.end >= 0
        }
