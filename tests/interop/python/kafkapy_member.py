"""A group member with the project's own client."""

from collections.abc import Sequence

from host import Member

from kafkapy.client import ClientError, GroupConsumer, GroupFailed, RebalanceListener
from kafkapy.client.cluster import TopicPartition
from kafkapy.client.fetched import ConsumerRecord
from kafkapy.errors import KafkaError


class Failed(Exception):
    """An error with the broker's error code in `errno`, where `host.code_of` finds it."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.errno = error.code


class Kafkapy(Member, kind="kafkapy"):
    def live(self) -> None:
        wanted = self.wanted
        consumer = GroupConsumer(
            self.bootstrap,
            wanted["group"],
            instance_id=wanted["instance"],
            assignors=[wanted["assignor"]],
            session_timeout_s=wanted["session_ms"] / 1000,
            max_poll_interval_s=wanted["rebalance_ms"] / 1000,
            heartbeat_interval_s=0.2,
            auto_commit=False,
            auto_offset_reset="earliest",
            max_wait_ms=100,
        )
        consumer.subscribe([self.topic], Listener(self, consumer))
        try:
            while not self.leaving.is_set():
                self.moving.wait()
                self._take(consumer, consumer.poll(0.1))
        except GroupFailed as error:
            raise Failed(error) from error
        finally:
            consumer.close()

    def _take(self, consumer: GroupConsumer, records: Sequence[ConsumerRecord]) -> None:
        ends = self.taken((record.partition, record.offset) for record in records)
        if not ends:
            return
        generation = self.generation
        try:
            consumer.commit({(self.topic, partition): end for partition, end in ends.items()})
        except KafkaError as failure:
            self.refused(generation, Failed(failure))
        except ClientError as failure:
            self.refused(generation, failure)
        else:
            self.saved(generation)


class Listener(RebalanceListener):
    def __init__(self, member: Kafkapy, consumer: GroupConsumer) -> None:
        self._member = member
        self._consumer = consumer

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        who = self._consumer.group_metadata()
        owned = (index for _, index in self._consumer.assignment)
        self._member.assigned(who.generation, who.member_id, owned)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.gone("revoked", (index for _, index in partitions))

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.gone("lost", (index for _, index in partitions))
