"""Builds Fetch requests and takes their responses apart, for all consumers of Kafka 0.8 and later.

Source: Kafka's FetchRequest, FetchResponse and AbstractFetch.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from kafkapy.client.cluster import TopicPartition
from kafkapy.errors import KafkaError
from kafkapy.protocol.apis import FETCH

NAMES_UNTIL = 12  # Fetch uses topic names up to this version and topic ids from the next one
MOST_BYTES = 0x7FFFFFFF

T = TypeVar("T")


class FetchedPartition(NamedTuple):
    """One partition's part of a Fetch response.

    Attributes:
        where: The topic and partition.
        data: The batches or message sets. The first may begin before the fetched offset, the last may be incomplete.
            Valid until the memory that the response was received into is reused (see FrameMemory).
        last_stable_offset: -1 if the response does not have it.
        aborted: (producer id, first offset) of each aborted transaction with records in `data`, for read_committed.
        replica: The broker id of the replica in the consumer's rack from which the leader tells the consumer to fetch
            instead (KIP-392). -1: none.
    """

    where: TopicPartition
    error_code: int
    data: memoryview
    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]]
    replica: int


class Turns:
    """Rotates the partitions in successive Fetch requests, so that each of them comes first now and then.

    Brokers fill a response in the order of the request, so the last partitions could always be left empty otherwise.
    """

    def __init__(self) -> None:
        self._first = 0

    def next(self, partitions: Sequence[T]) -> list[T]:
        """Return the partitions in the order to use in the next request: each call begins one partition later."""
        self._first = (self._first + 1) % len(partitions)
        return [*partitions[self._first :], *partitions[: self._first]]


def fetch_request(
    wanted: Iterable[tuple[TopicPartition, int, int]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int = MOST_BYTES,
    isolation: int = 0,
    rack: str = "",
) -> Any:
    """Return a Fetch request, to be sent in a version up to NAMES_UNTIL.

    Args:
        wanted: Each partition with the offset to fetch from and the largest size of its records in the response.
        max_wait_ms, min_bytes: How long the broker waits for at least `min_bytes` before it responds.
        max_bytes: The largest size of the response.
        isolation: The number of the isolation level, from `isolation_level`.
        rack: The consumer's rack. The broker may then name a replica in the same rack to read from.
    """
    topics: dict[str, list[Any]] = {}
    for (topic, partition), offset, size in wanted:
        asked = FETCH.Request.Topics.Partitions(partition=partition, fetch_offset=offset, partition_max_bytes=size)
        topics.setdefault(topic, []).append(asked)
    return FETCH.Request(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        rack_id=rack,
        topics=[FETCH.Request.Topics(topic=name, partitions=asked) for name, asked in topics.items()],
    )


def fetched_partitions(response: Any) -> list[FetchedPartition]:
    """Return the FetchedPartition of each partition in a Fetch response, which may each have an error code.

    Raise KafkaError for an error code of the whole response.
    """
    if response.error_code:
        raise KafkaError(response.error_code)
    return [
        FetchedPartition(
            (topic.topic, one.partition_index),
            one.error_code,
            memoryview(one.records or b""),
            one.high_watermark,
            one.last_stable_offset,
            [(each.producer_id, each.first_offset) for each in one.aborted_transactions or ()],
            one.preferred_read_replica,
        )
        for topic in response.responses
        for one in topic.partitions
    ]
