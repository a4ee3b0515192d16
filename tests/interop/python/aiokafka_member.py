"""A group member with aiokafka, on its own event loop."""

import asyncio
from typing import Any

import aiokafka.errors
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from host import Member

ASSIGNORS = {each.name: each for each in (RangePartitionAssignor, RoundRobinPartitionAssignor)}


class AioKafka(Member, kind="aiokafka"):
    def live(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        wanted = self.wanted
        self.busy = asyncio.Lock()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=wanted["group"],
            group_instance_id=wanted["instance"],
            partition_assignment_strategy=[ASSIGNORS[wanted["assignor"]]],
            session_timeout_ms=wanted["session_ms"],
            max_poll_interval_ms=wanted["rebalance_ms"],
            rebalance_timeout_ms=wanted["rebalance_ms"],
            heartbeat_interval_ms=200,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        consumer.subscribe([self.topic], listener=Listener(self, consumer))
        await consumer.start()
        try:
            while not self.leaving.is_set():
                while not self.moving.is_set():
                    await asyncio.sleep(0.02)  # the client's heartbeats need the loop
                messages = await consumer.getmany(timeout_ms=100)
                async with self.busy:  # a rebalance waits until the messages are committed
                    await self._take(consumer, messages)
        finally:
            await consumer.stop()

    async def _take(self, consumer: Any, messages: dict[Any, list[Any]]) -> None:
        ends = self.taken((place.partition, m.offset) for place, some in messages.items() for m in some)
        if not ends:
            return
        generation = self.generation
        try:
            await consumer.commit({TopicPartition(self.topic, p): end for p, end in ends.items()})
        except aiokafka.errors.KafkaError as failure:
            self.refused(generation, failure)
        else:
            self.saved(generation)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: AioKafka, consumer: Any) -> None:
        self._member = member
        self._consumer = consumer

    async def on_partitions_assigned(self, assigned: Any) -> None:
        coordinator = self._consumer._coordinator  # only here aiokafka shows the generation
        self._member.assigned(coordinator.generation, coordinator.member_id, (each.partition for each in assigned))

    async def on_partitions_revoked(self, revoked: Any) -> None:
        async with self._member.busy:
            self._member.gone("revoked", (each.partition for each in revoked))
