"""Spark drivers for the measurements: kafkapy's source beside Spark's own, on one broker (ours), in like sessions.

The side `kafka` of a row is here Spark's own source 4.0.0, not Apache Kafka's broker. Sessions have local[2] and come
from the tests' harness, which keeps pyspark 4.0.0 and the jars in the user's cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perf import frames
from perf.machine import ROOT
from perf.measurement import KAFKA
from perf.raw_client import RawClient

sys.path.insert(0, str(ROOT / "tests"))

from harness import spark as harness

PARTITIONS = 2
SIZES = {100: "100b", 1024: "1k"}  # of values, in bytes -> in row keys
SOURCES = {KAFKA: "kafka"}  # the others are ours


def source_of(side: str) -> str:
    """What `format` is given."""
    return SOURCES.get(side, "kafkapy")


@contextmanager
def driver(directory: Path, *, newest: bool = False) -> Iterator[harness.Driver]:
    """A driver under pyspark 4.0.0 with Spark's own source and ours, or under the newest one with ours alone."""
    more = {"spark_driver_memory": "3g", "spark_sql_execution_arrow_maxRecordsPerBatch": "50000"}
    if newest:
        settings, python = harness.settings(directory, **more), None
    else:
        settings = harness.settings(directory, spark_jars=harness.own_source_jars(), **more)
        python = harness.oldest_python()
    settings["spark.driver.extraJavaOptions"] = f"-Djava.io.tmpdir={directory}"  # the JVM's own collector
    with harness.Driver(directory, settings, python) as running:
        yield running


def fill(port: int, topic: str, size: int, count: int) -> int:
    """Makes a topic of two partitions with about `count` values of `size` bytes, uncompressed; returns how many."""
    values = frames.plain_values(size, frames.records_that_fill(size, 128 * 1024))
    records = frames.batch(values)
    each = max(1, count // PARTITIONS // len(values))
    with RawClient(port) as client:
        client.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            client.stream(frames.produce(topic, records, 1, partition), each - 1, 5)  # which sends one before it counts
    return each * len(values) * PARTITIONS


def rate(count: int, seconds: float, expected: int) -> float:
    """Rows a second; raises when a query has read another number of rows than there are."""
    if count != expected:
        raise RuntimeError(f"a query read {count} rows of {expected}")
    return count / seconds
