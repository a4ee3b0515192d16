"""Builds Produce requests and takes their responses apart, for all producers of Kafka 0.8 and later."""

from collections.abc import Iterable
from typing import Any

from kafkapy.client.cluster import TopicPartition
from kafkapy.protocol.apis import PRODUCE


def produce_request(
    records: Iterable[tuple[TopicPartition, Any]], *, acks: int, timeout_s: float, transactional_id: str | None = None
) -> Any:
    """Return a Produce request for encoded records, given as (partition, records) with each partition at most once.

    `timeout_s` is how long the broker may wait for the other replicas.
    """
    topics: dict[str, list[Any]] = {}
    for (topic, partition), data in records:
        one = PRODUCE.Request.TopicData.PartitionData(index=partition, records=data)
        topics.setdefault(topic, []).append(one)
    return PRODUCE.Request(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(timeout_s * 1000),
        topic_data=[PRODUCE.Request.TopicData(name=name, partition_data=data) for name, data in topics.items()],
    )


def produced_partitions(response: Any) -> dict[TopicPartition, Any]:
    """Return the part of a Produce response for each partition, with its error code and base offset."""
    return {(topic.name, one.index): one for topic in response.responses for one in topic.partition_responses}
