"""confluent-kafka, the Python interface of librdkafka."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.harness.clients.base import (
    Client,
    ClientError,
    Partition,
    Received,
    Record,
    next_offsets,
)


class Confluent(Client):
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._admin.list_topics(timeout=30)
        self._transactional: dict[str, Producer] = {}
        self._open: set[str] = set()  # names of those in a transaction

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[tuple[int, int]]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "message.max.bytes": 8 << 20,
            }
        )
        placed: list[tuple[int, int]] = [(-1, -1)] * len(records)
        failed: list[Any] = []

        def note(index: int) -> Callable[[Any, Any], None]:
            def delivered(error: Any, message: Any) -> None:
                if error is not None:
                    failed.append(error)
                else:
                    placed[index] = (message.partition(), -1 if message.offset() is None else message.offset())

            return delivered

        for index, record in enumerate(records):
            place: dict[str, int] = {}
            if record.partition is not None:
                place["partition"] = record.partition
            if record.timestamp is not None:
                place["timestamp"] = record.timestamp
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                on_delivery=note(index),
                **place,
            )
        left = producer.flush(60)
        if failed:
            raise ClientError(failed[0].code(), failed[0].str())
        assert left == 0, f"{left} of {len(records)} records were not delivered in 60 s"
        return placed

    def _consumer(self, **more: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "message.max.bytes": 8 << 20,
                **more,
            }
        )

    def fetch(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, list[Received]]:
        got: dict[int, list[Received]] = {partition: [] for partition in start}
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(topic, p, offset) for p, offset in start.items()])
            open_partitions = {p for p in start if start[p] < end[p]}
            deadline = time.monotonic() + 60
            while open_partitions:
                assert time.monotonic() < deadline, f"partitions {open_partitions} of {topic} were not read in 60 s"
                for message in consumer.consume(1000, 0.02):  # which waits so long unless so many come
                    if message.error():
                        raise ClientError(message.error().code(), message.error().str())
                    partition, offset = message.partition(), message.offset()
                    if offset < end[partition]:
                        got[partition].append(_received(message))
                    if offset >= end[partition] - 1:
                        open_partitions.discard(partition)
        finally:
            consumer.close()
        return got

    def consume(
        self, group: str, topic: str, count: int, patience_s: float, *, by_pattern: bool = False
    ) -> list[Received]:
        got: list[Received] = []
        consumer = self._consumer(**{"group.id": group, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([f"^{topic}$" if by_pattern else topic])
            deadline = time.monotonic() + patience_s
            while len(got) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(got), 0.1):
                    if message.error():
                        raise ClientError(message.error().code(), message.error().str())
                    got.append(_received(message))
            if got:
                with _errors():
                    consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return got

    def read_until(self, topic: str, partitions: Sequence[int], last: bytes, *, committed: bool) -> list[Received]:
        got: list[Received] = []
        consumer = self._consumer(**{"isolation.level": "read_committed" if committed else "read_uncommitted"})
        try:
            consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
            unread = set(partitions)
            deadline = time.monotonic() + 60
            while unread:
                assert time.monotonic() < deadline, f"no {last!r} in partitions {unread} of {topic} for 60 s: {got}"
                for message in consumer.consume(1000, 0.02):  # which waits so long unless so many come
                    got.append(_received(message))
                    if message.value() == last:
                        unread.discard(message.partition())
        finally:
            consumer.close()
        return got

    def open_transactional(self, name: str, *, timeout_ms: int = 60_000) -> None:
        config = {"transactional.id": name, "transaction.timeout.ms": timeout_ms, "linger.ms": 0, "log_level": 0}
        producer = Producer({"bootstrap.servers": self.bootstrap, **config})
        with _errors():
            producer.init_transactions(30)
        self._transactional[name] = producer

    def transact(self, name: str, topic: str, records: Sequence[Record], outcome: str) -> None:
        producer = self._transactional[name]
        failed: list[Any] = []
        if name not in self._open:
            with _errors():
                producer.begin_transaction()
            self._open.add(name)
        with _errors():
            for record in records:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
            assert producer.flush(30) == 0
        if failed:
            raise ClientError(failed[0].code(), failed[0].str())
        if outcome != "open":
            self.finish(name, outcome)

    def finish(self, name: str, outcome: str) -> None:
        self._open.discard(name)
        with _errors():
            if outcome == "commit":
                self._transactional[name].commit_transaction(30)
            else:
                self._transactional[name].abort_transaction(30)

    def close_transactional(self, name: str) -> None:
        self._open.discard(name)
        del self._transactional[name]

    def copy_in_transaction(
        self, name: str, group: str, source: str, target: str, count: int, outcome: str
    ) -> list[Received]:
        producer, got = self._transactional[name], []
        consumer = self._consumer(**{"group.id": group, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([source])
            deadline = time.monotonic() + 60
            while len(got) < count:
                assert time.monotonic() < deadline, f"{len(got)} of {count} records of {source} in 60 s"
                for message in consumer.consume(count - len(got), 0.2):
                    if message.error():
                        raise ClientError(message.error().code(), message.error().str())
                    got.append(_received(message))
            with _errors():
                producer.begin_transaction()
                for each in got:
                    producer.produce(target, (each.value or b"").upper(), partition=each.partition)
                ends = [TopicPartition(source, p, end) for p, end in next_offsets(got).items()]
                producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), 30)
                assert producer.flush(30) == 0
            self.finish(name, outcome)
        finally:
            consumer.close()
        return got

    def stable_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return the last stable offset of each partition."""
        return self._list_offsets(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        consumer = self._consumer()
        try:
            found = consumer.offsets_for_times([TopicPartition(topic, p, at) for p, at in times.items()], 30)
        finally:
            consumer.close()
        return {each.partition: each.offset if each.offset >= 0 else None for each in found}

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        first = self._list_offsets(topic, partitions, OffsetSpec.earliest())
        last = self._list_offsets(topic, partitions, OffsetSpec.latest())
        return {p: (first[p], last[p]) for p in partitions}

    def offsets_of_max_timestamp(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return self._list_offsets(topic, partitions, OffsetSpec.max_timestamp())

    def _list_offsets(
        self,
        topic: str,
        partitions: Iterable[int],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        asked = self._admin.list_offsets(
            {TopicPartition(topic, p): spec for p in partitions}, isolation_level=isolation
        )
        return {place.partition: _result(future).offset for place, future in asked.items()}

    def cluster(self) -> dict[str, Any]:
        response = _result(self._admin.describe_cluster())
        return {
            "cluster_id": response.cluster_id,
            "controller": response.controller.id,
            "nodes": [(node.id, node.host, node.port) for node in response.nodes],
        }

    def topic_names(self) -> set[str]:
        return set(self._admin.list_topics(timeout=30).topics)

    def partitions_of(self, topic: str) -> dict[int, Partition]:
        response = _result(self._admin.describe_topics(TopicCollection([topic]))[topic])
        return {
            p.id: Partition(p.leader.id, tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr))
            for p in response.partitions
        }

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        _result(self._admin.create_topics([new], validate_only=validate_only)[topic])

    def add_partitions(self, topic: str, total: int) -> None:
        _result(self._admin.create_partitions([NewPartitions(topic, total)])[topic])

    def delete_topic(self, topic: str) -> None:
        _result(self._admin.delete_topics([topic])[topic])

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return self._configs(ConfigResource(ResourceType.TOPIC, topic))

    def broker_configs(self, broker: int) -> dict[str, str | None]:
        return self._configs(ConfigResource(ResourceType.BROKER, str(broker)))

    def _configs(self, resource: ConfigResource) -> dict[str, str | None]:
        return {
            name: entry.value for name, entry in _result(self._admin.describe_configs([resource])[resource]).items()
        }

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._alter(topic, [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in configs.items()])

    def reset_topic_config(self, topic: str, name: str) -> None:
        self._alter(topic, [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)])

    def _alter(self, topic: str, entries: list[ConfigEntry]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _result(self._admin.incremental_alter_configs([resource])[resource])

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        asked = self._admin.delete_records([TopicPartition(topic, p, offset) for p, offset in before.items()])
        return {place.partition: _result(future).low_watermark for place, future in asked.items()}

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets of a group, for the topic's partitions that have one."""
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        places = _result(asked).topic_partitions
        return {each.partition: each.offset for each in places if each.topic == topic and each.offset >= 0}

    def elect_leaders(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        response = _result(
            self._admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, p) for p in partitions])
        )
        return {place.partition: 0 if error is None else error.code() for place, error in response.items()}


def _received(message: Any) -> Received:
    return Received(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def _result(future: Any) -> Any:
    with _errors():
        return future.result(60)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise ClientError(error.args[0].code(), error.args[0].str()) from None
