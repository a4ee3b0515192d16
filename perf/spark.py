"""Functions for the Spark measurements: sessions with Spark's own Kafka source and kafkapy's, topics, rates.

In these rows the side `kafka` is Spark's own source 4.0.0, not Apache Kafka's broker; both sides use a kafkapy broker.
Sessions have local[2] and Spark's defaults. There is one for each side and version, which all measurements share. The
sessions are in processes of their own (perf.spark_driver).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

from perf import flights, frames, spark_driver
from perf.brokers import Broker
from perf.cpu import cpu_seconds
from perf.measurement import KAFKA, Bench
from perf.raw_client import RawClient
from perf.spark_driver import Driver

PARTITIONS = 2
FLIGHTS_AT_ONCE = 400  # records in a batch: about 128 KiB
REPEATS = 1  # of a job, after a first run that does not count
SIZES = {100: "100b", 1024: "1k"}  # of values, in bytes -> in row keys
SOURCES = {KAFKA: "kafka"}  # all other sides use kafkapy's source
OLDEST, NEWEST = "oldest", "newest"  # versions of pyspark; Spark's own source is measured only with the oldest


def fetch() -> None:
    """Download what sessions need into the user's cache."""
    spark_driver.own_source_jars()
    spark_driver.oldest_python()


def source_of(side: str) -> str:
    """Return the name of the source, for `format`."""
    return SOURCES.get(side, "kafkapy")


def driver(bench: Bench, side: str, version: str = OLDEST) -> AbstractContextManager[Driver]:
    """Return a warm driver: pyspark 4.0.0 with both sources, or the newest pyspark with kafkapy's source only."""
    name = f"spark-{side}-{version}"
    return bench.kept(name, lambda: _started(bench.directory / name, version))


@contextmanager
def _started(directory: Path, version: str) -> Iterator[Driver]:
    env = {**spark_driver.environment(), "PYTHONPYCACHEPREFIX": str(directory.parent / "pycache")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # so that modules are compiled once, not in every worker
    if version == NEWEST:
        running = Driver(directory, spark_driver.settings(directory), env=env)
    else:
        settings = spark_driver.settings(directory, spark_jars=spark_driver.own_source_jars())
        running = Driver(directory, settings, spark_driver.oldest_python(), env)
    with running:
        yield running


def cpu(driver: Driver, broker: Broker) -> float:
    """Return the CPU seconds so far of the driver, its JVM, its Python workers and the broker together."""
    return cpu_seconds(driver.child.pid) + cpu_seconds(broker.pid)


def fill(port: int, topic: str, size: int, count: int) -> int:
    """Create a topic of two partitions with about `count` values of `size` bytes, uncompressed; return how many."""
    values = frames.plain_values(size, frames.records_that_fill(size, 128 * 1024))
    records = frames.batch(values)
    each = max(1, count // PARTITIONS // len(values))
    with RawClient(port) as client:
        client.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            client.stream(frames.produce(topic, records, 1, partition), each - 1, 5)  # sends one more before the others
    return each * len(values) * PARTITIONS


def fill_flights(port: int, topic: str, most: int) -> int:
    """Create a topic of two partitions with a year's flights, but at most `most`, as lines of JSON; return how many."""
    lines = [line.encode() for line in islice(flights.lines(), min(most, flights.YEAR))]
    with RawClient(port) as client:
        client.create_topic(topic, PARTITIONS)
        for number, begin in enumerate(range(0, len(lines), FLIGHTS_AT_ONCE)):
            records = frames.batch(lines[begin : begin + FLIGHTS_AT_ONCE])
            client.produce_once(frames.produce(topic, records, 1, number % PARTITIONS))
    return len(lines)


def rate_and_cpu(
    driver: Driver, broker: Broker, count: int, job: Callable[..., list[float]], *given: object
) -> tuple[float, float]:
    """Run a job of perf.spark_jobs that handles `count` rows each time; return M rows/s, and µs of CPU per row."""
    spent = -cpu(driver, broker)
    seconds = driver.call(job, *given, REPEATS)
    spent += cpu(driver, broker)
    return count / median(seconds) / 1e6, spent / (REPEATS + 1) / count * 1e6
