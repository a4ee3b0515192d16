"""A group member with kafka-python."""

from typing import Any

import kafka.errors
from host import Member
from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

ASSIGNORS = {
    each.name: each for each in (RangePartitionAssignor, RoundRobinPartitionAssignor, CooperativeStickyAssignor)
}


class KafkaPython(Member, kind="kafka-python"):
    def live(self) -> None:
        wanted = self.wanted
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=wanted["group"],
            group_instance_id=wanted["instance"],
            partition_assignment_strategy=[ASSIGNORS[wanted["assignor"]]],
            session_timeout_ms=wanted["session_ms"],
            max_poll_interval_ms=wanted["rebalance_ms"],
            heartbeat_interval_ms=200,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        # A leader that does not know the topic assigns nothing, and may not notice when it learns of the topic.
        consumer.partitions_for_topic(self.topic)
        consumer.subscribe([self.topic], listener=Listener(self, consumer))
        try:
            while not self.leaving.is_set():
                self.moving.wait()
                self._take(consumer, consumer.poll(timeout_ms=100))
        finally:
            consumer.close()

    def _take(self, consumer: Any, messages: dict[Any, list[Any]]) -> None:
        ends = self.taken((place.partition, m.offset) for place, some in messages.items() for m in some)
        if not ends:
            return
        try:
            consumer.commit({TopicPartition(self.topic, p): OffsetAndMetadata(end, "", -1) for p, end in ends.items()})
        except kafka.errors.FencedInstanceIdError:
            raise
        except kafka.errors.KafkaError as failure:
            self.refused(self.generation, failure)
        else:
            self.saved(self.generation)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: KafkaPython, consumer: Any) -> None:
        self._member = member
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Any) -> None:
        metadata = self._consumer.group_metadata()
        owned = {each.partition for each in self._consumer.assignment()}
        self._member.assigned(metadata.generation_id, metadata.member_id, owned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.gone("revoked", (each.partition for each in revoked))

    def on_partitions_lost(self, lost: Any) -> None:
        self._member.gone("lost", (each.partition for each in lost))
