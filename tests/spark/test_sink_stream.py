"""A stream written to a topic through Spark, read back by librdkafka."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkapy.client import Consumer
from tests.harness.brokers import Broker
from tests.harness.spark_topics import consume

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS = 40  # of each file


def put(directory: Path, first: int) -> None:
    """Write a file with the next numbers, one on each line."""
    directory.mkdir(exist_ok=True)
    lines = "".join(f"{number}\n" for number in range(first, first + ROWS))
    (directory.parent / "new").write_text(lines)
    (directory.parent / "new").rename(directory / f"{first}.txt")


def lines_of(spark: "SparkSession", directory: Path, *, files: int = 1) -> "DataFrame":
    return spark.readStream.format("text").option("maxFilesPerTrigger", files).load(str(directory)).repartition(3)


def run(rows: "DataFrame", broker: Broker, topic: str, checkpoint: Path, **options: str) -> None:
    """Run the stream until all available rows are written."""
    writer: DataStreamWriter = rows.writeStream.format("kafkapy").option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in {"topic": topic, "checkpointLocation": str(checkpoint), **options}.items():
        writer = writer.option(name, value)
    writer.trigger(availableNow=True).start().awaitTermination()


def numbers(broker: Broker, topic: str) -> Counter[int]:
    return Counter(int(one.value or b"") for one in consume(broker.bootstrap, topic))


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_stream_resumes_from_its_checkpoint(
    spark: "SparkSession", broker: Broker, topic: str, tmp_path: Path, delivery: str
) -> None:
    for part in range(2):
        put(tmp_path / "in", part * ROWS)
        run(lines_of(spark, tmp_path / "in"), broker, topic, tmp_path / "checkpoint", delivery=delivery)
        assert numbers(broker, topic) == Counter(range((part + 1) * ROWS))


def test_an_epoch_that_spark_runs_again_is_not_written_again(
    spark: "SparkSession", broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The case of a driver that died when the epoch was done but not yet in Spark's commit log."""
    put(tmp_path / "in", 0)
    for _ in range(2):
        run(lines_of(spark, tmp_path / "in"), broker, topic, tmp_path / "checkpoint", delivery="exactly-once")
        for each in (tmp_path / "checkpoint" / "commits").iterdir():
            each.unlink()
    put(tmp_path / "in", ROWS)
    run(lines_of(spark, tmp_path / "in"), broker, topic, tmp_path / "checkpoint", delivery="exactly-once")
    assert numbers(broker, topic) == Counter(range(2 * ROWS))


def test_a_query_leaves_one_decision(spark: "SparkSession", broker: Broker, topic: str, tmp_path: Path) -> None:
    for part in range(3):
        put(tmp_path / "in", part * ROWS)
    decisions = f"{topic}-decisions"
    rows = lines_of(spark, tmp_path / "in")
    run(rows, broker, topic, tmp_path / "checkpoint", delivery="exactly-once", decisionTopic=decisions)
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    with Consumer(broker.bootstrap, isolation="read_committed") as consumer:
        consumer.assign_topic(decisions)
        last = {record.key: record.value for record in consumer.records()}
    assert {key: value for key, value in last.items() if value is not None} == {
        f"{query}/2".encode(): b'{"version": 1, "state": "done", "transactions": []}'
    }


def test_complete_mode_writes_the_whole_result_each_time(
    spark: "SparkSession", broker: Broker, topic: str, tmp_path: Path
) -> None:
    put(tmp_path / "in", 0)
    put(tmp_path / "in", ROWS)
    counted = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(tmp_path / "in")).groupBy()
    writer = counted.count().selectExpr("cast(count as string) as value").writeStream.outputMode("complete")
    writer = writer.format("kafkapy").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option("delivery", "exactly-once")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert numbers(broker, topic) == Counter([ROWS, 2 * ROWS])


def test_wrong_rows_and_options_end_the_query_with_a_sentence(
    spark: "SparkSession", broker: Broker, topic: str, tmp_path: Path
) -> None:
    put(tmp_path / "in", 0)
    with pytest.raises(Exception, match="the sink kafkapy has no option 'deliveries'; did you mean 'delivery'"):
        run(lines_of(spark, tmp_path / "in"), broker, topic, tmp_path / "checkpoint", deliveries="exactly-once")
