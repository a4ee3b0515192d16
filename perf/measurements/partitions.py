"""A broker with more and more partitions: the cost of an idle one, and of all at a start, a stop and a request."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafkapy.protocol.apis import METADATA
from perf import frames
from perf.brokers import Broker
from perf.cpu import cpu_seconds, used
from perf.curves import slope
from perf.many import ask_all, open_files, own_memory, wait_for
from perf.measurement import KAFKA, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import METADATA_VERSION, RawClient

MOST_A_TOPIC = 1000
KAFKA_MOST = 1000  # most partitions of Apache Kafka: more take minutes
ASKED = 5
STOP_TIMEOUT_S = 150.0
KIB, MIB = 1 << 10, 1 << 20

CREATE = ("partitions.create", "creating a partition, broker CPU", "ms", "partitions")
PRODUCE = ("partitions.produce", "produce of one record, spread over all, broker CPU", "us", "partitions")
METADATA_OF_ALL = ("partitions.metadata", "metadata of all topics", "ms", "partitions")
STOP = ("partitions.stop", "clean stop, all written to", "s", "partitions")
STOP_IDLE = ("partitions.stop_idle", "clean stop, none written to", "s", "partitions")
START = ("partitions.start", "clean start until every partition has a leader", "s", "partitions")
START_CPU = ("partitions.start_cpu", "clean start, broker CPU", "s", "partitions")
MEMORY = ("partitions.memory", "anonymous memory, idle", "MiB", "partitions")
FILES = ("partitions.files", "open files after a clean start", "", "partitions")


class Partitions(Measurement):
    name = "partitions"
    quick = False  # the many sizes take too long
    about = "1 to 10,000 partitions: idle memory, clean start and stop, creation, produce to all, metadata of all"
    rows = (
        Row("partitions.memory", "memory of an idle partition", "KiB", "lower", Goal(8, None), digits=1),
        Row("partitions.start", "clean start with all partitions", "s", "lower", Goal(2, None), digits=2),
        Row("partitions.start_cpu", "clean start with all partitions, CPU", "s", "lower", digits=2),
        Row("partitions.stop", "clean stop, all written to", "s", "lower", digits=2),
        Row("partitions.stop_idle", "clean stop, none written to", "s", "lower", digits=2),
        Row("partitions.create", "creating a partition, CPU", "ms", "lower", digits=2),
        Row("partitions.produce", "produce spread over all partitions, CPU per request", "us", "lower", digits=1),
        Row("partitions.metadata", "metadata of all partitions", "ms", "lower", digits=1),
        Row("partitions.files", "open files after a clean start", "files", "lower"),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        memory: dict[int, float] = {}
        found: Figures = {}
        sizes = bench.scale.sizes(min(bench.scale.most, KAFKA_MOST) if kind == KAFKA else None)
        grows = bench.wants("partitions.memory")
        if not grows:  # the smaller sizes are only for curves, and for the difference between sizes
            sizes = [size for size in sizes if size == bench.scale.most]
        for size in sizes:
            with bench.data() as data:
                found = {}
                with bench.fleet.running(kind, data) as broker:
                    found |= _made(broker, size)
                    found["partitions.stop"] = _stop(broker)
                with bench.fleet.running(kind, data) as broker:
                    found["partitions.start"], found["partitions.start_cpu"] = until_led(
                        broker, [*_topics(size), "first"]
                    )
                    memory[size] = own_memory(broker.pid)
                    found["partitions.files"] = open_files(broker.pid)
                    found["partitions.stop_idle"] = _stop(broker)
            if grows:
                for curve in (CREATE, PRODUCE, METADATA_OF_ALL, STOP, STOP_IDLE, START, START_CPU, FILES):
                    bench.point(curve, kind, size, found[curve[0]])
                bench.point(MEMORY, kind, size, memory[size] / MIB)
        if not grows:
            return found
        each = {"partitions.memory": slope(memory.items()) / KIB}
        return found | each if sizes[-1] == bench.scale.most else each  # smaller sizes are only in the curves


def _topics(size: int) -> dict[str, int]:
    """Return topic -> number of partitions, for `size` partitions in all."""
    return {f"many-{at}": min(MOST_A_TOPIC, size - at) for at in range(0, size, MOST_A_TOPIC)}


def _made(broker: Broker, size: int) -> Figures:
    records = frames.batch(frames.plain_values(100, 1))
    found: Figures = {}
    with RawClient(broker.port) as client:
        client.create_topic("first")
        client.produce_once(frames.produce("first", records, 1), retry=True)
        with used(broker.pid) as usage:
            for topic, count in _topics(size).items():
                client.create_topic(topic, count)
        found["partitions.create"] = usage.cpu / size * 1e3
        every = [
            frames.produce(topic, records, 1, index) for topic, count in _topics(size).items() for index in range(count)
        ]
        for _ in ask_all(client, every):  # the first append to each opens its file
            pass
        rounds = max(1, 2000 // size)
        with used(broker.pid) as usage:
            for _ in range(rounds):
                for _ in ask_all(client, every):
                    pass
        found["partitions.produce"] = usage.cpu / (rounds * size) * 1e6
        asked = METADATA.Request(topics=None, allow_auto_topic_creation=False)
        took = []
        for _ in range(ASKED):
            began = time.perf_counter()
            client.ask(METADATA, METADATA_VERSION, asked)
            took.append(time.perf_counter() - began)
        found["partitions.metadata"] = sorted(took)[ASKED // 2] * 1e3
    return found


def until_led(broker: Broker, topics: Iterable[str]) -> tuple[float, float]:
    """Wait until every partition of the topics has a leader. Return the seconds since the start of the process, and its
    CPU time.
    """
    with RawClient(broker.port) as client:
        for topic in topics:
            wait_for(lambda topic=topic: client.without_leader(topic) == 0, f"{topic} has no leader", 0.1)
    return time.perf_counter() - broker.began, cpu_seconds(broker.pid)


def _stop(broker: Broker) -> float:
    began = time.perf_counter()
    broker.child.stop(STOP_TIMEOUT_S)
    return time.perf_counter() - began
