"""aiokafka, on its own event loop in this process."""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka.errors
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.harness.clients.base import (
    EVERYTHING,
    Client,
    ClientError,
    Partition,
    Received,
    Record,
    next_offsets,
)

PATIENCE_S = 90.0
T = TypeVar("T")


class AioKafka(Client):
    name = "aiokafka"
    expressive = EVERYTHING - {"nothing"}

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = asyncio.new_event_loop()
        self._transactional: dict[str, AIOKafkaProducer] = {}
        self._open: set[str] = set()  # names of those in a transaction
        self._run(self._start())

    async def _start(self) -> None:
        self._admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await self._admin.start()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE_S))
        except aiokafka.errors.ProducerFenced as error:
            raise ClientError(90, str(error)) from None
        except aiokafka.errors.OffsetOutOfRangeError as error:
            raise ClientError(1, str(error)) from None
        except aiokafka.errors.BrokerResponseError as error:
            raise ClientError(error.errno, str(error)) from None

    def close(self) -> None:
        self._run(self._admin.close())
        self._loop.close()

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[tuple[int, int]]:
        async def work() -> list[tuple[int, int]]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == -1 else acks,
                enable_idempotence=idempotent,
                linger_ms=5,
                max_request_size=8 << 20,
            )
            await _start(producer)
            try:
                sent = [
                    await producer.send(topic, r.value, r.key, r.partition, r.timestamp, list(r.headers))
                    for r in records
                ]
                placed = [await future for future in sent]
            finally:
                await producer.stop()
            return [(-1, -1) if each is None else (each.partition, each.offset) for each in placed]

        return self._run(work())

    async def _consumer(self, *topics: str, **more: Any) -> AIOKafkaConsumer:
        config = {"group_id": None, "enable_auto_commit": False, "auto_offset_reset": "none", **more}
        consumer = AIOKafkaConsumer(
            *topics, bootstrap_servers=self.bootstrap, max_partition_fetch_bytes=4 << 20, **config
        )
        await _start(consumer)
        return consumer

    def consume(
        self, group: str, topic: str, count: int, patience_s: float, *, by_pattern: bool = False
    ) -> list[Received]:
        async def work() -> list[Received]:
            got: list[Received] = []
            consumer = await self._consumer(group_id=group, auto_offset_reset="earliest")
            try:
                if by_pattern:
                    consumer.subscribe(pattern=f"^{topic}$")
                else:
                    consumer.subscribe([topic])
                deadline = time.monotonic() + patience_s
                while len(got) < count and time.monotonic() < deadline:
                    for messages in (await consumer.getmany(timeout_ms=100, max_records=count - len(got))).values():
                        got += [_received(m) for m in messages]
                if got:
                    await consumer.commit()
            finally:
                await consumer.stop()
            return got

        return self._run(work())

    def read_until(self, topic: str, partitions: Sequence[int], last: bytes, *, committed: bool) -> list[Received]:
        async def work() -> list[Received]:
            got: list[Received] = []
            isolation = "read_committed" if committed else "read_uncommitted"
            consumer = await self._consumer(auto_offset_reset="earliest", isolation_level=isolation)
            try:
                consumer.assign([TopicPartition(topic, p) for p in partitions])
                unread = set(partitions)
                while unread:
                    for messages in (await consumer.getmany(timeout_ms=200)).values():
                        got += [_received(m) for m in messages]
                        unread -= {m.partition for m in messages if m.value == last}
            finally:
                await consumer.stop()
            return got

        return self._run(work())

    def open_transactional(self, name: str, *, timeout_ms: int = 60_000) -> None:
        async def work() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
            )
            await _start(producer)
            self._transactional[name] = producer

        self._run(work())

    def transact(self, name: str, topic: str, records: Sequence[Record], outcome: str) -> None:
        async def work() -> None:
            producer = self._transactional[name]
            if name not in self._open:
                await producer.begin_transaction()
                self._open.add(name)
            sent = [await producer.send(topic, r.value, r.key, r.partition, r.timestamp) for r in records]
            for future in sent:
                await future

        self._run(work())
        if outcome != "open":
            self.finish(name, outcome)

    def finish(self, name: str, outcome: str) -> None:
        self._open.discard(name)
        producer = self._transactional[name]
        self._run(producer.commit_transaction() if outcome == "commit" else producer.abort_transaction())

    def close_transactional(self, name: str) -> None:
        async def work() -> None:
            self._open.discard(name)
            try:
                await self._transactional.pop(name).stop()
            except aiokafka.errors.KafkaError:
                pass  # the producer was fenced

        self._run(work())

    def copy_in_transaction(
        self, name: str, group: str, source: str, target: str, count: int, outcome: str
    ) -> list[Received]:
        async def work() -> list[Received]:
            got: list[Received] = []
            config = {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
            consumer = await self._consumer(source, **config)
            producer = self._transactional[name]
            try:
                while len(got) < count:
                    for messages in (await consumer.getmany(timeout_ms=200, max_records=count - len(got))).values():
                        got += [_received(m) for m in messages]
                await producer.begin_transaction()
                for each in got:
                    await producer.send(target, (each.value or b"").upper(), partition=each.partition)
                ends = {TopicPartition(source, p): end for p, end in next_offsets(got).items()}
                await producer.send_offsets_to_transaction(ends, group)
                await (producer.commit_transaction() if outcome == "commit" else producer.abort_transaction())
            finally:
                await consumer.stop()
            return got

        return self._run(work())

    def fetch(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, list[Received]]:
        async def work() -> dict[int, list[Received]]:
            got: dict[int, list[Received]] = {partition: [] for partition in start}
            consumer = await self._consumer()
            try:
                consumer.assign([TopicPartition(topic, p) for p in start])
                for p, offset in start.items():
                    consumer.seek(TopicPartition(topic, p), offset)
                open_partitions = {p for p in start if start[p] < end[p]}
                deadline = time.monotonic() + 60
                while open_partitions:
                    assert time.monotonic() < deadline, f"partitions {open_partitions} of {topic} were not read in 60 s"
                    for place, messages in (await consumer.getmany(timeout_ms=200)).items():
                        p = place.partition
                        got[p] += [
                            Received(p, m.offset, m.timestamp, m.key, m.value, tuple(m.headers))
                            for m in messages
                            if m.offset < end[p]
                        ]
                        if messages and messages[-1].offset >= end[p] - 1:
                            open_partitions.discard(p)
            finally:
                await consumer.stop()
            return got

        return self._run(work())

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        async def work() -> dict[int, int | None]:
            consumer = await self._consumer()
            try:
                found = await consumer.offsets_for_times({TopicPartition(topic, p): at for p, at in times.items()})
            finally:
                await consumer.stop()
            return {place.partition: None if each is None else each.offset for place, each in found.items()}

        return self._run(work())

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        async def work() -> dict[int, tuple[int, int]]:
            consumer = await self._consumer()
            places = [TopicPartition(topic, p) for p in partitions]
            try:
                first = await consumer.beginning_offsets(places)
                last = await consumer.end_offsets(places)
            finally:
                await consumer.stop()
            return {place.partition: (first[place], last[place]) for place in places}

        return self._run(work())

    def cluster(self) -> dict[str, Any]:
        response = self._run(self._admin.describe_cluster())
        return {
            "cluster_id": response.get("cluster_id"),
            "controller": response["controller_id"],
            "nodes": [(each["node_id"], each["host"], each["port"]) for each in response["brokers"]],
        }

    def topic_names(self) -> set[str]:
        return set(self._run(self._admin.list_topics()))

    def partitions_of(self, topic: str) -> dict[int, Partition]:
        (response,) = self._run(self._admin.describe_topics([topic]))
        _check(response["error_code"], topic)
        return {
            p["partition"]: Partition(p["leader"], tuple(p["replicas"]), tuple(p["isr"]))
            for p in response["partitions"]
        }

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        response = self._run(self._admin.create_topics([new], validate_only=validate_only))
        _check(response.topic_errors[0][1], str(response.topic_errors[0]))

    def add_partitions(self, topic: str, total: int) -> None:
        self._run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def delete_topic(self, topic: str) -> None:
        response = self._run(self._admin.delete_topics([topic]))
        _check(response.topic_error_codes[0][1], topic)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return self._configs(ConfigResource(ConfigResourceType.TOPIC, topic))

    def broker_configs(self, broker: int) -> dict[str, str | None]:
        return self._configs(ConfigResource(ConfigResourceType.BROKER, str(broker)))

    def _configs(self, resource: ConfigResource) -> dict[str, str | None]:
        (response,) = self._run(self._admin.describe_configs([resource]))
        (code, message, _, _, entries, *_) = response.resources[0]
        _check(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        (response,) = self._run(
            self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])
        )
        _check(response.resources[0][0], response.resources[0][1])

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        wanted = {TopicPartition(topic, p): RecordsToDelete(offset) for p, offset in before.items()}
        return {place.partition: low for place, low in self._run(self._admin.delete_records(wanted)).items()}


async def _start(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Start the client. Stop it if that fails, so that no task is left."""
    try:
        await client.start()
    except BaseException:
        await client.stop()
        raise


def _check(code: int, about: str | None) -> None:
    if code:
        raise ClientError(code, about or "")


def _received(m: Any) -> Received:
    return Received(m.partition, m.offset, m.timestamp, m.key, m.value, tuple(m.headers))
