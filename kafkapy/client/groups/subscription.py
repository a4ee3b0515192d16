"""A consumer's subscribed topics, the encoding of subscriptions and assignments, and the leader's assignment.

Source: Kafka's ConsumerCoordinator (metadata, onLeaderElected) and ConsumerProtocol.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.groups.assignors import ASSIGNORS, Assignor, Member
from kafkapy.client.responses import grouped
from kafkapy.errors import Errors, KafkaError, ProtocolError, UnsupportedVersion, is_retriable, message_of
from kafkapy.protocol.consumer_protocol import ASSIGNMENT, SUBSCRIPTION

log = logging.getLogger(__name__)

LATEST_SUBSCRIPTION, LATEST_ASSIGNMENT = 3, 3  # the versions that are written


class Subscription:
    """The topics that a consumer subscribes to, given by name or by a pattern, with their numbers of partitions.

    Attributes:
        topics: The names of the subscribed topics. For a pattern, those of the existing topics that match.
        counts: The number of partitions of each existing topic that this member subscribes to. For the group's leader,
            the topics of all members are included.
    """

    def __init__(self, cluster: Cluster, topics: Iterable[str] | re.Pattern[str], max_age_s: float) -> None:
        self.pattern: re.Pattern[str] | None = None
        self.topics: frozenset[str] = frozenset()
        self.counts: dict[str, int] = {}
        self._cluster = cluster
        self._max_age_s = max_age_s
        self._group_topics: frozenset[str] = frozenset()
        self._missing: frozenset[str] = frozenset()
        self._refresh_at = 0.0
        if isinstance(topics, re.Pattern):
            self.pattern = topics
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
            if not names or not all(isinstance(name, str) and name for name in names):
                raise ValueError(f"the topics to subscribe are {names!r}; give one name or more, none of them empty")
            self.topics = frozenset(names)

    @property
    def is_due(self) -> bool:
        """True if `refresh` is due: every `max_age_s`, or every second while a subscribed topic is missing."""
        return time.monotonic() >= self._refresh_at

    def covers(self, topic: str) -> bool:
        """Return True if the topic is subscribed, even if the topic is not in this member's metadata yet."""
        return topic in self.topics or (self.pattern is not None and self.pattern.search(topic) is not None)

    def refresh(self) -> bool:
        """Refresh the metadata of the topics. Return True if the group has to rebalance because of a change.

        The group has to rebalance if the set of subscribed topics has changed, or if this member is the leader and a
        number of partitions has changed.

        Raises:
            ConnectionFailed: No broker can be reached.
            KafkaError: The broker's error for a topic, other than UNKNOWN_TOPIC_OR_PARTITION.
        """
        before = self.topics, self.counts
        if self.pattern is not None:
            self._cluster.refresh()
            found = [topic for topic in self._cluster.topics.values() if not topic.internal]
            self.topics = frozenset(topic.name for topic in found if self.covers(topic.name))
        else:
            self._cluster.refresh(self.topics | self._group_topics)
        self.counts = self._count(self.topics | self._group_topics)
        self._refresh_at = time.monotonic() + self._max_age_s
        missing = self.topics.difference(self.counts)
        if missing:
            self._refresh_at = time.monotonic() + min(1.0, self._max_age_s)  # the topic may be created soon
        if missing - self._missing:
            log.warning("topics that do not exist yet: %s; they are read once created", ", ".join(sorted(missing)))
        self._missing = missing
        leads = bool(self._group_topics)
        return self.topics != before[0] or (leads and self.counts != before[1])

    def watch_group_topics(self, topics: frozenset[str]) -> None:
        """Watch the topics of all members of the group from now on, because this member is the leader.

        Refresh the metadata.
        """
        self._group_topics = topics
        self.refresh()

    def watch_own_topics(self) -> None:
        """Watch only the topics that this member subscribes to from now on, because this member is not the leader."""
        if self._group_topics:
            self._group_topics = frozenset()
            self.counts = self._count(self.topics)

    def _count(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each of these topics that exists.

        Raise KafkaError if a subscribed topic has an error that is not retriable.
        """
        counts = {}
        for name in names:
            topic = self._cluster.topics.get(name)
            if topic is None:
                continue
            code = topic.error_code
            if code and not is_retriable(code) and code != Errors.UNKNOWN_TOPIC_OR_PARTITION and name in self.topics:
                raise KafkaError(code, f"topic {name!r}: {message_of(code)}")
            if topic.partitions:
                counts[name] = len(topic.partitions)
        return counts


def encode_subscription(
    topics: Iterable[str],
    user_data: bytes | None,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
) -> bytes:
    """Return this member's encoded subscription for JoinGroup.

    Args:
        owned: The partitions that this member owns, assigned in `generation`.
    """
    shape = SUBSCRIPTION.Message
    message = shape(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            shape.OwnedPartitions(topic=topic, partitions=indexes) for topic, indexes in grouped(owned).items()
        ],
        generation_id=generation,
        rack_id=rack,
    )
    return SUBSCRIPTION.encode(message, LATEST_SUBSCRIPTION)


def decode_member(member: Any) -> Member:
    """Return the Member for a member in a JoinGroup response.

    Raise KafkaError if its encoded subscription is malformed.
    """
    try:
        _, sent = SUBSCRIPTION.decode(member.metadata)
    except (ProtocolError, UnsupportedVersion) as reason:
        raise KafkaError(
            Errors.INCONSISTENT_GROUP_PROTOCOL,
            f"the group's member {member.member_id!r} sends a malformed subscription ({reason}); stop that client",
        ) from reason
    return Member(
        member.member_id,
        list(sent.topics),
        member.group_instance_id,
        [(one.topic, index) for one in sent.owned_partitions for index in one.partitions],
        sent.generation_id,
        None if sent.user_data is None else bytes(sent.user_data),
    )


def assign_partitions(
    assignor: str,
    assignors: Sequence[Assignor],
    members: Sequence[Member],
    counts_of: Callable[[frozenset[str]], Mapping[str, int]],
) -> dict[str, bytes]:
    """Run an assignor over all members, as the group's leader. Return each member's encoded assignment.

    Raise KafkaError if the assignor is not known.

    Args:
        assignor: The name of the assignor that the group has chosen.
        assignors: The assignors of this member, which are searched before Kafka's own.
        counts_of: Returns the numbers of partitions of the given topics, without topics that do not exist.
    """
    chosen = next((one for one in assignors if one.name == assignor), ASSIGNORS.get(assignor))
    if chosen is None:
        raise KafkaError(Errors.INCONSISTENT_GROUP_PROTOCOL, f"the group has chosen the unknown assignor {assignor!r}")
    wanted = frozenset(topic for member in members for topic in member.topics)
    counts = {topic: count for topic, count in counts_of(wanted).items() if topic in wanted}
    shares = chosen.assign(members, counts)
    return {member: encode_assignment(share) for member, share in shares.items()}


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the encoded assignment of these partitions to one member, for SyncGroup."""
    shape = ASSIGNMENT.Message
    message = shape(
        assigned_partitions=[
            shape.AssignedPartitions(topic=topic, partitions=indexes) for topic, indexes in grouped(partitions).items()
        ]
    )
    return ASSIGNMENT.encode(message, LATEST_ASSIGNMENT)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Return the partitions in an encoded assignment, without repeats. Return [] if `data` is empty.

    Raise KafkaError if the assignment is malformed.
    """
    if not data:
        return []
    try:
        _, assignment = ASSIGNMENT.decode(data)
    except (ProtocolError, UnsupportedVersion) as reason:
        raise KafkaError(
            Errors.INCONSISTENT_GROUP_PROTOCOL,
            f"the group's leader sends a malformed assignment ({reason}); stop that client",
        ) from reason
    return list(dict.fromkeys((one.topic, index) for one in assignment.assigned_partitions for index in one.partitions))
