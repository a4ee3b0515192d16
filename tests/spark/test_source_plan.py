"""A batch query from options to rows, planned and read as Spark does it, but without Spark."""

import time

import pytest

import kafkapy
from kafkapy.client import Admin, ClientError, NewTopic, RecordProducer, TransactionalProducer
from kafkapy.client.cluster import Cluster
from kafkapy.client.fetching.batch_fetcher import OffsetOutOfRange
from kafkapy.errors import KafkaError
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.source_options import source_options
from kafkapy.spark.reading import cluster_pool, task
from kafkapy.spark.reading.batch_reader import BatchReader
from kafkapy.spark.reading.data_loss import DataLoss

TIME = int(time.time()) * 1000 - 60_000  # records older than a week may be deleted at any moment


@pytest.fixture
def topic(kafkapy_topic, admin):
    """Create a topic of three partitions: 0 has ten records, a second apart, 1 has five, 2 has none."""
    admin.create_partitions(kafkapy_topic, 3)
    fill(admin, kafkapy_topic, 0, 10)
    fill(admin, kafkapy_topic, 1, 5)
    return kafkapy_topic


def fill(admin, topic, partition, count):
    with RecordProducer(admin.cluster) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=partition, timestamp=TIME + 1000 * number)


def reader(admin, **options):
    host, port = admin.cluster._addresses[0]
    given = {"kafka.bootstrap.servers": f"{host}:{port}", "fetchOffset.retryIntervalMs": "10", **options}
    found = source_options({name: str(value) for name, value in given.items()})
    found.check_batch()
    return BatchReader(found)


def plan(admin, **options):
    return [(one.partition, one.start, one.end) for one in reader(admin, **options).partitions()]


def read(batch_reader, partitions=None):
    """Return (partition, offset) of all rows."""
    found = []
    for one in batch_reader.partitions() if partitions is None else partitions:
        for batch in batch_reader.read(one):
            found += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    return found


def test_by_default_all_records_are_read(admin, topic):
    assert plan(admin, subscribe=topic) == [(0, 0, 10), (1, 0, 5)]
    rows = read(reader(admin, subscribe=topic))
    assert rows == [(0, offset) for offset in range(10)] + [(1, offset) for offset in range(5)]


def test_a_topic_without_records_gives_none(admin, kafkapy_topic):
    assert read(reader(admin, subscribe=kafkapy_topic)) == []


def test_columns_are_the_requested_ones_in_their_order(admin, topic):
    batches = reader(admin, subscribe=topic, columns="offset,value")
    (batch,) = batches.read(batches.partitions()[1])
    assert batch.schema.names == ["offset", "value"]
    assert batch["value"].to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    everything = reader(admin, subscribe=topic, includeHeaders="true")
    (batch,) = everything.read(everything.partitions()[1])
    assert batch["headers"].to_pylist() == [None] * 5


def test_offsets_with_minus_one_and_minus_two(admin, topic):
    start = f'{{"{topic}":{{"0":4,"1":-2,"2":0}}}}'
    end = f'{{"{topic}":{{"0":6,"1":-1,"2":-1}}}}'
    assert plan(admin, subscribe=topic, startingOffsets=start, endingOffsets=end) == [(0, 4, 6), (1, 0, 5)]


def test_offsets_have_to_name_every_partition_and_no_other(admin, topic):
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(BadOption, match=rf"{option} does not name .*-1, .*-2, but has to name every partition"):
            plan(admin, subscribe=topic, **{option: f'{{"{topic}":{{"0":4}}}}'})
        with pytest.raises(BadOption, match=rf"{option} names .*-7, which the query does not read"):
            plan(admin, subscribe=topic, **{option: f'{{"{topic}":{{"0":4,"1":4,"2":0,"7":1}}}}'})


def test_a_time_is_the_first_record_at_or_after_it(admin, topic):
    assert plan(admin, assign=f'{{"{topic}":[0,1]}}', startingTimestamp=TIME + 3000) == [(0, 3, 10), (1, 3, 5)]
    assert plan(admin, assign=f'{{"{topic}":[0,1]}}', startingTimestamp=TIME + 3001) == [(0, 4, 10), (1, 4, 5)]
    assert plan(admin, subscribe=topic, endingTimestamp=TIME + 4000) == [(0, 0, 4), (1, 0, 4)]
    times = f'{{"{topic}":{{"0":{TIME + 9000},"1":{TIME}}}}}'
    assert plan(admin, assign=f'{{"{topic}":[0,1]}}', startingOffsetsByTimestamp=times) == [(0, 9, 10), (1, 0, 5)]
    with pytest.raises(BadOption, match=r"startingOffsetsByTimestamp does not name .*-2"):
        plan(admin, subscribe=topic, startingOffsetsByTimestamp=times)


def test_a_time_that_no_record_reaches(admin, topic):
    late = TIME + 7000  # partition 1 ends before it, partition 2 is empty
    with pytest.raises(BadOption, match=rf"-[12] has no record at or after the time {late} \(ms\)"):
        plan(admin, subscribe=topic, startingTimestamp=late)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert plan(admin, subscribe=topic, startingTimestamp=late, **latest) == [(0, 7, 10)]
    assert plan(admin, subscribe=topic, endingTimestamp=late) == [(0, 0, 7), (1, 0, 5)]


def test_assigned_partitions_and_no_others(admin, topic):
    assert plan(admin, assign=f'{{"{topic}":[1]}}') == [(1, 0, 5)]
    with pytest.raises(KafkaError, match=r"assign names .*-3: there is no such partition"):
        plan(admin, assign=f'{{"{topic}":[1,3]}}')


def test_a_pattern_finds_topics_that_have_it_in_their_names(admin, topic):
    admin.create_topic(f"{topic}-more", 1)
    fill(admin, f"{topic}-more", 0, 2)
    found = reader(admin, subscribePattern=f"{topic}").partitions()
    assert [(one.topic, one.end) for one in found] == [(topic, 10), (topic, 5), (f"{topic}-more", 2)]
    assert len(reader(admin, subscribePattern=f"{topic}$").partitions()) == 2
    assert reader(admin, subscribePattern="no-topic-has-this-name").partitions() == []


def test_committed_records_only(admin, kafkapy_topic):
    with TransactionalProducer(admin.cluster, kafkapy_topic) as producer:
        with producer.transaction():
            producer.send(kafkapy_topic, b"seen")
        producer.begin()
        producer.send(kafkapy_topic, b"aborted")
        producer.flush()
        producer.abort()
        producer.begin()
        producer.send(kafkapy_topic, b"open")
        producer.flush()
        committed = {"subscribe": kafkapy_topic, "kafka.isolation.level": "read_committed"}
        assert plan(admin, **committed) == [(0, 0, 4)]
        assert read(reader(admin, **committed)) == [(0, 0)]
        assert read(reader(admin, subscribe=kafkapy_topic)) == [(0, 0), (0, 2), (0, 4)]
        producer.abort()


def test_more_tasks_read_the_same(admin, topic):
    batches = reader(admin, subscribe=topic, minPartitions=6)
    parts = batches.partitions()
    assert len(parts) == 6
    assert sorted(read(batches, parts)) == sorted(read(reader(admin, subscribe=topic)))
    assert {one.size for one in reader(admin, subscribe=topic, maxRecordsPerPartition=5).partitions()} == {5}


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_beyond_the_end_are_data_loss(admin, topic, option):
    beyond = {"assign": f'{{"{topic}":[0]}}', option: f'{{"{topic}":{{"0":12}}}}'}
    with pytest.raises(DataLoss, match=rf"{option} of {topic}-0 is 12, but the partition ends at 10.*failOnDataLoss"):
        plan(admin, **beyond)
    rest = read(reader(admin, **beyond, failOnDataLoss="false"))
    assert rest == ([] if option == "startingOffsets" else [(0, offset) for offset in range(10)])


def test_a_start_that_retention_has_deleted(admin, topic, caplog):
    start = {"assign": f'{{"{topic}":[0]}}', "startingOffsets": f'{{"{topic}":{{"0":2}}}}'}
    admin.delete_records({(topic, 0): 6})
    with pytest.raises(DataLoss, match=rf"{topic}-0 does not have offsets 2 to 5 any more; it has 6 to 9"):
        read(reader(admin, **start))
    assert read(reader(admin, **start, failOnDataLoss="false")) == [(0, 6), (0, 7), (0, 8), (0, 9)]
    assert "does not have offsets 2 to 5 any more" in caplog.text
    batches = reader(admin, **start, failOnDataLoss="false", endingOffsets=f'{{"{topic}":{{"0":5}}}}')
    assert read(batches) == []


def test_records_deleted_between_plan_and_task(admin, topic):
    batches = reader(admin, assign=f'{{"{topic}":[0]}}', maxRecordsPerPartition=5)
    first, second = batches.partitions()
    admin.delete_records({(topic, 0): 7})
    assert read(batches, [first]) == [], "earliest is where the partition begins when the task runs"
    with pytest.raises(DataLoss, match="does not have offsets 5 to 6 any more"):
        read(batches, [second])


def test_metadata_is_requested_again_while_brokers_disagree(admin, topic, monkeypatch):
    one, *_ = (batches := reader(admin, subscribe=topic, **{"kafkaConsumer.pollTimeoutMs": 200})).partitions()
    asked = []

    def denied(cluster, *where, **how):
        asked.append(where)
        raise OffsetOutOfRange(topic, 0, 0, 0, 10)

    monkeypatch.setattr(task, "read_partition", denied)
    with pytest.raises(OffsetOutOfRange):
        read(batches, [one])
    assert 1 < len(asked) < 10, "not without a pause"


def test_a_topic_created_again_between_plan_and_task(admin, topic):
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":0,"1":0,"2":0}}}}'}
    strict, lenient = reader(admin, **options), reader(admin, **options, failOnDataLoss="false")
    (one, *_), (other, *_) = strict.partitions(), lenient.partitions()
    admin.delete_topics([topic])
    for batches, planned in ((strict, one), (lenient, other)):
        if batches is strict:
            with pytest.raises(DataLoss, match=f"topic '{topic}' is gone"):
                read(strict, [planned])
        else:
            assert read(lenient, [planned]) == []
    admin.create_topic(topic, 3)
    fill(admin, topic, 0, 50)
    with pytest.raises(DataLoss, match=f"topic '{topic}' was deleted and recreated"):
        read(strict, [one])
    assert read(lenient, [other]) == []


def test_the_error_names_a_topic_that_does_not_exist(admin):
    with pytest.raises(KafkaError, match="topic 'no-such-topic'"):
        plan(admin, subscribe="no-such-topic")


def test_the_error_names_an_unreachable_broker_at_once():
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    with pytest.raises(ClientError, match=r"No connection to 127\.0\.0\.1:1: connection refused"):
        BatchReader(source_options({**given, "fetchOffset.retryIntervalMs": "1"})).partitions()


def test_the_error_names_topic_partition_and_offset_of_a_damaged_batch(tmp_path):
    with kafkapy.Broker(tmp_path) as broker, Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("worn", 1)])
        for _ in range(3):
            fill(admin, "worn", 0, 10)
        log = tmp_path / "worn-0" / "00000000000000000000.log"
        third = len(log.read_bytes()) // 3
        with log.open("r+b") as file:
            file.seek(2 * third - 3)
            file.write(b"\xff\xff\xff")
        with pytest.raises(ValueError, match="worn-0 is damaged at offset 10: "):
            read(reader(admin, subscribe="worn"))


def test_connections_are_kept_from_task_to_task(admin, topic):
    batches = reader(admin, subscribe=topic, groupIdPrefix="kept")
    first, second = batches.partitions()
    read(batches, [first])
    (kept,) = [one for key, ones in cluster_pool._idle.items() if "kept-executor" in key for one in ones]
    read(batches, [second])
    assert [one for key, ones in cluster_pool._idle.items() if "kept-executor" in key for one in ones] == [kept]
    unfinished = batches.read(first)
    next(unfinished)
    unfinished.close()
    assert kept.any_connection() is not None
    assert not any(ones for key, ones in cluster_pool._idle.items() if "kept-executor" in key)


def test_not_every_task_requests_metadata_of_topics_with_thousands_of_partitions(admin, kafkapy_topic, monkeypatch):
    monkeypatch.setattr(task, "VALID_S", 10.0)
    admin.create_partitions(kafkapy_topic, 2)
    fill(admin, kafkapy_topic, 0, 3)
    fill(admin, kafkapy_topic, 1, 3)
    batches = reader(admin, subscribe=kafkapy_topic, groupIdPrefix="large")
    asked = []
    refresh = Cluster.refresh
    monkeypatch.setattr(Cluster, "refresh", lambda self, *of, **how: asked.append(of) or refresh(self, *of, **how))
    tasks = batches.partitions()
    del asked[:]
    assert len(read(batches, tasks)) == 6
    assert len(asked) == 1


def test_without_partitions_spark_gets_one_empty_partition(admin, topic):
    from pyspark.sql.datasource import InputPartition

    assert list(reader(admin, subscribe=topic).read(InputPartition(None))) == []
