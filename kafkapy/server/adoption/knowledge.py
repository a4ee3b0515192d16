"""What is known of a cluster beside what its log directories say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class KnownTopic(NamedTuple):
    """A topic in ZooKeeper. `topic_id` is None before Kafka 2.8; epochs are those of the partitions that have a state.

    `deleting`: somebody asked for its deletion, and it was not carried out.
    """

    topic_id: bytes | None
    assignment: dict[int, list[int]]
    leader_epochs: dict[int, int]
    deleting: bool


@dataclass
class Knowledge:
    """All is empty where nobody told anything.

    settings: a topic's own, by topic; a topic that is not in it is one of which nothing is known.
    sources: where a topic's settings are from, for people.
    broker_settings: dynamic ones, by broker id or `<default>`.
    last_producer_id: of the blocks that were given out.
    consumer_offsets: of the old consumers, which kept them in ZooKeeper, by group, topic and partition.
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
        """Goes over what is there already, topic by topic."""
        self.settings.update(settings)
        self.sources.update(dict.fromkeys(settings, source))
