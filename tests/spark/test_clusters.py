"""The sources and the sink with Spark in several processes: a cluster in one process tree, a standalone master with two
workers, and Spark Connect.

Connect's server runs on the standalone cluster; only long runs (KAFKAPY_FAULT_ROUNDS is set) also use a driver of
their own on that cluster.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.spark_driver import Driver
from tests.harness import brokers, spark_jobs
from tests.harness.spark import settings
from tests.harness.spark_cluster import ConnectServer, StandaloneCluster
from tests.harness.spark_topics import Record, consume, make_topic, produce

# Many JVMs start, which takes long on a busy machine.
pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(600)]

KINDS = ["local-cluster", "connect", *(["standalone"] if "KAFKAPY_FAULT_ROUNDS" in os.environ else [])]
EXECUTORS = 2
ON_TWO = {
    "spark_executor_memory": "1g",
    "spark_executor_cores": "1",
    "spark_cores_max": str(EXECUTORS),
    "spark_scheduler_minRegisteredResourcesRatio": "1.0",
    "spark_scheduler_maxRegisteredResourcesWaitingTime": "60s",
}
NUMBERS = range(40)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """Start a standalone master with two workers."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="module", params=KINDS)
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Start a driver on each kind of cluster."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "local-cluster":
        with Driver(directory, settings(directory, "local-cluster[2,1,1024]", **ON_TWO)) as running:
            yield running
        return
    on_cluster = settings(directory, request.getfixturevalue("cluster").url, **ON_TWO)
    if request.param == "standalone":
        with Driver(directory, on_cluster) as running:
            yield running
    else:
        with (
            ConnectServer(directory, on_cluster) as server,
            Driver(directory, {"spark.remote": server.url, "spark.sql.session.timeZone": "UTC"}) as running,
        ):
            yield running


@pytest.fixture
def topic(broker: brokers.Broker, topic_name: str) -> str:
    """Create a topic of four partitions with the same numbers as keys and values."""
    make_topic(broker.bootstrap, topic_name, 4)
    produce(broker.bootstrap, topic_name, [Record(b"%d" % each, b"%d" % each, each % 4) for each in NUMBERS])
    return topic_name


def test_a_batch_is_read_by_several_processes(driver: Driver, broker: brokers.Broker, topic: str) -> None:
    at = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    rows, processes = driver.call(spark_jobs.read_where, "kafkapy", at)
    assert Counter(rows) == Counter(b"%d" % each for each in NUMBERS)
    assert processes == EXECUTORS


def test_a_stream_is_written_exactly_once_and_resumes(
    driver: Driver, broker: brokers.Broker, topic: str, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, f"{topic}-copy", 2)
    at = {"kafka.bootstrap.servers": broker.bootstrap}
    source = {**at, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    sink = {**at, "topic": f"{topic}-copy", "checkpointLocation": str(tmp_path), "delivery": "exactly-once"}
    driver.call(spark_jobs.copy_stream, "kafkapy", source, "kafkapy", sink)
    produce(broker.bootstrap, topic, [Record(b"late", b"late", 3)])
    driver.call(spark_jobs.copy_stream, "kafkapy", source, "kafkapy", sink)
    expected = [*(b"%d" % each for each in NUMBERS), b"late"]
    assert Counter(each.value for each in consume(broker.bootstrap, f"{topic}-copy")) == Counter(expected)


def test_segment_files_are_read_where_the_tasks_are(driver: Driver, broker: brokers.Broker, topic: str) -> None:
    rows, _ = driver.call(spark_jobs.read_where, "kafkapy-log", {"path": str(broker.data), "subscribe": topic})
    assert Counter(rows) == Counter(b"%d" % each for each in NUMBERS)
