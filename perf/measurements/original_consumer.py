"""The ConsumerConnector compared with other Python consumers: the same topic, on a kafkapy broker.

In these rows the side `kafka` is the other client, which the label names, not Apache Kafka's broker. Each client runs
in its own process. The time is that of the middle half of its records, so that its prefetched records do not count.
"""

from __future__ import annotations

from perf import frames, jars
from perf.measurement import KAFKA, KAFKAPY, Bench, Figures, Goal, Measurement, Row
from perf.original_clients import CONFLUENT, CONFLUENT_LISTS, KAFKA_PYTHON, LIST, Took, measured
from perf.raw_client import RawClient

SIZE = 1024
BATCH = 64 * 1024
PARTITIONS = 2
TOPIC = "original"
# The label, the goal of kafkapy, and the number by which the count of records is divided for this client.
OTHERS = {
    CONFLUENT: ("confluent-kafka", 0.8, 1),
    CONFLUENT_LISTS: (f"confluent-kafka, {LIST} per call", None, 1),
    KAFKA_PYTHON: ("kafka-python", 2.0, 8),
}


class OriginalConsumer(Measurement):
    name = "original_consumer"
    about = "1 KiB records through the ConsumerConnector, compared with confluent-kafka and kafka-python"
    quick = False  # needs ZooKeeper
    rows = tuple(
        row
        for other, (label, goal, _) in OTHERS.items()
        for row in (
            Row(f"original_consumer.{other}", f"ConsumerConnector, peer: {label}", "k records/s", "higher",
                None if goal is None else Goal(goal)),
            Row(f"original_consumer.{other}.cpu", f"ConsumerConnector, peer: {label}, CPU", "µs/record", "lower",
                digits=2),
        )
    )  # fmt: skip

    def fetch(self) -> None:
        jars.fetch()  # ZooKeeper

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.data() as path:
            connect = bench.fleet.zookeeper(path.name)
            with bench.fleet.running(KAFKAPY, path, {"zookeeper.connect": connect}) as broker:
                count = _fill(broker.port, bench.scale.stream // SIZE)
                if kind == KAFKA:
                    for other, (_, _, part) in OTHERS.items():
                        found |= _figures(other, _measured(other, broker.bootstrap, count // part))
                else:
                    took = _measured(KAFKAPY, connect, count)
                    for other in OTHERS:
                        found |= _figures(other, took)
        return found


def _measured(client: str, address: str, count: int) -> Took:
    """Measure a client with the first `count` records."""
    middle = count // 2
    return measured("consume", client, address, TOPIC, str(middle), str(count // 4), count=middle)


def _fill(port: int, count: int) -> int:
    """Create the topic with about `count` records; return how many."""
    values = frames.plain_values(SIZE, frames.records_that_fill(SIZE, BATCH))
    records = frames.batch(values)
    each = max(2, count // PARTITIONS // len(values))
    with RawClient(port) as client:
        client.create_topic(TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            client.stream(frames.produce(TOPIC, records, 1, partition), each - 1, 5)  # sends one more before the others
    return each * len(values) * PARTITIONS


def _figures(other: str, took: Took) -> Figures:
    return {f"original_consumer.{other}": took.rate / 1e3, f"original_consumer.{other}.cpu": took.cpu * 1e6}
