"""The Spark session and the broker that all tests of kafkapy with Spark share."""

import re
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

from perf.spark_driver import Driver, oldest_python, session
from tests.harness import brokers
from tests.harness.spark import own_source_jars, settings
from tests.harness.spark_topics import make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Start the Spark session behind the fixture `spark`, once; it takes about 8 s."""
    running = session(settings(tmp_path_factory.mktemp("spark")))
    yield running
    running.stop()


@pytest.fixture
def spark(spark_session: "SparkSession") -> Iterator["SparkSession"]:
    """Return the session (local[2], time zone UTC); stop streaming queries that a test has left running after it."""
    yield spark_session
    for query in spark_session.streams.active:
        query.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """Start the broker that the tests share, in a process of its own; check that it stops cleanly at the end.

    With KAFKAPY_INTEROP_BROKER=kafka it is Apache Kafka 3.9.1.
    """
    running = brokers.start(tmp_path_factory.mktemp("broker"), brokers.QUICK)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Start a driver under pyspark 4.0.0 with Spark's own Kafka source and kafkapy's."""
    directory = tmp_path_factory.mktemp("oldest")
    with Driver(directory, settings(directory, spark_jars=own_source_jars()), oldest_python()) as running:
        yield running


_numbers = count(1)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """Return a topic name that no other test uses."""
    readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-")[:120]
    return f"{readable}-{next(_numbers)}"


@pytest.fixture
def topic(broker: brokers.Broker, topic_name: str) -> str:
    """Create an empty topic of two partitions."""
    make_topic(broker.bootstrap, topic_name, 2)
    return topic_name
