"""Topics are loaded into Parquet through Spark, by the function and by the command, and read by Spark."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from kafkapy.client import RecordProducer
from kafkapy.spark.load import JsonValues, LoadError, Settings, load
from tests.harness.brokers import Broker
from tests.harness.spark import SHORT_LIVED
from tests.harness.spark_topics import make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 30_000
COLUMNS = "n BIGINT, day DATE"


@pytest.fixture
def topic(broker: Broker, topic_name: str) -> str:
    """Create a topic of two partitions with RECORDS records; one of 1,000 is not JSON."""
    make_topic(broker.bootstrap, topic_name, 2)
    with RecordProducer(broker.bootstrap) as producer:
        for n in range(RECORDS):
            value = json.dumps({"n": n, "day": "2024-02-29"}).encode() if n % 1000 else b"no"
            producer.send(topic_name, value, b"%d" % n, partition=n % 2)
    return topic_name


def test_spark_loads_a_topic_and_reads_the_files(
    spark: "SparkSession", broker: Broker, topic: str, tmp_path: Path
) -> None:
    settings = Settings(broker.bootstrap, values=JsonValues(COLUMNS), batch_rows=RECORDS // 2)
    done = load([topic], tmp_path / "landed", settings, spark=spark, compact_files=2)
    assert (done.rows, done.rejected, done.batches) == (RECORDS - 30, 30, 2)
    assert load([topic], tmp_path / "landed", settings, spark=spark).rows == 0
    rows = spark.read.parquet(str(tmp_path / "landed"))
    assert {"topic", "date", "n", "day", "key", "offset"} <= set(rows.columns)
    found = rows.selectExpr("count(*)", "count(DISTINCT partition, offset)", "sum(n)", "min(topic)", "max(day)").first()
    assert found is not None
    expected = sum(n for n in range(RECORDS) if n % 1000)
    assert (*found[:4], str(found[4])) == (RECORDS - 30, RECORDS - 30, expected, topic, "2024-02-29")


def test_a_workers_error_is_reported_in_one_sentence(
    spark: "SparkSession", broker: Broker, topic: str, tmp_path: Path
) -> None:
    settings = replace(Settings(broker.bootstrap, values=JsonValues(COLUMNS)), strict=True)
    with pytest.raises(LoadError) as caught:
        load([topic], tmp_path / "landed", settings, spark=spark)
    assert "partition 0 offset 0 does not fit the schema: it is not JSON" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.other_runtime
def test_the_command_resumes_after_a_kill(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The command is killed when the first batch has landed; the next run loads the rest."""
    directory = tmp_path / "landed"
    call = [sys.executable, "-m", "kafkapy", "spark", "load", topic, "--to", str(directory), "-b", broker.bootstrap]
    call += ["--master", "local[2]", "--batch-rows", "10000", "--conf", "spark.driver.memory=1g", "--json", COLUMNS]
    call += ["--conf", f"spark.driver.extraJavaOptions={SHORT_LIVED}"]
    with (tmp_path / "first.log").open("w") as log:
        first = subprocess.Popen([*call, "--follow"], stdout=log, stderr=log, env={**os.environ, "LC_ALL": "C.UTF-8"})
        while not list(directory.rglob("*.parquet")):
            assert first.poll() is None, (tmp_path / "first.log").read_text()
            try:
                first.wait(0.05)
            except subprocess.TimeoutExpired:
                pass
        first.kill()
        first.wait(30)
    call += ["--summary", str(tmp_path / "summary")]
    second = subprocess.run(call, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    summary = json.loads((tmp_path / "summary").read_text())
    assert 0 <= summary["rows"] < RECORDS
    assert [one["lag"] for one in summary["partitions"]] == [0, 0]
    rows = ds.dataset(directory, partitioning="hive").to_table(["partition", "offset", "n"]).to_pylist()
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) == RECORDS - 30
    assert sorted(row["n"] for row in rows) == [n for n in range(RECORDS) if n % 1000]
