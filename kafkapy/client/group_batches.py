"""A member of a group that gets whole batches as they lie in the log, for who wants bytes and no records.

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
from kafkapy.client.group_consumer import GroupConsumer
from kafkapy.client.group_fetcher import GroupFetcher
from kafkapy.errors import Errors, KafkaError


class FetchedBatches(NamedTuple):
    """What one Fetch brought of a partition: batches of any format, the first of which may begin before `start`, the
    offset that was asked for, and the last of which may be cut off.

    after: the offset behind the whole ones.
    aborted: (producer id, first offset) of the aborted transactions in it, for read_committed.
    """

    where: TopicPartition
    data: memoryview
    start: int
    after: int
    aborted: list[tuple[int, int]]


class _BatchFetcher(GroupFetcher):
    def _read(self, where: TopicPartition, position: int, answer: Any) -> tuple[Sequence[Any], int]:
        data = memoryview(answer.records)
        whole, size, after = entries_end(data)
        named = f"{where[0]}-{where[1]} at offset {position}"
        if size < 0 and not whole:
            raise KafkaError(Errors.CORRUPT_MESSAGE, f"{named}: the broker sends what is no batch")
        if not whole:  # brokers before Kafka 0.10.1 cut also the first batch
            told = f"{named} has a batch of {size} bytes, more than one fetch of a partition may bring; allow more"
            raise KafkaError(Errors.RECORD_LIST_TOO_LARGE, told)
        after = max(after, position)
        aborted = [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
        return [FetchedBatches(where, data, position, after, aborted)], after


class GroupBatches(GroupConsumer):
    """As GroupConsumer, but for `poll_batches` in the place of `poll`."""

    _fetcher_class = _BatchFetcher

    def poll_batches(self, timeout_s: float = 0.5) -> list[FetchedBatches]:
        """The next batches, at most one piece of each partition; as `poll` otherwise. KafkaError also for what is no
        batch."""
        found: list[Any] = self.poll(timeout_s)
        return found

    def lags(self) -> dict[TopicPartition, int]:
        """How many offsets are between the position and the end, of the partitions of which both are known."""
        states = self._assigned.states.items()
        return {
            where: max(0, state.end - state.position)
            for where, state in states
            if state.position is not None and state.end >= 0
        }
