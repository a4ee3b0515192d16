"""The jobs that the drivers of the Spark measurements run (see perf.spark); all return seconds of a warm session."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perf import frames
from perf.raw_client import RawClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(spark: SparkSession, source: str, options: Mapping[str, str], repeats: int) -> list[float]:
    """Read a topic into the noop sink `repeats` times, after a first run that does not count."""
    return [_read(spark, source, options) for _ in range(repeats + 1)][1:]


def _read(spark: SparkSession, source: str, options: Mapping[str, str]) -> float:
    began = time.perf_counter()
    frame = spark.read.format(source).options(**options).load()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def flights(spark: SparkSession, source: str, options: Mapping[str, str], repeats: int) -> list[float]:
    """Parse a topic of flights (perf.flights) and count them by hour and airline, with their mean delays."""
    from pyspark.sql.functions import avg, col, count, from_json, lit

    kind = "time_hour timestamp, carrier string, dep_delay int, arr_delay int"
    found = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        topic = spark.read.format(source).options(**options).load()
        flight = topic.select(from_json(col("value").cast("string"), kind).alias("flight")).select("flight.*")
        hours = flight.groupBy("time_hour", "carrier")
        delays = hours.agg(count(lit(1)), avg("dep_delay"), avg("arr_delay"))
        delays.write.format("noop").mode("overwrite").save()
        found.append(time.perf_counter() - began)
    return found[1:]


def write(
    spark: SparkSession, source: str, options: Mapping[str, str], size: int, count: int, repeats: int
) -> list[float]:
    """Write `count` rows to a topic in two tasks, with keys (numbers as text) and values of `size` bytes."""
    from pyspark.sql.functions import col, lit

    value = bytes(range(256)) * 4
    frame = spark.range(0, count, 1, 2).select(
        col("id").cast("string").cast("binary").alias("key"), lit(value[:size]).alias("value")
    )
    found = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        frame.write.format(source).options(**options).mode("append").save()
        found.append(time.perf_counter() - began)
    return found[1:]


def stream(
    spark: SparkSession, source: str, options: Mapping[str, str], checkpoint: str, count: int, repeats: int
) -> list[float]:
    """Stream a topic of `count` records into noop with Trigger.AvailableNow; return the micro-batches' time."""
    found = []
    for number in range(repeats + 1):
        frame = spark.readStream.format(source).options(**options).load()
        writing = frame.writeStream.format("noop").option("checkpointLocation", f"{checkpoint}/{number}")
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        rows = sum(each["numInputRows"] for each in batches)
        if rows != count:
            raise RuntimeError(f"a query read {rows} rows of {count}")
        found.append(sum(each["durationMs"]["triggerExecution"] for each in batches) / 1000)
    return found[1:]


def latency(
    spark: SparkSession, source: str, options: Mapping[str, str], checkpoint: str, topic: str, rounds: int
) -> tuple[list[float], list[float]]:
    """Produce records one by one for a waiting query. Return the times from the ack of each until its micro-batch has
    ended, and the durations of these micro-batches according to Spark. The first five do not count."""
    frame = spark.readStream.format(source).options(**options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    produce = frames.produce(topic, frames.batch([b"value"]), 1)
    whole, batches = [], []
    batch = -1
    try:
        with RawClient(int(options["kafka.bootstrap.servers"].rpartition(":")[2])) as client:
            for number in range(rounds + 5):
                client.produce_once(produce)
                began = time.perf_counter()
                progress = _wait_for(query, batch)
                batch = progress["batchId"]
                if number >= 5:
                    whole.append(time.perf_counter() - began)
                    batches.append(progress["durationMs"]["triggerExecution"] / 1000)
    finally:
        query.stop()
    return whole, batches


def _wait_for(query: Any, after: int) -> Any:
    """Wait until a micro-batch later than number `after` has read rows; return its progress.

    Only the last progress is looked up: all of them (recentProgress) take up to half a second of the driver's time.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        last = query.lastProgress
        if last is not None and last["numInputRows"] and last["batchId"] > after:
            return last
        time.sleep(0.002)
    raise TimeoutError(f"no micro-batch after {after} within 60 s: {query.status} {query.exception()}")
