"""The metadata of a cluster that an adoption gets from other sources than the log directories."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class KnownTopic(NamedTuple):
    """A topic in ZooKeeper. `topic_id` is None if ZooKeeper has none, as before Kafka 2.8. `assignment` has the
    replicas of each partition, `leader_epochs` the leader epoch of each partition that has a state node. `deleting` is
    True for a topic that is marked for deletion and not deleted yet."""

    topic_id: bytes | None
    assignment: dict[int, list[int]]
    leader_epochs: dict[int, int]
    deleting: bool


@dataclass
class Knowledge:
    """The metadata of a cluster from other sources than its log directories. A field is empty if its source was not
    given.

    settings: topic settings, by topic and name; the settings of a topic that is missing here are unknown.
    sources: the origin of a topic's settings, by topic, for messages.
    broker_settings: dynamic settings, by broker id or `<default>`.
    last_producer_id: the last id of the allocated blocks of producer ids; -1 if unknown.
    consumer_offsets: offsets that old consumers have committed to ZooKeeper, by group, topic and partition.
    """

    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    topics: dict[str, KnownTopic] | None = None
    broker_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_epoch: int | None = None
    last_producer_id: int = -1
    live_brokers: list[int] = field(default_factory=list)
    consumer_offsets: dict[tuple[str, str, int], bytes] = field(default_factory=dict)

    def add_settings(self, settings: dict[str, dict[str, str]], source: str) -> None:
        """Add settings, by topic and name, that come from `source`. They replace earlier settings of these topics."""
        self.settings.update(settings)
        self.sources.update(dict.fromkeys(settings, source))
