"""What is known about a cluster from other sources than its log directories."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class KnownTopic(NamedTuple):
    """A topic in ZooKeeper. `topic_id` is None before Kafka 2.8. `leader_epochs` has the partitions with a state node.

    `deleting`: the topic is marked for deletion, and not deleted yet.
    """

    topic_id: bytes | None
    assignment: dict[int, list[int]]
    leader_epochs: dict[int, int]
    deleting: bool


@dataclass
class Knowledge:
    """What is known about the cluster; every field is empty if its source was not given.

    settings: overrides by topic; of a topic that is missing here the settings are unknown.
    sources: where a topic's settings come from, for messages.
    broker_settings: dynamic settings, by broker id or `<default>`.
    last_producer_id: the last id of the allocated blocks.
    consumer_offsets: those that old consumers have committed to ZooKeeper, by group, topic and partition.
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
        """Add settings by topic. They replace all settings of a topic that has some already."""
        self.settings.update(settings)
        self.sources.update(dict.fromkeys(settings, source))
