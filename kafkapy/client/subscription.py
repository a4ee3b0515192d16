"""What a consumer subscribes, what of that the cluster has, and what its leader shares out.

Source: Kafka's ConsumerCoordinator (metadata, onLeaderElected) and ConsumerProtocol.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafkapy.client.answers import grouped
from kafkapy.client.assignors import ASSIGNORS, Assignor, Member
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.errors import Errors, KafkaError, ProtocolError, UnsupportedVersion, is_retriable, message_of
from kafkapy.protocol.consumer_protocol import ASSIGNMENT, SUBSCRIPTION

log = logging.getLogger(__name__)

LATEST_SUBSCRIPTION, LATEST_ASSIGNMENT = 3, 3  # the versions that are written


class Subscription:
    """Names of topics, or a pattern that they match.

    Attributes:
        topics: the names subscribed, of a pattern those that there are.
        counts: partitions of every topic that this member looks at: its own, and as leader the group's.
    """

    def __init__(self, cluster: Cluster, topics: Iterable[str] | re.Pattern[str], max_age_s: float) -> None:
        self.pattern: re.Pattern[str] | None = None
        self.topics: frozenset[str] = frozenset()
        self.counts: dict[str, int] = {}
        self._cluster = cluster
        self._max_age_s = max_age_s
        self._group_topics: frozenset[str] = frozenset()
        self._missing: frozenset[str] = frozenset()
        self._look_at = 0.0
        if isinstance(topics, re.Pattern):
            self.pattern = topics
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
            if not names or not all(isinstance(name, str) and name for name in names):
                raise ValueError(f"the topics to subscribe are {names!r}; give one name or more, none of them empty")
            self.topics = frozenset(names)

    @property
    def is_due(self) -> bool:
        """Whether the metadata are too old."""
        return time.monotonic() >= self._look_at

    def covers(self, topic: str) -> bool:
        """Whether a topic is subscribed, also one that this member has not heard of yet."""
        return topic in self.topics or (self.pattern is not None and self.pattern.search(topic) is not None)

    def look(self) -> bool:
        """Asks for the metadata; whether the group is to share out again: subscribed topics have come or gone, or,
        for the leader, partitions have.

        Raises:
            ConnectionFailed: no broker answers.
            KafkaError: what the broker says of a topic, if it is not that it is not there.
        """
        before = self.topics, self.counts
        if self.pattern is not None:
            self._cluster.refresh()
            found = [topic for topic in self._cluster.topics.values() if not topic.internal]
            self.topics = frozenset(topic.name for topic in found if self.covers(topic.name))
        else:
            self._cluster.refresh(self.topics | self._group_topics)
        self.counts = self._count(self.topics | self._group_topics)
        self._look_at = time.monotonic() + self._max_age_s
        missing = self.topics.difference(self.counts)
        if missing:
            self._look_at = time.monotonic() + min(1.0, self._max_age_s)  # it may be made any moment
        if missing - self._missing:
            log.warning("no such topic yet: %s; it is read as soon as it is there", ", ".join(sorted(missing)))
        self._missing = missing
        leads = bool(self._group_topics)
        return self.topics != before[0] or (leads and self.counts != before[1])

    def lead(self, topics: frozenset[str]) -> None:
        """Looks at these too, as the leader of the group."""
        self._group_topics = topics
        self.look()

    def follow(self) -> None:
        """Looks at its own topics only."""
        if self._group_topics:
            self._group_topics = frozenset()
            self.counts = self._count(self.topics)

    def _count(self, names: Iterable[str]) -> dict[str, int]:
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
    """What a member tells of itself when it joins."""
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
    """A member as JoinGroup's answer tells the leader of it. Raises KafkaError: what it sends is no subscription."""
    try:
        _, told = SUBSCRIPTION.decode(member.metadata)
    except (ProtocolError, UnsupportedVersion) as reason:
        raise KafkaError(
            Errors.INCONSISTENT_GROUP_PROTOCOL,
            f"the group's member {member.member_id!r} sends what is no subscription ({reason}); stop that client",
        ) from reason
    return Member(
        member.member_id,
        list(told.topics),
        member.group_instance_id,
        [(one.topic, index) for one in told.owned_partitions for index in one.partitions],
        told.generation_id,
        None if told.user_data is None else bytes(told.user_data),
    )


def share_out(
    assignor: str,
    assignors: Sequence[Assignor],
    members: Sequence[Member],
    counts_of: Callable[[frozenset[str]], Mapping[str, int]],
) -> dict[str, bytes]:
    """The leader's work: member id -> encoded assignment.

    Args:
        assignor: the name that the group has chosen.
        counts_of: the partitions of these topics, those that are not there left out.
    """
    chosen = next((one for one in assignors if one.name == assignor), ASSIGNORS.get(assignor))
    if chosen is None:
        raise KafkaError(Errors.INCONSISTENT_GROUP_PROTOCOL, f"the group has chosen {assignor!r}, which is not known")
    wanted = frozenset(topic for member in members for topic in member.topics)
    counts = {topic: count for topic, count in counts_of(wanted).items() if topic in wanted}
    shares = chosen.assign(members, counts)
    return {member: encode_assignment(share) for member, share in shares.items()}


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """The partitions of one member."""
    shape = ASSIGNMENT.Message
    message = shape(
        assigned_partitions=[
            shape.AssignedPartitions(topic=topic, partitions=indexes) for topic, indexes in grouped(partitions).items()
        ]
    )
    return ASSIGNMENT.encode(message, LATEST_ASSIGNMENT)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions of this member, each once; none where the leader sent nothing. Raises KafkaError."""
    if not data:
        return []
    try:
        _, assignment = ASSIGNMENT.decode(data)
    except (ProtocolError, UnsupportedVersion) as reason:
        raise KafkaError(
            Errors.INCONSISTENT_GROUP_PROTOCOL,
            f"the group's leader sends what is no assignment ({reason}); stop that client",
        ) from reason
    return list(dict.fromkeys((one.topic, index) for one in assignment.assigned_partitions for index in one.partitions))
