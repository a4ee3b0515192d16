"""The partitions that the options --topic, --partition and --all name."""

from collections.abc import Sequence

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.errors import Errors, KafkaError
from kafkapy.tools.common.errors import CallError


def check_selection(
    command: str, topics: Sequence[str] | None, partitions: Sequence[int] | None, *, every: bool
) -> None:
    """Raise CallError if the options of `command` name no partitions, or both some and all."""
    if bool(topics) == every:
        raise CallError(f"{command} needs either --topic or --all")
    check_partitions(topics, partitions)


def check_partitions(topics: Sequence[str] | None, partitions: Sequence[int] | None) -> None:
    """Raise CallError if partitions are named without their topic."""
    if partitions and len(topics or ()) != 1:
        raise CallError("--partition goes with one --topic")


def named_partitions(
    cluster: Cluster, topics: Sequence[str], indexes: Sequence[int] | None = None
) -> list[TopicPartition]:
    """Return these partitions of the topics, or all of them if `indexes` is empty or None. Raise KafkaError
    UNKNOWN_TOPIC_OR_PARTITION if there is no such topic or partition."""
    found = []
    for name in topics:
        known = cluster.topic(name, refresh=True).partitions
        for index in indexes or known:
            if index not in known:
                raise KafkaError(
                    Errors.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {name!r} has no partition {index}: it has {len(known)}, counted from 0",
                )
            found.append((name, index))
    return found
