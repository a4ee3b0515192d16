"""The topic of a benchmark: its partitions, and --create."""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy.client.administration.admin import Admin
from kafkapy.client.cluster import Cluster
from kafkapy.errors import Errors, KafkaError
from kafkapy.tools.common.errors import CallError, ToolError


def partitions_of(
    cluster: Cluster,
    topic: str,
    asked: Sequence[int] | None = None,
    *,
    create: bool = False,
    partitions: int = -1,
    replicas: int = -1,
) -> tuple[int, ...]:
    """Return the partitions of the topic, or those of them that are `asked` for. With `create`, create the topic if it
    is missing, with this many partitions and replicas (-1: the broker's default).

    Raises ToolError if the topic is missing and `create` is not set, CallError for a partition that does not exist.
    """
    try:
        found = sorted(cluster.topic(topic, refresh=True).partitions)
    except KafkaError as error:
        if error.code != Errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if not create:
            raise ToolError(
                f"there is no topic {topic!r}; --create creates it, and so does: kafkapy topics create {topic}"
            ) from error
        found = sorted(Admin(cluster).create_topic(topic, partitions, replication_factor=replicas).partitions)
    for one in asked or ():
        if one not in found:
            raise CallError(f"--partition {one}: topic {topic} has the partitions 0 to {found[-1]}")
    return tuple(dict.fromkeys(asked or found))
