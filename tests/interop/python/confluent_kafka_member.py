"""A group member with confluent-kafka."""

import struct
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from host import Member


class Confluent(Member, kind="confluent-kafka"):
    def live(self) -> None:
        wanted = self.wanted
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": wanted["group"],
            "partition.assignment.strategy": wanted["assignor"],
            "session.timeout.ms": wanted["session_ms"],
            "max.poll.interval.ms": wanted["rebalance_ms"],
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
        if wanted["instance"]:
            config["group.instance.id"] = wanted["instance"]
        consumer = Consumer(config)
        consumer.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        try:
            while not self.leaving.is_set():
                self.moving.wait()
                messages = consumer.consume(500, 0.1)
                for error in filter(None, (message.error() for message in messages)):
                    if error.code() == KafkaError._FATAL:
                        raise KafkaException(error)
                self._take(consumer, [m for m in messages if not m.error()])
        finally:
            consumer.close()

    def _take(self, consumer: Any, messages: list[Any]) -> None:
        ends = self.taken((m.partition(), m.offset()) for m in messages)
        if not ends:
            return
        try:
            places = [TopicPartition(self.topic, p, offset) for p, offset in ends.items()]
            for each in consumer.commit(offsets=places, asynchronous=False):
                if each.error:
                    raise KafkaException(each.error)
        except KafkaException as failure:
            if failure.args[0].code() == KafkaError._FATAL:
                raise
            self.refused(self.generation, failure)
        else:
            self.saved(self.generation)

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        new = {each.partition for each in partitions}
        # librdkafka shows the generation only in its group metadata, as a native int after a magic.
        (generation,) = struct.unpack_from("=i", consumer.consumer_group_metadata(), len(b"CGMDv2:"))
        self.assigned(generation, consumer.memberid(), self.owned | new)

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self.gone("revoked", (each.partition for each in partitions))

    def _on_lost(self, consumer: Any, partitions: list[Any]) -> None:
        self.gone("lost", (each.partition for each in partitions))
