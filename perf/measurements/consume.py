"""Consume throughput of data in the page cache, and the broker's CPU per GiB."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perf import frames, shares
from perf.bare import CHUNK, bare_loop
from perf.brokers import Broker
from perf.cpu import used
from perf.measurement import GIB, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient, Refused

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

SIZE = 1024
BATCH = 64 * 1024  # 16 of them fill a fetch of 1 MiB, with almost nothing left over
TOPIC = "consume"
TOGETHER = 5_000  # messages per call
STALL = 30.0
BACKOFF_MS = 10  # how long librdkafka fetches nothing when its queue has 64 MiB; its default is 1,000


class Consume(Measurement):
    name = "consume"
    kafka_4 = True
    about = "consume throughput and broker CPU, hot, batches of 64 KiB, fetches of 1 MiB"
    rows = (
        Row("consume.1k", "consume 1 KiB, hot, raw client", "MB/s", "higher", Goal(1.0), client="consume.1k.busiest"),
        Row(
            "consume.1k.librdkafka",
            "consume 1 KiB, hot, librdkafka",
            "MB/s",
            "higher",
            Goal(1.0),
            client="consume.1k.librdkafka.busiest",
        ),
        Row(
            "consume.1k.librdkafka.backoff",
            f"the same, fetch.queue.backoff.ms={BACKOFF_MS}",
            "MB/s",
            "higher",
            Goal(1.0),
            client="consume.1k.librdkafka.backoff.busiest",
        ),
        Row("consume.1k.cpu", "broker CPU per GiB consumed", "s", "lower", Goal(0.5), digits=2),
        shares.busiest("consume.1k", "consume 1 KiB, hot, raw client"),
        *shares.rows("consume.1k.librdkafka", "the same with librdkafka"),
        shares.busiest("consume.1k.librdkafka.backoff", f"the same, fetch.queue.backoff.ms={BACKOFF_MS}"),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        values = frames.plain_values(SIZE, frames.records_that_fill(SIZE, BATCH))
        records = frames.batch(values)
        with bench.broker(kind) as broker, RawClient(broker.port) as client:
            client.create_topic(TOPIC)
            count = max(1, 2 * bench.scale.stream // (SIZE * len(values)))
            client.stream(frames.produce(TOPIC, records, 1), count, 5)
            end = client.end_offset(TOPIC)
            fetch = frames.FetchFrame(TOPIC)
            client.fetch_all(fetch, len(records), len(values), end // 4)
            with used(broker.pid) as usage, shares.this_thread() as thread:
                seconds = client.fetch_all(fetch, len(records), len(values), end)
            payload = end * SIZE
            wanted = min(end, bench.scale.client // SIZE)
            by_default = _librdkafka(broker, wanted)
            quicker = _librdkafka(broker, wanted, {"fetch.queue.backoff.ms": BACKOFF_MS})
            return {
                "consume.1k": payload / 1e6 / seconds,
                "consume.1k.cpu": usage.cpu / (payload / GIB),
                "consume.1k.busiest": thread.percent,
                **by_default,
                "consume.1k.librdkafka.backoff": quicker["consume.1k.librdkafka"],
                "consume.1k.librdkafka.backoff.busiest": quicker["consume.1k.librdkafka.busiest"],
            }

    def limit(self, bench: Bench) -> Figures:
        with bench.data() as path:
            file = path / "bare"
            chunks = max(1, 2 * bench.scale.stream // CHUNK)
            with file.open("wb") as output:
                for _ in range(chunks):
                    output.write(bytes(CHUNK))
            with bare_loop("sendfile", file) as (pid, port), RawClient(port) as client:
                began = time.perf_counter()
                with used(pid) as usage:
                    for chunk in range(chunks):
                        client.socket.sendall(struct.pack(">qq", chunk * CHUNK, CHUNK))
                        client.discard(CHUNK)
                seconds = time.perf_counter() - began
        payload = chunks * CHUNK
        return {"consume.1k": payload / 1e6 / seconds, "consume.1k.cpu": usage.cpu / (payload / GIB)}


def _librdkafka(broker: Broker, count: int, settings: Mapping[str, int] | None = None) -> Figures:
    """Consume `count` records from the beginning, without a group; return MB/s, timed from the first record, and the
    shares of client and broker."""
    from confluent_kafka import Consumer, TopicPartition

    given = {"bootstrap.servers": broker.bootstrap, "group.id": "perf", "enable.auto.commit": False}
    consumer = Consumer(given | dict(settings or {}))
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        _some(consumer, 1)
        first = shares.look(os.getpid(), broker.pid)
        began = time.perf_counter()
        read = 1
        while read < count:
            read += len(_some(consumer, min(TOGETHER, count - read)))
        rate = (read - 1) * SIZE / 1e6 / (time.perf_counter() - began)
        used_by = shares.shares("consume.1k.librdkafka", first, shares.look(os.getpid(), broker.pid))
        return used_by | {"consume.1k.librdkafka": rate}
    finally:
        consumer.close()


def _some(consumer: Consumer, count: int) -> list[Message[bytes, bytes]]:
    messages = consumer.consume(count, STALL)
    if len(messages) < count:
        raise Refused(f"librdkafka got {len(messages)} of {count} messages in {STALL:.0f} s")
    for message in (messages[0], messages[-1]):
        if message.error():
            raise Refused(f"librdkafka: {message.error()}")
    return messages
