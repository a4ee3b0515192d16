"""Batch and streaming reads through Spark: kafkapy's source compared with Spark's own, warm, into the noop sink."""

from __future__ import annotations

from perf import spark, spark_jobs
from perf.brokers import Kafkapy
from perf.measurement import KAFKA, Bench, Figures, Goal, Measurement, Row

VERSIONS = {spark.OLDEST: "pyspark 4.0.0", spark.NEWEST: "kafkapy on the newest"}
HOW = ("read", "stream")


class SparkRead(Measurement):
    name = "spark-read"
    about = "rows read through Spark, as batch and in one large micro-batch: kafkapy's source and Spark's own (4.0.0)"
    quick = False  # Spark sessions take too long to start
    rows = tuple(
        row
        for how in HOW
        for size in spark.SIZES.values()
        for version, label in VERSIONS.items()
        for row in (
            Row(f"spark.{how}.{size}.{version}", f"Spark, {how} {size}, {label}", "M rows/s", "higher", Goal(2.0), 2),
            Row(f"spark.{how}.cpu.{size}.{version}", f"Spark, {how} {size}, {label}, CPU", "µs/row", "lower", None, 2),
        )
    )

    def fetch(self) -> None:
        spark.fetch()

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(Kafkapy.kind) as broker, bench.data() as directory:
            counts = {
                size: spark.fill(broker.port, f"values-{size}", size, bench.scale.client // 8 * 3 // max(size, 256))
                for size in spark.SIZES
            }
            for version in VERSIONS:
                if not any(bench.wants(f"spark.{how}.{key}.{version}") for how in HOW for key in spark.SIZES.values()):
                    continue
                if kind == KAFKA and version == spark.NEWEST:  # some of its parts are not available for later versions
                    found |= {key.replace(spark.OLDEST, version): rate for key, rate in found.items()}
                    continue
                with spark.driver(bench, kind, version) as driver:
                    for size, key in spark.SIZES.items():
                        at = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": f"values-{size}"}
                        source, count = spark.source_of(kind), counts[size]
                        rate, cpu = spark.rate_and_cpu(driver, broker, count, spark_jobs.read, source, at)
                        found[f"spark.read.{key}.{version}"] = rate
                        found[f"spark.read.cpu.{key}.{version}"] = cpu
                        if not bench.wants(f"spark.stream.{key}.{version}"):
                            continue
                        at["startingOffsets"] = "earliest"
                        given = (source, at, str(directory / f"{version}-{size}"), count)
                        rate, cpu = spark.rate_and_cpu(driver, broker, count, spark_jobs.stream, *given)
                        found[f"spark.stream.{key}.{version}"] = rate
                        found[f"spark.stream.cpu.{key}.{version}"] = cpu
        return found
