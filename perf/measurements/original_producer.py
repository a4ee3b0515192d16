"""The original Producer, async, compared with kafka-python's: record by record, with keys, on a kafkapy broker.

In these rows the side `kafka` is kafka-python, not Apache Kafka's broker. Each client runs in its own process.
"""

from __future__ import annotations

from perf.measurement import KAFKA, KAFKAPY, Bench, Figures, Goal, Measurement, Row
from perf.original_clients import KAFKA_PYTHON, measured
from perf.raw_client import RawClient

SIZES = {100: "100b", 1024: "1k"}
PARTITIONS = 3
LEAST = 256  # a record counts as at least this many bytes: the cost of small ones is not in their bytes


class OriginalProducer(Measurement):
    name = "original_producer"
    about = "the original Producer compared with kafka-python's, record by record, with keys, acks=1"
    quick = False  # kafka-python takes too long
    rows = tuple(
        row
        for size, key in SIZES.items()
        for row in (
            Row(f"original_producer.{key}", f"Producer, {size} B, peer: kafka-python", "k records/s", "higher",
                Goal(2.0)),
            Row(f"original_producer.{key}.cpu", f"Producer, {size} B, peer: kafka-python, CPU", "µs/record",
                "lower", digits=2),
        )
    )  # fmt: skip

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        client, part = (KAFKA_PYTHON, 8) if kind == KAFKA else (KAFKAPY, 1)
        with bench.broker(KAFKAPY) as broker:
            for size, key in SIZES.items():
                count = max(100, bench.scale.client // 4 // max(size, LEAST) // part)
                with RawClient(broker.port) as raw:
                    raw.create_topic(key, PARTITIONS)
                took = measured("produce", client, broker.bootstrap, key, str(count), str(size), count=count)
                found[f"original_producer.{key}"] = took.rate / 1e3
                found[f"original_producer.{key}.cpu"] = took.cpu * 1e6
        return found
