"""The options of a mirror that are not properties of a source or of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CreateTopics = Literal["source", "target", "never"]


@dataclass(frozen=True)
class MirrorOptions:
    """The options of a mirror that are not properties of a source or of the target.

    Attributes:
        streams: Number of members in each source's group, each with its own thread and producer.
        commit_interval_s: Time between commits to a source; with exactly_once, the longest duration of a transaction.
        abort_on_send_failure: If False, records that the target refuses are counted as lost, and the mirror continues.
        keep_partitions: If True, a record keeps its partition number. Otherwise its key's hash chooses the partition.
        exactly_once: If True, records are copied in transactions; see kafkapy.mirror.exactly_once.
        create_topics: How missing topics are created in the target: with the source's number of partitions ("source"),
            by the target's auto.create.topics.enable ("target"), or never.
    """

    streams: int = 1
    commit_interval_s: float = 60.0
    abort_on_send_failure: bool = True
    keep_partitions: bool = False
    exactly_once: bool = False
    create_topics: CreateTopics = "source"
