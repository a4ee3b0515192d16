"""The backend of `kafkapy topics` that uses the brokers' admin requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkapy.client.administration.admin import DELETE, EARLIEST, LATEST, SET, TOPIC, Admin
from kafkapy.client.administration.descriptions import FoundOffset, NewTopic
from kafkapy.client.cluster import Topic, TopicPartition
from kafkapy.metadata.ids import ZERO_ID, encode_id
from kafkapy.tools.topics.interface import Document

MIN_ISR = "min.insync.replicas"


class KafkaTopics:
    """A TopicBackend that sends requests to the brokers of a cluster."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def summaries(self) -> list[Document]:
        return [_summary(topic) for topic in self._admin.list_topics()]

    def descriptions(self, names: Sequence[str], *, with_offsets: bool) -> list[Document]:
        topics = [self._admin.describe_topic(name) for name in names] if names else self._admin.list_topics()
        return [self._description(topic, with_offsets) for topic in topics]

    def live_brokers(self) -> frozenset[int]:
        return frozenset(self._admin.cluster.brokers)

    def min_isr(self, name: str) -> int:
        (entry,) = self._admin.describe_configs(TOPIC, name, [MIN_ISR])
        return int(entry.value or 1)

    def create(
        self,
        name: str,
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        assignment: Mapping[int, Sequence[int]] | None = None,
        *,
        validate_only: bool,
    ) -> int:
        topic = NewTopic(name, partitions, replicas, dict(settings), assignment)
        created = self._admin.create_topics([topic], validate_only=validate_only)
        return len(created[0].partitions) if created else len(assignment or ()) or partitions

    def alter_settings(self, name: str, changes: Mapping[str, str], removed: Sequence[str]) -> None:
        operations: list[tuple[str, int, str | None]] = [(key, SET, value) for key, value in changes.items()]
        self._admin.alter_configs(TOPIC, name, [*operations, *((key, DELETE, None) for key in removed)])

    def add_partitions(self, name: str, count: int) -> None:
        self._admin.create_partitions(name, count)

    def delete(self, name: str) -> str:
        self._admin.delete_topics([name])
        return f"Deleted topic {name}."

    def _description(self, topic: Topic, with_offsets: bool) -> Document:
        offsets = self._offsets(topic) if with_offsets else {}
        entries = self._admin.describe_configs(TOPIC, topic.name)
        return {
            **_summary(topic),
            "configs": {entry.name: entry.value for entry in entries if entry.source == "DYNAMIC_TOPIC_CONFIG"},
            "partitions": [
                {
                    "partition": one.index,
                    "leader": one.leader if one.leader >= 0 else None,
                    "leaderEpoch": one.leader_epoch,
                    "replicas": list(one.replicas),
                    "isr": list(one.isr),
                    **offsets.get(one.index, {}),
                }
                for one in topic.partitions.values()
            ],
        }

    def _offsets(self, topic: Topic) -> dict[int, Document]:
        """Return the keys `start` and `end` of each partition; None without a leader."""
        with_leader: list[TopicPartition] = [(topic.name, i) for i, one in topic.partitions.items() if one.leader >= 0]
        starts = self._admin.offsets(dict.fromkeys(with_leader, EARLIEST))
        ends = self._admin.offsets(dict.fromkeys(with_leader, LATEST))
        return {
            index: {"start": _offset(starts.get((topic.name, index))), "end": _offset(ends.get((topic.name, index)))}
            for index in topic.partitions
        }


def _summary(topic: Topic) -> Document:
    return {
        "name": topic.name,
        "id": "" if topic.topic_id == ZERO_ID else encode_id(topic.topic_id),
        "internal": topic.internal,
        "partitionCount": len(topic.partitions),
        "replicationFactor": max((len(one.replicas) for one in topic.partitions.values()), default=0),
    }


def _offset(found: FoundOffset | None) -> int | None:
    return None if found is None else found.offset
