"""The time of a micro-batch: records come one by one to a streaming query with kafkapy's source or Spark's own."""

from __future__ import annotations

from statistics import median

from perf import spark, spark_jobs
from perf.brokers import Kafkapy
from perf.measurement import KAFKA, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient
from perf.stats import percentile

ROUNDS = 12
TOPIC = "one-by-one"
VERSIONS = {spark.OLDEST: "pyspark 4.0.0", spark.NEWEST: "kafkapy on the newest"}


class SparkStream(Measurement):
    name = "spark-stream"
    about = "from a record in the log to the end of its micro-batch: kafkapy's source and Spark's own (4.0.0)"
    quick = False  # like spark-read
    rows = tuple(
        Row(f"spark.latency.{key}.{version}", f"Spark, {label}, {which}", "ms", "lower", goal)
        for version, which in VERSIONS.items()
        for key, label, goal in (
            ("median", "record to end of micro-batch, median", Goal(1.0)),
            ("p90", "record to end of micro-batch, p90", None),
            ("batch", "duration of the micro-batch, median", Goal(1.0)),
        )
    )

    def fetch(self) -> None:
        spark.fetch()

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(Kafkapy.kind) as broker, bench.data() as directory, RawClient(broker.port) as client:
            at = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
            for version in VERSIONS:
                if kind == KAFKA and version == spark.NEWEST:  # like in spark-read
                    found |= {key.replace(spark.OLDEST, version): figure for key, figure in found.items()}
                    continue
                topic = f"{TOPIC}-{version}"
                client.create_topic(topic, spark.PARTITIONS)
                with spark.driver(bench, kind, version) as driver:
                    whole, batches = driver.call(
                        spark_jobs.latency,
                        spark.source_of(kind),
                        at | {"subscribe": topic},
                        str(directory / f"checkpoint-{version}"),
                        topic,
                        ROUNDS,
                    )
                found[f"spark.latency.median.{version}"] = median(whole) * 1000
                found[f"spark.latency.p90.{version}"] = percentile(sorted(whole), 0.9) * 1000
                found[f"spark.latency.batch.{version}"] = median(batches) * 1000
        return found
