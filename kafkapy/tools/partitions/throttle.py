"""The throttle of a reassignment: the settings of brokers and topics that kafka-reassign-partitions sets (KIP-73).

Every broker that takes part gets the rate. Every topic gets two lists of PARTITION:BROKER: the present replicas, which
are throttled when they are read from, and the new ones, which are throttled when they fetch. Source: Kafka's
ReassignPartitionsCommand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkapy.client.administration.admin import BROKER, DELETE, SET, TOPIC, Admin
from kafkapy.tools.partitions.plan import Move

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_ALL = "*"


def set_throttle(admin: Admin, moves: Iterable[Move], rate: int) -> None:
    """Limit the copying for these moves to `rate` bytes per second and broker."""
    topics: dict[str, tuple[list[str], list[str]]] = {}
    brokers: set[int] = set()
    for move in moves:
        leaders, followers = topics.setdefault(move.topic, ([], []))
        leaders += [f"{move.partition}:{broker}" for broker in move.current]
        followers += [f"{move.partition}:{broker}" for broker in move.added]
        brokers |= {*move.current, *move.target}
    for topic, (leaders, followers) in topics.items():
        before = _lists(admin, topic)
        changes = [(LEADERS, leaders), (FOLLOWERS, followers)]
        admin.alter_configs(TOPIC, topic, [(key, SET, _joined(before.get(key), new)) for key, new in changes])
    for broker in sorted(brokers & {*admin.cluster.brokers}):  # one that does not run copies nothing
        admin.alter_configs(BROKER, str(broker), [(key, SET, str(rate)) for key in RATES])


def clear_throttle(admin: Admin) -> list[str]:
    """Remove the throttle from all topics that have one and from all brokers, and return the names of these topics.

    A topic whose replicas are all throttled ("*") was not throttled for a reassignment, and keeps its throttle.
    """
    throttled = {topic.name: found for topic in admin.list_topics() if (found := _lists(admin, topic.name))}
    if not throttled:
        return []
    # The topics come last: if this is interrupted, the next call still finds them.
    for broker in sorted(admin.cluster.brokers):
        entries = admin.describe_configs(BROKER, str(broker), RATES)
        given = [entry.name for entry in entries if entry.source == "DYNAMIC_BROKER_CONFIG"]
        if given:
            admin.alter_configs(BROKER, str(broker), [(key, DELETE, None) for key in given])
    for topic, found in throttled.items():
        admin.alter_configs(TOPIC, topic, [(key, DELETE, None) for key in found])
    return sorted(throttled)


def _lists(admin: Admin, topic: str) -> dict[str, str]:
    """Return the lists of throttled replicas that the topic has, by setting."""
    return {
        entry.name: entry.value
        for entry in admin.describe_configs(TOPIC, topic, [LEADERS, FOLLOWERS])
        if entry.source == "DYNAMIC_TOPIC_CONFIG" and entry.value and entry.value.strip() != _ALL
    }


def _joined(before: str | None, new: Sequence[str]) -> str:
    """Return the list `before` with the new replicas, without repetitions."""
    return ",".join(dict.fromkeys([*filter(None, (before or "").split(",")), *new]))
