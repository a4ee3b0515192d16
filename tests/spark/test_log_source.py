"""The source `kafkapy-log` in Spark: found by its name, on files of Apache Kafka, of a running broker, and on damaged
or missing files."""

import shutil
from pathlib import Path

import pytest

from kafkapy.arrow.segments import read_segments
from kafkapy.record.batch import build
from tests.harness.spark_topics import Record, make_topic, produce

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def load(spark, *paths, **options):
    paths = [str(path) for path in paths]
    reader = spark.read.format("kafkapy-log").options(**options)
    return reader.load(paths[0] if len(paths) == 1 else paths)


def places_of(frame):
    """Return (topic, partition, offset, value) of all rows, in order."""
    rows = frame.select("topic", "partition", "offset", "value").collect()
    return sorted((row.topic, row.partition, row.offset, bytes(row.value or b"")) for row in rows)


def wanted(path, **options):
    table = read_segments([path], columns=["topic", "partition", "offset", "value"], **options).read_all()
    return sorted((*list(row.values())[:3], row["value"] or b"") for row in table.to_pylist())


@pytest.mark.parametrize(
    ("folder", "size"), [("kafka-3.9.1-v2", "16k"), ("kafka-3.9.1-v0-v1", "16k"), ("kafka-0.7.2", "1k")]
)
def test_a_log_directory_of_a_real_broker_is_a_data_frame(spark, folder, size):
    data = GOLDEN / folder / "data"
    found = load(spark, data, maxPartitionBytes=size)
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert found.rdd.getNumPartitions() > 2
    assert places_of(found) == wanted(data)


def test_columns_headers_isolation_and_several_paths_are_as_requested(spark):
    data = GOLDEN / "kafka-3.9.1-v2" / "data"
    none, txn = data / "v2-none-0", data / "v2-txn-0"
    both = load(spark, none, txn, columns="topic,partition,offset,value", **{"kafka.isolation.level": "read_committed"})
    assert both.columns == ["topic", "partition", "offset", "value"]
    assert places_of(both) == sorted(wanted(none) + wanted(txn, committed=True))
    headers = [row.headers for row in load(spark, none, includeHeaders="true").collect()]
    assert sum(len(each or ()) for each in headers) > 0


def test_the_files_of_a_running_broker_hold_the_records_that_it_serves(spark, broker, topic_name):
    make_topic(broker.bootstrap, topic_name, 2)
    produce(broker.bootstrap, topic_name, [Record(b"%d" % each, b"%d" % each, each % 2) for each in range(500)])
    served = (
        spark.read.format("kafkapy").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic_name)
    ).load()
    stored = load(spark, broker.data, subscribe=topic_name, maxPartitionBytes="1k")
    assert served.count() == 500
    assert places_of(stored) == places_of(served)
    assert stored.exceptAll(served).count() == 0
    later = load(spark, broker.data / topic_name, startingOffsets=f'{{"{topic_name}":{{"0":200,"1":-2}}}}')
    assert later.count() == 300


def test_damage_and_files_that_are_gone_reach_the_user_as_sentences(spark, tmp_path):
    partition = tmp_path / "orders-0"
    partition.mkdir()
    batches = [build([(0, None, b"value", ())], base_offset=offset) for offset in range(10)]
    segment = partition / f"{0:020d}.log"
    segment.write_bytes(b"".join(batches[:5]) + batches[5][:-1] + b"?" + b"".join(batches[6:]))
    damaged = load(spark, partition)
    with pytest.raises(Exception, match=r"0\.log is damaged at offset 5 of orders-0: the batch at position \d+ .*CRC"):
        damaged.collect()
    assert load(spark, partition, ignoreCorruptFiles="true").count() == 5
    shutil.rmtree(partition)
    with pytest.raises(Exception, match=r"0\.log \(orders-0\) could not be read on .*: No such file or directory"):
        damaged.collect()
    with pytest.raises(Exception, match="does not exist, nor are there partitions of a topic") as caught:
        load(spark, partition).collect()
    assert "places.py" not in str(caught.value), "the way through our modules says nothing to a user"


def test_a_stream_is_refused(spark, tmp_path):
    stream = spark.readStream.format("kafkapy-log").load(str(GOLDEN)).writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="kafkapy-log supports batch queries only: for a stream, read a broker"):
        query.awaitTermination(120)
