"""Quotas: their cost while they are not reached, the rate of clients that want more, and the effect on others.

The cost is that of quotas which are set and removed again in one running broker, in turns. Apache Kafka goes on
counting after the last quota was removed, so it is measured without quotas first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

from kafkapy.client.administration.quota_admin import Entity, QuotaAdmin
from perf import frames
from perf.brokers import Broker
from perf.closed_loop import closed_loop
from perf.cpu import used
from perf.greedy_producer import CLIENT_ID, VALUE, greedy_producer
from perf.measurement import KAFKAPY, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient
from perf.stats import percentile

CONNECTIONS = 16
SIZE = 100
ROUNDS = 7
UNREACHED = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12}
EVERYBODY: Entity = {"user": None}

QUOTA = 2_000_000  # bytes a second
# The rate that clients want. A client that takes as much as it can get bursts again and again. By Kafka's arithmetic,
# and with Kafka's brokers, its mean from BURST to SECONDS is then up to 1.16 times the quota, however long it runs.
WANTED = 2.5 * QUOTA
SECONDS = 60.0
BURST = 22.0  # a new client may burst for a whole set of windows, and pays it back in the next

RATE = 200.0  # requests a second of the producer beside a greedy one
BESIDE = 20.0  # seconds


class Quotas(Measurement):
    name = "quotas"
    about = (
        "quotas that are set and not reached, clients at their quotas for a minute, and a producer beside a greedy one"
    )
    quick = False
    rows = (
        Row("quotas.produce.off", "broker CPU per 100,000 one-record requests, no quotas", "s", "lower", digits=2),
        Row("quotas.produce.times", "the same with quotas on bytes", "×", "lower", Goal(1.02, None), digits=3),
        Row("quotas.produce.time", "the same with quotas on bytes and time", "×", "lower", digits=3),
        Row("quotas.fetch.off", "broker CPU per 100,000 fetches of a record, no quotas", "s", "lower", digits=2),
        Row("quotas.fetch.times", "the same with quotas on bytes", "×", "lower", Goal(1.02, None), digits=3),
        Row("quotas.fetch.time", "the same with quotas on bytes and time", "×", "lower", digits=3),
        Row("quotas.producer", "producer at its quota, librdkafka", "× quota", "higher", digits=3),
        Row("quotas.consumer", "consumer at its quota, librdkafka", "× quota", "higher", digits=3),
        Row("quotas.beside.alone", "p99 of a producer alone", "ms", "lower", digits=2),
        Row("quotas.beside", "the same beside one that wants ten times its quota", "×", "lower", Goal(1.2, None), 2),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        with bench.broker(kind) as broker, QuotaAdmin(broker.bootstrap) as admin:
            found = _cost(bench, broker, admin, in_turns=kind == KAFKAPY)
        with bench.broker(kind) as broker, QuotaAdmin(broker.bootstrap) as admin:
            found |= _at_quota(broker, admin, bench.scale.paced_seconds / 8)
        with bench.broker(kind) as broker, QuotaAdmin(broker.bootstrap) as admin:
            return found | _beside(broker, admin, bench.scale.paced_seconds / 8)


def _cost(bench: Bench, broker: Broker, admin: QuotaAdmin, *, in_turns: bool) -> Figures:
    variants = {"off": {}, "times": UNREACHED, "time": {**UNREACHED, "request_percentage": 1e9}}
    requests = max(CONNECTIONS, bench.scale.requests // 4)
    record = frames.batch(frames.plain_values(SIZE, 1))
    with ExitStack() as ending:
        clients = [ending.enter_context(RawClient(broker.port)) for _ in range(CONNECTIONS)]
        clients[0].create_topic("small")
        produce = [frames.produce("small", record, 1)] * CONNECTIONS
        closed_loop(clients, produce, requests)
        fetch = frames.FetchFrame("small", len(record))
        fetches = [bytes(fetch.at(0))] * CONNECTIONS
        replies = [fetch.head + len(record)] * CONNECTIONS
        closed_loop(clients, fetches, requests, replies)
        cpu: dict[str, list[float]] = {}
        order = list(variants) * ROUNDS if in_turns else [name for name in variants for _ in range(ROUNDS)]
        for name in order:
            with _quotas(admin, EVERYBODY, variants[name]):
                for what, sent, expected in (("produce", produce, ()), ("fetch", fetches, replies)):
                    closed_loop(clients, sent, CONNECTIONS * 4, expected)
                    with used(broker.pid) as usage:
                        closed_loop(clients, sent, requests, expected)
                    cpu.setdefault(f"quotas.{what}.{name}", []).append(usage.cpu * 100_000 / requests)
    found = {key: median(figures) for key, figures in cpu.items()}
    return {
        key: value if key.endswith(".off") else value / (found[f"{key.rpartition('.')[0]}.off"] or 1.0)
        for key, value in found.items()
    }


@contextmanager
def _quotas(admin: QuotaAdmin, entity: Entity, quotas: dict[str, float]) -> Iterator[None]:
    if quotas:
        admin.alter(entity, quotas)
    time.sleep(0.2)  # Apache Kafka applies a change a moment later
    try:
        yield
    finally:
        if quotas:
            admin.alter(entity, dict.fromkeys(quotas))


def _at_quota(broker: Broker, admin: QuotaAdmin, scale: float = 1.0) -> Figures:
    from confluent_kafka import Consumer, Producer, TopicPartition

    with RawClient(broker.port) as client:
        client.create_topic("limited")
    admin.alter({"client-id": "limited"}, {"producer_byte_rate": QUOTA, "consumer_byte_rate": QUOTA})
    time.sleep(0.5)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "limited", "linger.ms": 5, "batch.size": 100_000,
         "queue.buffering.max.kbytes": 16_384}
    )  # fmt: skip
    value = frames.plain_values(VALUE, 1)[0]
    acked = 0

    def count(error: object, _: object) -> None:
        nonlocal acked
        acked += error is None

    def send() -> int:
        try:
            producer.produce("limited", value, on_delivery=count)
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
        return acked

    found = {"quotas.producer": _rate(send, scale) * VALUE / QUOTA}
    producer.purge()
    producer.flush(30)
    # By default librdkafka fetches nothing for a second when its queue is full, so that the queue would be the limit.
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "limited", "group.id": "any", "enable.auto.commit": False,
         "queued.max.messages.kbytes": 1024, "fetch.queue.backoff.ms": 5, "fetch.message.max.bytes": 100_000}
    )  # fmt: skip
    consumer.assign([TopicPartition("limited", 0, 0)])
    received = 0

    def receive() -> int:
        nonlocal received
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            received += 1
        return received

    found["quotas.consumer"] = _rate(receive, scale) * VALUE / QUOTA
    consumer.close()
    return found


def _rate(step: Callable[[], int], scale: float) -> float:
    """Call `step` WANTED / VALUE times per second for SECONDS. Return by how much its result has grown per second after
    BURST. Both times are multiplied by `scale`."""
    began = due = time.perf_counter()
    first: tuple[float, int] | None = None
    while True:
        number, now = step(), time.perf_counter()
        if first is None and now - began >= BURST * scale:
            first = now, number
        if first is not None and now - began >= SECONDS * scale:
            return (number - first[1]) / (now - first[0])
        due = max(due + VALUE / WANTED, now - 0.1)
        time.sleep(max(0.0, due - now))


def _beside(broker: Broker, admin: QuotaAdmin, scale: float = 1.0) -> Figures:
    """Measure the p99 of a producer at a fixed rate, alone and beside a librdkafka producer that wants ten times the
    quota that it has."""
    frame = frames.produce("beside", frames.batch(frames.plain_values(SIZE, 1)), 1)
    with RawClient(broker.port) as client:
        for topic in ("beside", "greedy"):
            client.create_topic(topic)
        client.paced(frame, RATE, 3.0 * scale)
        with used(broker.pid):
            alone, _ = client.paced(frame, RATE, BESIDE * scale)
        admin.alter({"client-id": CLIENT_ID}, {"producer_byte_rate": QUOTA})
        time.sleep(0.5)
        with greedy_producer(broker.bootstrap, "greedy", 10 * QUOTA, broker.data / "greedy-producer.out"):
            time.sleep(15 * scale)
            with used(broker.pid):
                beside, _ = client.paced(frame, RATE, BESIDE * scale)
    before = percentile(sorted(alone), 0.99)
    return {"quotas.beside.alone": before * 1e3, "quotas.beside": percentile(sorted(beside), 0.99) / before}
