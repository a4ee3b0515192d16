"""What the Spark measurements have in common: sessions with Spark's own Kafka source beside ours, topics, rates.

The side `kafka` of a row is here Spark's own source 4.0.0, not Apache Kafka's broker: both sides have ours. Sessions
have local[2] and Spark's defaults, are kept from measurement to measurement, one a side and version, and come from the
tests' harness, which keeps pyspark 4.0.0 and the jars in the user's cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from unittest.mock import patch

from perf import frames
from perf.brokers import Broker
from perf.cpu import cpu_seconds
from perf.measurement import KAFKA, Bench
from perf.raw_client import RawClient
from tests.harness import spark as harness

PARTITIONS = 2
REPEATS = 1  # of a job, after one time that does not count
SIZES = {100: "100b", 1024: "1k"}  # of values, in bytes -> in row keys
SOURCES = {KAFKA: "kafka"}  # the others are ours
OLDEST, NEWEST = "oldest", "newest"  # versions of pyspark; of Spark's own source there is only the first


def fetch() -> None:
    """What sessions need, into the user's cache."""
    harness.own_source_jars()
    harness.oldest_python()


def source_of(side: str) -> str:
    """What `format` is given."""
    return SOURCES.get(side, "kafkapy")


def driver(bench: Bench, side: str, version: str = OLDEST) -> AbstractContextManager[harness.Driver]:
    """A warm driver under pyspark 4.0.0 with Spark's own source and ours, or under the newest one with ours alone."""
    name = f"spark-{side}-{version}"
    return bench.kept(name, lambda: _started(bench.directory / name, version))


@contextmanager
def _started(directory: Path, version: str) -> Iterator[harness.Driver]:
    if version == NEWEST:
        settings, python = harness.settings(directory, spark_driver_memory="2g"), None
    else:
        jars = harness.own_source_jars()
        settings = harness.settings(directory, spark_driver_memory="2g", spark_jars=jars)
        python = harness.oldest_python()
    settings["spark.driver.extraJavaOptions"] = f"-Djava.io.tmpdir={directory}"  # the JVM's own collector and compilers
    with patch.dict(os.environ, PYTHONPYCACHEPREFIX=str(directory.parent / "pycache")):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled once, not in every worker
        running = harness.Driver(directory, settings, python)
    with running:
        yield running


def cpu(driver: harness.Driver, broker: Broker) -> float:
    """Processor seconds so far of all that takes part: the driver, its JVM, its Python workers, the broker."""
    return cpu_seconds(driver.child.pid) + cpu_seconds(broker.pid)


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


def rate_and_cpu(
    driver: harness.Driver, broker: Broker, count: int, job: Callable[..., list[float]], *given: object
) -> tuple[float, float]:
    """Of a job of perf.spark_jobs that handles `count` rows each time: M rows/s, and µs of all processors a row."""
    spent = -cpu(driver, broker)
    seconds = driver.call(job, *given, REPEATS)
    spent += cpu(driver, broker)
    return count / median(seconds) / 1e6, spent / (REPEATS + 1) / count * 1e6
