"""A year's flights from New York, JSON in a topic, that Spark parses and aggregates by hour and airline: kafkapy's
source compared with Spark's own, each with pyspark 4.0.0, warm."""

from __future__ import annotations

from perf import spark, spark_jobs
from perf.brokers import Kafkapy
from perf.measurement import Bench, Figures, Measurement, Row

TOPIC = "flights"


class SparkFlights(Measurement):
    name = "spark-flights"
    about = "a year's flights (JSON) that Spark (4.0.0) reads, parses and aggregates: kafkapy's source and Spark's own"
    quick = False  # like spark-read
    rows = (
        Row("spark.flights", "Spark, a year's flights aggregated", "M rows/s", "higher", digits=3),
        Row("spark.flights.cpu", "Spark, a year's flights aggregated, CPU", "µs/row", "lower", digits=2),
    )

    def fetch(self) -> None:
        spark.fetch()

    def run(self, bench: Bench, kind: str) -> Figures:
        with bench.broker(Kafkapy.kind) as broker, spark.driver(bench, kind) as driver:
            count = spark.fill_flights(broker.port, TOPIC, bench.scale.client // 1024)
            at = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": TOPIC}
            rate, cpu = spark.rate_and_cpu(driver, broker, count, spark_jobs.flights, spark.source_of(kind), at)
        return {"spark.flights": rate, "spark.flights.cpu": cpu}
