"""Lookups at the brokers: topic ids, and the offsets that exist in each partition."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.fetched import Isolation, isolation_level
from kafkapy.errors import Errors, KafkaError
from kafkapy.spark.load.errors import LoadError


@dataclass(frozen=True)
class Available:
    """The offsets of the records in a partition: earliest <= offset < latest.

    With read_committed, `latest` is the last stable offset.
    """

    earliest: int
    latest: int


def topic_ids(cluster: Cluster, topics: Iterable[str]) -> dict[str, str]:
    """Return the topic ids by topic name, in hex, "" if the broker has no topic ids.

    Raises LoadError for a topic that does not exist.
    """
    cluster.refresh(topics)
    ids = {}
    for name in topics:
        try:
            id = cluster.topic(name).topic_id
        except KafkaError as error:
            if error.code != Errors.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise LoadError(f"there is no topic {name!r}; see: kafkapy topics list") from None
        ids[name] = id.hex() if any(id) else ""
    return ids


def available(cluster: Cluster, topics: Sequence[str], isolation: Isolation) -> dict[TopicPartition, Available]:
    """Return the earliest and latest offset of each partition of the topics."""
    cluster.refresh(topics)  # leaders may have changed since the last look, which may be hours ago
    admin = Admin(cluster)
    partitions = [(name, index) for name in topics for index in sorted(cluster.topic(name).partitions)]
    earliest = admin.offsets(dict.fromkeys(partitions, EARLIEST))
    latest = admin.offsets(dict.fromkeys(partitions, LATEST), isolation=isolation_level(isolation))
    return {where: Available(earliest[where].offset, latest[where].offset) for where in partitions}


def offsets_at(cluster: Cluster, there: dict[TopicPartition, Available], timestamp: int) -> dict[TopicPartition, int]:
    """Return the offset of each partition's first record at or after a time (ms).

    For a partition without such a record, return its latest offset.
    """
    found = Admin(cluster).offsets(dict.fromkeys(there, timestamp))
    return {
        where: has.latest if found[where].offset < 0 else min(found[where].offset, has.latest)
        for where, has in there.items()
    }
