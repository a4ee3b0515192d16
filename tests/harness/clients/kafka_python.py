"""kafka-python: protocol and client in Python."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import kafka.errors
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.consumer.offsets import OffsetSpec

from tests.harness.clients.base import (
    EVERYTHING,
    Client,
    ClientError,
    Partition,
    Received,
    Record,
    next_offsets,
)


class KafkaPython(Client):
    name = "kafka-python"
    expressive = EVERYTHING - {"nothing", "null_header"}

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._transactional: dict[str, KafkaProducer] = {}
        self._open: set[str] = set()  # names of those in a transaction

    def close(self) -> None:
        for name in list(self._transactional):
            self.close_transactional(name)
        self._admin.close()

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[tuple[int, int]]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == -1 else acks,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=8 << 20,
        )
        with _errors():
            try:
                sent = [
                    producer.send(topic, r.value, r.key, list(r.headers), r.partition, r.timestamp) for r in records
                ]
                placed = [future.get(60) for future in sent]
            finally:
                producer.close()
        return [(each.partition, each.offset) for each in placed]

    def fetch(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, list[Received]]:
        got: dict[int, list[Received]] = {partition: [] for partition in start}
        with _errors(), self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, p) for p in start])
            for p, offset in start.items():
                consumer.seek(TopicPartition(topic, p), offset)
            open_partitions = {p for p in start if start[p] < end[p]}
            deadline = time.monotonic() + 60
            while open_partitions:
                assert time.monotonic() < deadline, f"partitions {open_partitions} of {topic} were not read in 60 s"
                for place, messages in consumer.poll(timeout_ms=20, max_records=5000).items():
                    p = place.partition
                    got[p] += [
                        Received(p, m.offset, m.timestamp, m.key, m.value, tuple(m.headers))
                        for m in messages
                        if m.offset < end[p]
                    ]
                    if messages and messages[-1].offset >= end[p] - 1:
                        open_partitions.discard(p)
        return got

    def consume(
        self, group: str, topic: str, count: int, patience_s: float, *, by_pattern: bool = False
    ) -> list[Received]:
        got: list[Received] = []
        with _errors(), self._consumer(group_id=group, auto_offset_reset="earliest") as consumer:
            if by_pattern:
                consumer.subscribe(pattern=f"^{topic}$")
            else:
                consumer.subscribe([topic])
            deadline = time.monotonic() + patience_s
            while len(got) < count and time.monotonic() < deadline:
                # A poll that ends while the consumer joins for the second time loses that join: kafka-python's
                # need_rejoin() compares only topics. So polls take long; records end them at once.
                for messages in consumer.poll(timeout_ms=1000, max_records=count - len(got)).values():
                    got += [_received(m) for m in messages]
            if got:
                consumer.commit()
        return got

    def read_until(self, topic: str, partitions: Sequence[int], last: bytes, *, committed: bool) -> list[Received]:
        got: list[Received] = []
        isolation = "read_committed" if committed else "read_uncommitted"
        with _errors(), self._consumer(auto_offset_reset="earliest", isolation_level=isolation) as consumer:
            consumer.assign([TopicPartition(topic, p) for p in partitions])
            unread = set(partitions)
            deadline = time.monotonic() + 60
            while unread:
                assert time.monotonic() < deadline, f"no {last!r} in partitions {unread} of {topic} for 60 s: {got}"
                for messages in consumer.poll(timeout_ms=20).values():
                    got += [_received(m) for m in messages]
                    unread -= {m.partition for m in messages if m.value == last}
        return got

    def open_transactional(self, name: str, *, timeout_ms: int = 60_000) -> None:
        with _errors():
            producer = KafkaProducer(
                bootstrap_servers=self.bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
            )
            try:
                producer.init_transactions()
            except BaseException:
                producer.close(0)  # its thread would go on
                raise
        self._transactional[name] = producer

    def transact(self, name: str, topic: str, records: Sequence[Record], outcome: str) -> None:
        producer = self._transactional[name]
        with _errors():
            if name not in self._open:
                producer.begin_transaction()
                self._open.add(name)
            sent = [producer.send(topic, r.value, r.key, partition=r.partition) for r in records]
            for future in sent:
                future.get(60)
        if outcome != "open":
            self.finish(name, outcome)

    def finish(self, name: str, outcome: str) -> None:
        self._open.discard(name)
        producer = self._transactional[name]
        with _errors():
            (producer.commit_transaction if outcome == "commit" else producer.abort_transaction)()

    def close_transactional(self, name: str) -> None:
        self._open.discard(name)
        self._transactional.pop(name).close(0)

    def copy_in_transaction(
        self, name: str, group: str, source: str, target: str, count: int, outcome: str
    ) -> list[Received]:
        got: list[Received] = []
        producer = self._transactional[name]
        config = {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        with _errors(), self._consumer(**config) as consumer:
            # On a busy machine the consumer joins before it knows the partitions, gets none, and does not rejoin.
            consumer.partitions_for_topic(source)
            consumer.subscribe([source])
            deadline = time.monotonic() + 60
            while len(got) < count:
                assert time.monotonic() < deadline, f"{len(got)} of {count} records of {source} in 60 s"
                for messages in consumer.poll(timeout_ms=1000, max_records=count - len(got)).values():
                    got += [_received(m) for m in messages]
            producer.begin_transaction()
            for each in got:
                producer.send(target, (each.value or b"").upper(), partition=each.partition)
            ends = {TopicPartition(source, p): OffsetAndMetadata(end, "", -1) for p, end in next_offsets(got).items()}
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            (producer.commit_transaction if outcome == "commit" else producer.abort_transaction)()
        return got

    @contextmanager
    def _consumer(self, **more: Any) -> Iterator[KafkaConsumer]:
        config = {"group_id": None, "enable_auto_commit": False, "auto_offset_reset": "none", **more}
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, max_partition_fetch_bytes=4 << 20, **config)
        try:
            yield consumer
        finally:
            consumer.close()

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        with _errors(), self._consumer() as consumer:
            found = consumer.offsets_for_times({TopicPartition(topic, p): at for p, at in times.items()})
        return {place.partition: None if each is None else each.offset for place, each in found.items()}

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        first = self._list_offsets(topic, partitions, OffsetSpec.EARLIEST)
        last = self._list_offsets(topic, partitions, OffsetSpec.LATEST)
        return {p: (first[p], last[p]) for p in partitions}

    def offsets_of_max_timestamp(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return self._list_offsets(topic, partitions, OffsetSpec.MAX_TIMESTAMP)

    def _list_offsets(self, topic: str, partitions: Sequence[int], spec: OffsetSpec) -> dict[int, int]:
        with _errors():
            found = self._admin.list_partition_offsets({TopicPartition(topic, p): spec for p in partitions})
        return {place.partition: each.offset for place, each in found.items()}

    def cluster(self) -> dict[str, Any]:
        response = self._admin.describe_cluster()
        return {
            "cluster_id": response["cluster_id"],
            "controller": response["controller_id"],
            "nodes": [(each["broker_id"], each["host"], each["port"]) for each in response["brokers"]],
        }

    def topic_names(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions_of(self, topic: str) -> dict[int, Partition]:
        (response,) = self._admin.describe_topics([topic])
        _check(response["error_code"], topic)
        return {
            p["partition_index"]: Partition(p["leader_id"], tuple(p["replica_nodes"]), tuple(p["isr_nodes"]))
            for p in response["partitions"]
        }

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        with _errors():
            self._admin.create_topics({topic: wanted}, validate_only=validate_only)

    def add_partitions(self, topic: str, total: int) -> None:
        with _errors():
            self._admin.create_partitions({topic: total})

    def delete_topic(self, topic: str) -> None:
        with _errors():
            self._admin.delete_topics([topic])

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return self._configs("topic", topic)

    def broker_configs(self, broker: int) -> dict[str, str | None]:
        return self._configs("broker", str(broker))

    def _configs(self, kind: str, name: str) -> dict[str, str | None]:
        with _errors():
            response = self._admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
        return {key: entry["value"] for key, entry in response[kind][name].items()}

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._altered(self._admin.alter_configs([_topic(topic, dict(configs))], raise_on_unknown=False), topic)

    def reset_topic_config(self, topic: str, name: str) -> None:
        self._altered(self._admin.reset_configs([_topic(topic, {name: None})], raise_on_unknown=False), topic)

    @staticmethod
    def _altered(response: dict[str, dict[str, str]], topic: str) -> None:
        status = response["topic"][topic]
        if status != "OK":
            code = re.search(r"\[Error (\d+)\]", status)
            raise ClientError(int(code[1]) if code else -1, status)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        with _errors():
            response = self._admin.delete_records({TopicPartition(topic, p): offset for p, offset in before.items()})
        return {place.partition: each["low_watermark"] for place, each in response.items()}

    def log_dirs(self, topic: str) -> dict[int, int]:
        (broker,) = self._admin.describe_log_dirs([topic])
        return {
            p["partition_index"]: p["partition_size"]
            for directory in broker["log_dirs"]
            for each in directory["topics"]
            if each["name"] == topic
            for p in each["partitions"]
        }

    def producers(self, topic: str, partition: int) -> list[dict[str, int]]:
        with _errors():
            response = self._admin.describe_producers([TopicPartition(topic, partition)])
        return [
            {
                "producer_id": each.producer_id,
                "epoch": each.producer_epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": each.last_timestamp,
            }
            for each in response[TopicPartition(topic, partition)].active_producers
        ]

    def elect_leaders(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        response = self._admin.elect_leaders(0, {topic: list(partitions)}, raise_errors=False)
        return {
            p.partition_id: p.error_code for each in response.replica_election_results for p in each.partition_result
        }


def _topic(name: str, configs: dict[str, Any]) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name, configs)


def _check(code: int, about: str) -> None:
    if code:
        raise ClientError(code, about)


def _received(m: Any) -> Received:
    return Received(m.partition, m.offset, m.timestamp, m.key, m.value, tuple(m.headers))


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except kafka.errors.OffsetOutOfRangeError as error:
        raise ClientError(1, str(error)) from None
    except kafka.errors.BrokerResponseError as error:
        raise ClientError(error.errno, str(error)) from None
