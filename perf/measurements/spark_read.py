"""Batch and streaming reads through Spark: kafkapy's source beside Spark's own, warm, into a sink that does nothing."""

from __future__ import annotations

from statistics import median

from perf import spark, spark_jobs
from perf.brokers import Kafkapy
from perf.measurement import KAFKA, Bench, Figures, Goal, Measurement, Row

REPEATS = 3
NEWEST = "newest"


class SparkRead(Measurement):
    name = "spark-read"
    about = "rows read through Spark, batch and in one large micro-batch: kafkapy's source beside Spark's own (4.0.0)"
    quick = False  # sessions of Spark take longer to start than --quick may last
    rows = tuple(
        Row(f"spark.{how}.{size}.{version}", f"Spark, {how} {size}, {label}", "M rows/s", "higher", Goal(2.0), digits=2)
        for how in ("read", "stream")
        for size in spark.SIZES.values()
        for version, label in (("oldest", "pyspark 4.0.0"), (NEWEST, "ours on the newest"))
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(Kafkapy.kind) as broker, bench.data() as directory:
            counts = {
                size: spark.fill(broker.port, f"values-{size}", size, bench.scale.client // max(size, 256))
                for size in spark.SIZES
            }
            for version in ("oldest", NEWEST):
                if kind == KAFKA and version == NEWEST:  # of later versions not all parts of it can be had
                    found |= {key.replace("oldest", NEWEST): rate for key, rate in found.items()}
                    continue
                with spark.driver(directory / version, newest=version == NEWEST) as driver:
                    for size, key in spark.SIZES.items():
                        at = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": f"values-{size}"}
                        source = spark.source_of(kind)
                        seconds = driver.call(spark_jobs.read, source, at, REPEATS)
                        found[f"spark.read.{key}.{version}"] = counts[size] / median(seconds) / 1e6
                        at["startingOffsets"] = "earliest"
                        checkpoint = str(directory / f"{version}-{size}")
                        batches = driver.call(spark_jobs.stream, source, at, checkpoint, REPEATS)
                        rates = [spark.rate(count, seconds, counts[size]) for count, seconds in batches]
                        found[f"spark.stream.{key}.{version}"] = median(rates) / 1e6
        return found
