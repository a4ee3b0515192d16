"""The source `kafkapy` in Spark: found by its name, in batches and in streams that are stopped and resumed."""

import json
import time

import pytest

from kafkapy.client import Admin, RecordProducer
from kafkapy.errors import Errors, KafkaError


@pytest.fixture
def admin(broker):
    with Admin(broker.bootstrap) as admin:
        yield admin


def fill(admin, topic, first, last):
    """Produce numbers as values, with keys that spread over the partitions, and timestamps that end in the number."""
    second = int(time.time()) * 1000  # records older than a week may be deleted at any moment
    with RecordProducer(admin.cluster) as producer:
        for number in range(first, last):
            producer.send(
                topic,
                b"%d" % number,
                key=b"k%d" % number,
                headers=(("n", b"%d" % number),),
                timestamp=second + number,
            )


def make_again(admin, topic):
    """Delete a topic and create it again. Apache Kafka deletes it only a while after the response."""
    admin.delete_topics([topic])
    deadline = time.monotonic() + 60
    while True:
        try:
            return admin.create_topic(topic, 2)
        except KafkaError as error:
            if error.code != Errors.TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                raise


def frame(reader, broker, topic, **options):
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    return reader.format("kafkapy").options(**given).load()


def landed(spark, path):
    """Return the numbers in a directory of Parquet files, in order."""
    return sorted(int(row.value) for row in spark.read.parquet(path).selectExpr("CAST(value AS STRING)").collect())


def test_a_topic_is_a_data_frame(spark, broker, admin, topic):
    fill(admin, topic, 0, 100)
    found = frame(spark.read, broker, topic, includeHeaders="true")
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    rows = found.collect()
    assert sorted(int(row.value) for row in rows) == list(range(100))
    for row in rows:
        number = int(row.value)
        assert bytes(row.key) == b"k%d" % number
        assert (row.topic, row.timestampType) == (topic, 0)
        assert row.timestamp.microsecond == number * 1000
        assert [(header.key, bytes(header.value)) for header in row.headers] == [("n", b"%d" % number)]
    split = frame(spark.read, broker, topic, maxRecordsPerPartition="10", columns="offset,partition")
    tasks = split.selectExpr("spark_partition_id() AS task", "partition", "offset").collect()
    assert len({row.task for row in tasks}) >= 10
    assert sorted((row.partition, row.offset) for row in tasks) == sorted((row.partition, row.offset) for row in rows)


def test_a_record_without_headers_has_null_so_that_its_first_header_can_be_selected(spark, broker, admin, topic):
    with RecordProducer(admin.cluster) as producer:
        producer.send(topic, b"with", headers=(("h", b"x"),))
        producer.send(topic, b"without")
    found = frame(spark.read, broker, topic, includeHeaders="true")
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"  # in which headers[0] of an empty list fails
    rows = found.selectExpr("CAST(value AS STRING)", "headers[0].key", "headers IS NULL").collect()
    assert sorted(map(tuple, rows)) == [("with", "h", False), ("without", None, True)]


def test_a_wrong_option_reaches_the_user_as_a_sentence(spark, broker, topic):
    with pytest.raises(Exception, match="no option 'startingofset'; did you mean 'startingOffsets'") as caught:
        frame(spark.read, broker, topic, startingOfset="latest")
    assert "source_options.py" not in str(caught.value), "the way through our modules says nothing to a user"
    with pytest.raises(Exception, match="startingOffsets is 'latest': a batch query would read nothing"):
        frame(spark.read, broker, topic, startingOffsets="latest").count()
    with pytest.raises(Exception, match=r"leave out \.schema"):
        frame(spark.read.schema("value STRING"), broker, topic).count()
    with pytest.raises(Exception, match="topic 'not-there'"):
        frame(spark.read, broker, "not-there", **{"fetchOffset.numRetries": "1"}).count()


def test_a_stream_resumes_from_its_checkpoint(spark, broker, admin, topic, tmp_path):
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run(**options):
        stream = frame(spark.readStream, broker, topic, startingOffsets="earliest", **options)
        writer = stream.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    fill(admin, topic, 0, 40)
    assert sum(run()) == 40
    admin.create_partitions(topic, 3)
    fill(admin, topic, 40, 70)
    assert len(run(maxOffsetsPerTrigger="10")) >= 3
    assert landed(spark, out) == list(range(70))
    assert run() == []


def test_a_first_batch_that_fails_loses_nothing(spark, broker, admin, topic, tmp_path):
    fill(admin, topic, 0, 10)
    found = []

    def start(work):
        stream = frame(spark.readStream, broker, topic, startingOffsets="latest")
        writer = stream.writeStream.foreachBatch(work).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    def fail(batch, number):
        raise RuntimeError("the first batch fails")

    with pytest.raises(Exception, match="the first batch fails"):
        start(fail).awaitTermination()
    fill(admin, topic, 10, 15)
    start(lambda batch, number: found.extend(int(row.value) for row in batch.collect())).awaitTermination()
    assert sorted(found) == list(range(10, 15))


def test_a_running_stream_reads_new_records(spark, broker, admin, topic):
    stream = frame(spark.readStream, broker, topic, startingOffsets="earliest", columns="value")
    query = stream.writeStream.format("memory").queryName("coming").start()
    for count in (5, 20):
        fill(admin, topic, count - 5, count)
        query.processAllAvailable()
    assert spark.table("coming").count() == 10
    (source,) = query.lastProgress.sources
    assert sum(json.loads(source.endOffset)["offsets"][topic].values()) == 10
    query.stop()


def test_a_stream_fails_when_its_topic_was_created_again(spark, broker, admin, topic, tmp_path):
    fill(admin, topic, 0, 5)

    def run(**options):
        stream = frame(spark.readStream, broker, topic, startingOffsets="earliest", **options)
        out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
        writer = stream.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        return landed(spark, out)

    assert run() == list(range(5))
    make_again(admin, topic)
    fill(admin, topic, 100, 110)
    with pytest.raises(Exception, match=f"topic '{topic}' was deleted and recreated"):
        run()
    assert run(failOnDataLoss="false") == [*range(5), *range(100, 110)]
