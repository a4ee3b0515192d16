"""How fast Spark reads segment files with `kafkapy-log`, compared with Spark's own source, which reads from a broker.

The same data, two partitions, local[2], warm, into the noop sink. The side `kafka` is Spark's own source 4.0.0 with a
kafkapy broker.
"""

from __future__ import annotations

from perf import spark, spark_jobs
from perf.measurement import KAFKA, KAFKAPY, Bench, Figures, Goal, Measurement, Row


class SparkLog(Measurement):
    name = "spark-log"
    about = "segment files into Spark (4.0.0) without a broker, compared with Spark's own source and a broker"
    quick = False  # like spark-read
    rows = tuple(
        row
        for size in spark.SIZES.values()
        for row in (
            Row(f"spark.log.{size}", f"Spark, kafkapy-log {size}", "M rows/s", "higher", Goal(2.0), digits=2),
            Row(f"spark.log.cpu.{size}", f"Spark, kafkapy-log {size}, CPU", "µs/row", "lower", digits=2),
        )
    )

    def fetch(self) -> None:
        spark.fetch()

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(KAFKAPY) as broker, spark.driver(bench, kind) as driver:
            for size, key in spark.SIZES.items():
                topic = f"values-{size}"
                count = spark.fill(broker.port, topic, size, bench.scale.client // 8 * 3 // max(size, 256))
                if kind == KAFKA:
                    source = "kafka"
                    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
                else:
                    source, options = "kafkapy-log", {"path": str(broker.log_directory), "subscribe": topic}
                rate, cpu = spark.rate_and_cpu(driver, broker, count, spark_jobs.read, source, options)
                found[f"spark.log.{key}"] = rate
                found[f"spark.log.cpu.{key}"] = cpu
        return found
