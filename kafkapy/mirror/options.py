"""What a mirror can be told beside the properties of source and target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CreateTopics = Literal["source", "target", "never"]


@dataclass(frozen=True)
class MirrorOptions:
    """Attributes:
    streams: members of the group, each with a thread and a producer, that each source gets.
    commit_interval_s: between commits to a source; with exactly_once the longest time between commits of a transaction.
    abort_on_send_failure: False: records that the target does not take are counted, and the mirror goes on.
    keep_partitions: a record goes to the partition with the number of its own, not where its key's hash says.
    exactly_once: see kafkapy.mirror.exactly_once.
    create_topics: a topic that the target does not have is made with the partitions that it has in the source; by the
        target itself when it is asked for (auto.create.topics.enable); or never.
    """

    streams: int = 1
    commit_interval_s: float = 60.0
    abort_on_send_failure: bool = True
    keep_partitions: bool = False
    exactly_once: bool = False
    create_topics: CreateTopics = "source"
