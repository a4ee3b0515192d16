"""Rows written to a topic by Spark: kafkapy's sink beside Spark's own, at least once, acks as each has it."""

from __future__ import annotations

from statistics import median

from perf import spark, spark_jobs
from perf.brokers import Kafkapy
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient

REPEATS = 3
TOPIC = "written"


class SparkSink(Measurement):
    name = "spark-sink"
    about = "rows written through Spark (4.0.0) from two tasks to two partitions: kafkapy's sink beside Spark's own"
    quick = False  # as spark-read
    rows = tuple(
        Row(f"spark.sink.{size}", f"Spark, sink {size}", "M rows/s", "higher", Goal(2.0), digits=2)
        for size in spark.SIZES.values()
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(Kafkapy.kind) as broker, bench.data() as directory, RawClient(broker.port) as client:
            client.create_topic(TOPIC, spark.PARTITIONS)
            at = {"kafka.bootstrap.servers": broker.bootstrap, "topic": TOPIC}
            with spark.driver(directory / "session") as driver:
                for size, key in spark.SIZES.items():
                    count = bench.scale.client // 4 // max(size, 256)
                    seconds = driver.call(spark_jobs.write, spark.source_of(kind), at, size, count, REPEATS)
                    found[f"spark.sink.{key}"] = count / median(seconds) / 1e6
        return found
