"""Produce throughput with an unmodified librdkafka, which builds batches while the broker works."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from perf import frames, shares
from perf.brokers import Broker
from perf.cpu import used
from perf.measurement import GIB, Bench, Figures, Goal, Measurement, Row
from perf.measurements.produce import ACKS, SIZES
from perf.raw_client import RawClient, Refused

if TYPE_CHECKING:
    from confluent_kafka import Producer

TOGETHER = 5_000  # messages per call from Python to C
QUEUED = 90_000  # below queue.buffering.max.messages, which is 100,000


class Librdkafka(Measurement):
    name = "librdkafka"
    kafka_4 = True
    about = "produce throughput with librdkafka, linger.ms=5, otherwise default settings"
    rows = (
        *(
            Row(
                f"librdkafka.{key}.acks{acks}",
                f"produce {label}, acks={acks}, librdkafka",
                "MB/s",
                "higher",
                Goal(ratio),
                client=f"librdkafka.{key}.acks{acks}.busiest",
            )
            for key, label, ratio in SIZES.values()
            for acks in ACKS.values()
        ),
        *(
            Row(
                f"librdkafka.{key}.cpu", f"broker CPU per GiB produced, {label}, librdkafka", "s", "lower", Goal(0.4), 2
            )
            for key, label, _ in SIZES.values()
        ),
        *(
            row
            for key, label, _ in SIZES.values()
            for acks in ACKS.values()
            for row in shares.rows(f"librdkafka.{key}.acks{acks}", f"{label}, acks={acks}, librdkafka")
        ),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(kind) as broker:
            for size, (key, _, _) in SIZES.items():
                for acks, word in ACKS.items():
                    rate, cpu, used_by = _measure(bench, broker, f"librdkafka.{key}.acks{word}", size, acks)
                    found |= used_by
                    found[f"librdkafka.{key}.acks{word}"] = rate
                    if acks == 1:
                        found[f"librdkafka.{key}.cpu"] = cpu
        return found


def _measure(bench: Bench, broker: Broker, topic: str, size: int, acks: int) -> tuple[float, float, Figures]:
    """Return MB/s, the broker's CPU seconds per GiB, and the shares of client and broker, whose rows begin with the
    name of the topic. The producer is closed before the broker stops."""
    from confluent_kafka import Producer

    with RawClient(broker.port) as client:
        client.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "acks": acks})
    _send(producer, broker, topic, size, bench.scale.warm // 2)
    first = shares.look(os.getpid(), broker.pid)
    with used(broker.pid) as usage:
        sent = _send(producer, broker, topic, size, bench.scale.client // 2)
    used_by = shares.shares(topic, first, shares.look(os.getpid(), broker.pid))
    return sent / 1e6 / usage.wall, usage.cpu / (sent / GIB), used_by


def _send(producer: Producer, broker: Broker, topic: str, size: int, payload: int) -> int:
    """Produce about `payload` bytes of values and wait until all are acknowledged; return the bytes sent."""
    with RawClient(broker.port) as client:
        before = client.end_offset(topic)
        messages: list[dict[str, Any]] = [{"value": value} for value in frames.plain_values(size, TOGETHER)]
        calls = max(1, payload // (size * TOGETHER))
        for _ in range(calls):
            while len(producer) > QUEUED - TOGETHER:
                producer.poll(0.001)
            taken = producer.produce_batch(topic, messages, partition=0)
            if taken != TOGETHER:
                raise Refused(f"librdkafka took {taken} of {TOGETHER} messages")
        producer.flush()
        expected = before + calls * TOGETHER
        if client.end_offset(topic) != expected:
            raise Refused(
                f"{topic} ends at {client.end_offset(topic)}, not at {expected}: some messages were not delivered"
            )
    return calls * TOGETHER * size
