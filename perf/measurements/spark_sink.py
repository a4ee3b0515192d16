"""Rows written to a topic by Spark: kafkapy's sink compared with Spark's own, at least once, each with default acks."""

from __future__ import annotations

from perf import spark, spark_jobs
from perf.brokers import Kafkapy
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient

TOPIC = "written"


class SparkSink(Measurement):
    name = "spark-sink"
    about = "rows written through Spark (4.0.0) from two tasks to two partitions: kafkapy's sink and Spark's own"
    quick = False  # like spark-read
    rows = tuple(
        row
        for size in spark.SIZES.values()
        for row in (
            Row(f"spark.sink.{size}", f"Spark, sink {size}", "M rows/s", "higher", Goal(2.0), digits=2),
            Row(f"spark.sink.cpu.{size}", f"Spark, sink {size}, CPU", "µs/row", "lower", digits=2),
        )
    )

    def fetch(self) -> None:
        spark.fetch()

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(Kafkapy.kind) as broker, RawClient(broker.port) as client:
            client.create_topic(TOPIC, spark.PARTITIONS)
            at = {"kafka.bootstrap.servers": broker.bootstrap, "topic": TOPIC}
            with spark.driver(bench, kind) as driver:
                for size, key in spark.SIZES.items():
                    count = bench.scale.client // 4 // max(size, 256)
                    given = (spark.source_of(kind), at, size, count)
                    rate, cpu = spark.rate_and_cpu(driver, broker, count, spark_jobs.write, *given)
                    found[f"spark.sink.{key}"] = rate
                    found[f"spark.sink.cpu.{key}"] = cpu
        return found
