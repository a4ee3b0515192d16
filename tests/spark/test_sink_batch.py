"""A batch written to topics through Spark, read back by librdkafka."""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from kafkapy.client import Cluster, Consumer, TransactionAdmin
from tests.harness.brokers import Broker, free_port
from tests.harness.spark_topics import Record, consume, make_topic, produce
from tests.harness.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELIVERIES = ("at-least-once", "exactly-once")


def write(rows: "DataFrame", broker: Broker, **options: str) -> None:
    """Write the rows with the sink. `options` have __ for dots."""
    writer = rows.write.format("kafkapy").mode("append").option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def failure_of(rows: "DataFrame", broker: Broker, **options: str) -> str:
    with pytest.raises(PySparkException) as failure:
        write(rows, broker, **options)
    return str(failure.value)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_all_columns_arrive(spark: "SparkSession", broker: Broker, topic_name: str, delivery: str) -> None:
    make_topic(broker.bootstrap, topic_name, 3)
    rows = spark.sql(
        f"""
        select * from values
          ('k', 'v', 0, array(named_struct('key', 'h', 'value', binary('1'))), '{topic_name}'),
          (null, 'no key', 1, array(), '{topic_name}'),
          ('deleted', null, 2, null, '{topic_name}')
        as (key, value, partition, headers, topic)
        """
    )
    write(rows, broker, delivery=delivery, kafka__compression__type="zstd")
    found = [(one.partition, one.key, one.value, list(one.headers)) for one in consume(broker.bootstrap, topic_name)]
    assert found == [
        (0, b"k", b"v", [("h", b"1")]),
        (1, None, b"no key", []),
        (2, b"deleted", None, []),
    ]


def test_a_timestamp_becomes_the_time_of_the_record(spark: "SparkSession", broker: Broker, topic_name: str) -> None:
    make_topic(broker.bootstrap, topic_name, 1)
    write(spark.sql("select 'x' as value, timestamp_millis(1893456000123) as timestamp"), broker, topic=topic_name)
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign_topic(topic_name)
        assert [record.timestamp for record in consumer.records(until=consumer.end_offsets())] == [1893456000123]


def test_keys_go_to_the_same_partitions_as_with_other_producers(
    spark: "SparkSession", broker: Broker, topic_name: str
) -> None:
    names = [topic_name, f"{topic_name}-other"]
    for name in names:
        make_topic(broker.bootstrap, name, 5)
    keys = [f"key {number}" for number in range(200)]
    write(spark.createDataFrame([(key, key) for key in keys], "key string, value string"), broker, topic=names[0])
    produce(broker.bootstrap, names[1], [Record(key.encode(), None, -1) for key in keys], partitioner="murmur2_random")
    ours, theirs = ({(one.key, one.partition) for one in consume(broker.bootstrap, name)} for name in names)
    assert ours == theirs


def test_the_option_topic_wins_over_the_column(spark: "SparkSession", broker: Broker, topic_name: str) -> None:
    make_topic(broker.bootstrap, topic_name)
    write(spark.sql("select 'nowhere' as topic, 'v' as value"), broker, topic=topic_name)
    assert [one.value for one in consume(broker.bootstrap, topic_name)] == [b"v"]


def test_many_tasks_of_few_processes_are_one_transaction(
    spark: "SparkSession", broker: Broker, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 2)
    rows = spark.range(0, 1000, 1, 8).selectExpr("cast(id as string) as value")
    write(rows, broker, topic=topic_name, delivery="exactly-once")
    assert Counter(one.value for one in consume(broker.bootstrap, topic_name)) == Counter(
        b"%d" % number for number in range(1000)
    )


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_writing_no_rows_raises_no_error(spark: "SparkSession", broker: Broker, topic_name: str, delivery: str) -> None:
    make_topic(broker.bootstrap, topic_name)
    write(spark.range(0).selectExpr("cast(id as string) as value"), broker, topic=topic_name, delivery=delivery)
    assert consume(broker.bootstrap, topic_name) == []


def test_a_failed_job_leaves_no_records(spark: "SparkSession", broker: Broker, topic_name: str) -> None:
    make_topic(broker.bootstrap, topic_name)
    rows = spark.range(0, 100, 1, 2).selectExpr(
        "case when id < 99 then cast(id as string) else raise_error('the last row') end as value"
    )
    assert "the last row" in failure_of(rows, broker, topic=topic_name, delivery="exactly-once")
    assert consume(broker.bootstrap, topic_name) == []
    with Cluster(broker.bootstrap) as cluster:
        admin = TransactionAdmin(cluster)
        # When one task fails, Spark kills the other one without waiting for its end.
        eventually(lambda: not admin.list_transactions(states=["Ongoing"]), what="a transaction is left open")


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("'v' as value", {"delivery": "always"}, "delivery is 'always': write at-least-once or exactly-once"),
        ("'v' as value", {}, "the rows have no column 'topic', and no topic is given for all of them"),
        ("'v' as valeu", {"topic": "t"}, "a record has no column 'valeu'"),
        ("1 as value", {"topic": "t"}, "column 'value' has the type int32; it has to be binary or string"),
        ("'v' as value", {"topic": "no/topic"}, "no/topic"),
        ("'v' as value, null as topic", {}, "row 0 has no topic"),
        ("'v' as value, 7 as partition", {"topic": "TOPIC"}, "is for partition 7, but the topic"),
    ],
)
def test_wrong_options_and_rows_are_reported(
    spark: "SparkSession",
    broker: Broker,
    topic_name: str,
    columns: str,
    options: dict[str, str],
    sentence: str,
) -> None:
    make_topic(broker.bootstrap, topic_name)
    given = {name: topic_name if value == "TOPIC" else value for name, value in options.items()}
    text = failure_of(spark.sql(f"select {columns}"), broker, **given)
    assert sentence in re.sub(r"\s+", " ", text)


def test_overwriting_is_refused(spark: "SparkSession", broker: Broker) -> None:
    writer: Any = spark.sql("select 'v' as value").write.format("kafkapy").mode("overwrite")
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "t").save()


def test_the_error_names_a_broker_that_cannot_be_reached(spark: "SparkSession", topic_name: str) -> None:
    closed_port = f"127.0.0.1:{free_port()}"
    writer = spark.sql("select 'v' as value").write.format("kafkapy").mode("append")
    writer = writer.option("kafka.bootstrap.servers", closed_port).option("kafka.max.block.ms", "300")
    for delivery in DELIVERIES:
        with pytest.raises(Exception, match=f"No connection to {closed_port}"):
            writer.option("topic", topic_name).option("delivery", delivery).save()
