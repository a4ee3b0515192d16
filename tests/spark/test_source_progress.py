"""The progress of a streaming query: positions, new partitions, deleted records, limits. Planned as Spark does it, but
without Spark: each step is one micro-batch, and offsets go through JSON as through a checkpoint."""

import json
from dataclasses import replace

import pytest

import kafkapy
from kafkapy.client import Admin, RecordProducer
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.source_options import source_options
from kafkapy.spark.reading.data_loss import DataLoss
from kafkapy.spark.reading.limited_stream import LimitedStreamReader
from kafkapy.spark.reading.plain_stream import PlainStreamReader


def fill(admin, topic, count, partition=0):
    with RecordProducer(admin.cluster) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=partition)


class Query:
    """A streaming query with its checkpoint: `start` is the last committed offset, None while there is none."""

    def __init__(self, admin, start=None, **options):
        host, port = admin.cluster._addresses[0]
        given = {"kafka.bootstrap.servers": f"{host}:{port}", "fetchOffset.retryIntervalMs": "10", **options}
        found = source_options({name: str(value) for name, value in given.items()})
        found.check_stream()
        self.reader = LimitedStreamReader(found)
        self.start = start

    def end(self):
        """Return the end offset that Spark records before it runs a micro-batch."""
        start = self.start or through(self.reader.initialOffset())
        return through(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))

    def run(self, end):
        """Run a micro-batch without committing it; return (partition, offset) of its rows."""
        start = self.start or through(self.reader.initialOffset())
        rows = []
        for one in self.reader.partitions(start, end):
            for batch in self.reader.read(one):
                rows += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
        return rows

    def step(self):
        """Run and commit one micro-batch; return its rows, or None if there is nothing to read."""
        end = self.end()
        if end == self.start:
            return None
        rows = self.run(end)
        self.start = end
        return rows


def through(offset):
    return json.loads(json.dumps(offset))


def rows(first, last, partition=0):
    return [(partition, offset) for offset in range(first, last)]


def test_a_new_query_begins_at_the_end_and_continues_from_there(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 5)
    query = Query(admin, subscribe=kafkapy_topic)
    assert query.step() == []
    assert query.step() is None
    fill(admin, kafkapy_topic, 3)
    assert query.step() == rows(5, 8)
    again = Query(admin, query.start, subscribe=kafkapy_topic, startingOffsets="earliest")
    assert again.step() is None, "where it starts is for a new query"
    fill(admin, kafkapy_topic, 1)
    assert again.step() == rows(8, 9)


def test_a_first_batch_that_is_repeated_starts_where_it_did(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 5)
    query = Query(admin, subscribe=kafkapy_topic)
    query.reader.initialOffset()
    fill(admin, kafkapy_topic, 2)
    end = query.end()
    fill(admin, kafkapy_topic, 4)
    assert query.run(end) == rows(5, 7)
    again = Query(admin, subscribe=kafkapy_topic)
    assert again.run(end) == rows(5, 7), "Spark asks again where the query starts, and the answer is another by now"
    again.start = end
    assert again.step() == rows(7, 11)


def test_new_partitions_are_read_from_their_beginning(admin, kafkapy_topic):
    query = Query(admin, subscribe=kafkapy_topic)
    assert query.step() == []
    admin.create_partitions(kafkapy_topic, 3)
    fill(admin, kafkapy_topic, 2, partition=1)
    fill(admin, kafkapy_topic, 1, partition=2)
    restarted = Query(admin, query.start, subscribe=kafkapy_topic)
    assert restarted.step() == rows(0, 2, 1) + rows(0, 1, 2)


def test_a_new_partition_that_does_not_begin_at_0_is_data_loss(admin, kafkapy_topic):
    query = Query(admin, subscribe=kafkapy_topic)
    query.step()
    admin.create_partitions(kafkapy_topic, 2)
    fill(admin, kafkapy_topic, 5, partition=1)
    admin.delete_records({(kafkapy_topic, 1): 3})
    strict = Query(admin, query.start, subscribe=kafkapy_topic)
    with pytest.raises(DataLoss, match=f"{kafkapy_topic}-1 is new and begins at offset 3 instead of 0"):
        strict.step()
    assert Query(admin, query.start, subscribe=kafkapy_topic, failOnDataLoss="false").step() == rows(3, 5, 1)


@pytest.mark.parametrize("fewer", [True, False])
def test_a_topic_created_again_is_detected_whatever_it_has(admin, kafkapy_topic, fewer):
    fill(admin, kafkapy_topic, 5)
    query = Query(admin, subscribe=kafkapy_topic, startingOffsets="earliest")
    assert query.step() == rows(0, 5)
    admin.delete_topics([kafkapy_topic])
    admin.create_topic(kafkapy_topic, 1)
    count = 2 if fewer else 9
    fill(admin, kafkapy_topic, count)
    for _ in range(2):
        with pytest.raises(DataLoss, match=f"topic '{kafkapy_topic}' was deleted and recreated"):
            query.step()
    lenient = Query(admin, query.start, subscribe=kafkapy_topic, failOnDataLoss="false", maxOffsetsPerTrigger=1)
    found = [lenient.step() for _ in range(count)]
    assert found == [[(0, offset)] for offset in range(count)]
    assert lenient.step() is None


def test_a_topic_that_is_gone(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 2)
    pattern = {"subscribePattern": f"^{kafkapy_topic}(-gone)?$", "startingOffsets": "earliest"}
    admin.create_topic(f"{kafkapy_topic}-gone", 1)
    query = Query(admin, **pattern)
    assert query.step() == rows(0, 2)
    admin.delete_topics([f"{kafkapy_topic}-gone"])
    with pytest.raises(DataLoss, match=f"{kafkapy_topic}-gone-0 is gone"):
        Query(admin, query.start, **pattern).step()
    lenient = Query(admin, query.start, **pattern, failOnDataLoss="false")
    assert lenient.step() == []
    fill(admin, kafkapy_topic, 1)
    assert lenient.step() == rows(2, 3)


def test_a_named_topic_that_is_gone_and_comes_back(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 2)
    query = Query(admin, subscribe=kafkapy_topic, startingOffsets="earliest", failOnDataLoss="false")
    assert query.step() == rows(0, 2)
    admin.delete_topics([kafkapy_topic])
    again = Query(admin, query.start, subscribe=kafkapy_topic, failOnDataLoss="false")
    assert again.step() == []
    admin.create_topic(kafkapy_topic, 1)
    fill(admin, kafkapy_topic, 1)
    back = Query(admin, again.start, subscribe=kafkapy_topic, failOnDataLoss="false")
    assert back.step() == rows(0, 1)


def test_a_topic_deleted_while_a_query_is_idle(admin, kafkapy_topic):
    query = Query(admin, subscribe=kafkapy_topic, failOnDataLoss="false")
    assert query.step() == []
    assert query.step() is None
    admin.delete_topics([kafkapy_topic])
    assert query.step() == []
    admin.create_topic(kafkapy_topic, 1)
    fill(admin, kafkapy_topic, 1)
    while not (found := query.step()):
        pass
    assert found == rows(0, 1)


def test_a_topic_briefly_unknown_to_a_broker_is_not_read_again(admin, kafkapy_topic, monkeypatch):
    fill(admin, kafkapy_topic, 2)
    options = {"subscribe": kafkapy_topic, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    query = Query(admin, **options)
    assert query.step() == rows(0, 2)
    fill(admin, kafkapy_topic, 1)
    again = Query(admin, query.start, **options)
    offsets = again.reader.plan._reader
    there = offsets._partitions
    answers = [(set(), {})]
    monkeypatch.setattr(offsets, "_partitions", lambda **how: answers.pop() if answers else there(**how))
    assert again.step() == rows(2, 3)


def test_an_idle_query_looks_for_the_new_leader_when_the_old_one_is_gone(admin, kafkapy_topic):
    query = Query(admin, subscribe=kafkapy_topic, **{"kafka.default.api.timeout.ms": 0, "fetchOffset.numRetries": 1})
    assert query.step() == []
    cluster = query.reader.plan._reader._cluster
    cluster.close()
    cluster.brokers = {node: replace(broker, port=1) for node, broker in cluster.brokers.items()}
    fill(admin, kafkapy_topic, 1)
    assert query.step() == rows(0, 1)


def test_the_checkpoint_of_a_query_that_reads_something_else(admin, kafkapy_topic):
    other = {"kafkapy": 1, "offsets": {"another": {"0": 5}}}
    with pytest.raises(
        DataLoss, match="another-0 is gone, or the checkpoint is that of a query that reads other topics"
    ):
        Query(admin, other, subscribe=kafkapy_topic).step()


def test_a_query_resumes_from_a_checkpoint_of_sparks_own_source(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 9)
    assert Query(admin, {kafkapy_topic: {"0": 4}}, subscribe=kafkapy_topic).step() == rows(4, 9)


def test_a_partition_that_ends_before_the_read_position(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 5)
    known = Query(admin, subscribe=kafkapy_topic).end()
    ahead = {**known, "offsets": {kafkapy_topic: {"0": 8}}}
    with pytest.raises(DataLoss, match=f"{kafkapy_topic}-0 ends at 5 now, but was read up to 8"):
        Query(admin, ahead, subscribe=kafkapy_topic).step()
    lenient = Query(admin, ahead, subscribe=kafkapy_topic, failOnDataLoss="false")
    assert lenient.step() == []
    fill(admin, kafkapy_topic, 1)
    assert lenient.step() == rows(5, 6)


def test_a_batch_that_is_repeated_and_whose_end_is_gone(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 5)
    end = Query(admin, subscribe=kafkapy_topic).end()
    beyond = {**end, "offsets": {kafkapy_topic: {"0": 8}}}
    begun = {**end, "offsets": {kafkapy_topic: {"0": 3}}}
    with pytest.raises(DataLoss, match=f"{kafkapy_topic}-0 ends at 5 now, but a batch was to read up to 8"):
        Query(admin, begun, subscribe=kafkapy_topic).run(beyond)
    assert Query(admin, begun, subscribe=kafkapy_topic, failOnDataLoss="false").run(beyond) == rows(3, 5)


def test_a_position_that_retention_has_deleted(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 5)
    query = Query(admin, subscribe=kafkapy_topic, startingOffsets=f'{{"{kafkapy_topic}":{{"0":1}}}}')
    admin.delete_records({(kafkapy_topic, 0): 4})
    with pytest.raises(DataLoss, match="does not have offsets 1 to 3 any more"):
        query.step()
    lenient = Query(
        admin,
        subscribe=kafkapy_topic,
        startingOffsets=f'{{"{kafkapy_topic}":{{"0":1}}}}',
        failOnDataLoss="false",
    )
    assert lenient.step() == rows(4, 5)


def test_a_micro_batch_keeps_to_its_limit(admin, kafkapy_topic):
    admin.create_partitions(kafkapy_topic, 2)
    fill(admin, kafkapy_topic, 9, partition=0)
    fill(admin, kafkapy_topic, 3, partition=1)
    query = Query(admin, subscribe=kafkapy_topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert query.step() == rows(0, 3, 0) + rows(0, 1, 1)
    assert query.step() == rows(3, 6, 0) + rows(1, 2, 1)
    assert query.step() == rows(6, 9, 0) + rows(2, 3, 1)
    assert query.step() is None
    everything = Query(admin, subscribe=kafkapy_topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    start = everything.reader.initialOffset()
    end = everything.reader.latestOffset(start, ReadAllAvailable())
    assert end["offsets"] == {kafkapy_topic: {"0": 9, "1": 3}}, "Trigger.Once has no limits"


def test_a_micro_batch_waits_for_enough_records(admin, kafkapy_topic):
    query = Query(
        admin, subscribe=kafkapy_topic, minOffsetsPerTrigger=5, maxTriggerDelay="1h", startingOffsets="earliest"
    )
    fill(admin, kafkapy_topic, 2)
    assert query.step() == rows(0, 2), "the first one does not wait"
    fill(admin, kafkapy_topic, 4)
    assert query.step() is None
    fill(admin, kafkapy_topic, 1)
    assert query.step() == rows(2, 7)
    impatient = Query(admin, query.start, subscribe=kafkapy_topic, minOffsetsPerTrigger=5, maxTriggerDelay="0s")
    fill(admin, kafkapy_topic, 1)
    assert impatient.step() == rows(7, 8)


def test_available_now_reads_the_records_that_were_there_in_steps_and_no_more(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 5)
    query = Query(
        admin, subscribe=kafkapy_topic, startingOffsets="earliest", maxOffsetsPerTrigger=3, minOffsetsPerTrigger=3
    )
    query.reader.prepareForTriggerAvailableNow()
    assert query.step() == rows(0, 3)
    fill(admin, kafkapy_topic, 10)
    assert query.step() == rows(3, 5), "the last step does not wait for more"
    assert query.step() is None


def test_available_now_continues_when_a_topic_is_gone(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 2)
    query = Query(admin, subscribe=kafkapy_topic, startingOffsets="earliest")
    assert query.step() == rows(0, 2)
    admin.delete_topics([kafkapy_topic])
    again = Query(admin, query.start, subscribe=kafkapy_topic, failOnDataLoss="false")
    again.reader.prepareForTriggerAvailableNow()
    assert again.step() == []
    assert again.step() is None


def test_the_progress_report_has_the_latest_offsets(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 5)
    query = Query(admin, subscribe=kafkapy_topic, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert query.reader.reportLatestOffset() is None
    assert query.end()["offsets"] == {kafkapy_topic: {"0": 2}}
    assert query.reader.reportLatestOffset()["offsets"] == {kafkapy_topic: {"0": 5}}


def test_an_idle_query_waits_for_records_between_requests(admin, kafkapy_topic, monkeypatch):
    query = Query(admin, subscribe=kafkapy_topic)
    query.step()
    asked = []
    offsets = query.reader.plan._reader
    monkeypatch.setattr(
        offsets, "_partitions", lambda **_: pytest.fail("an idle query looks for new partitions rarely")
    )
    have_moved = offsets.have_moved

    def counted(ends):
        asked.append(len(asked))
        if len(asked) == 2:
            monkeypatch.undo()
            fill(admin, kafkapy_topic, 1)
        return have_moved(ends)

    monkeypatch.setattr(offsets, "have_moved", counted)
    assert query.step() == rows(0, 1)
    assert len(asked) == 2


def test_before_4_2_spark_asks_for_the_end_first_and_not_for_limits(admin, kafkapy_topic):
    fill(admin, kafkapy_topic, 5)
    options = Query(admin, subscribe=kafkapy_topic)
    for limit in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        limited = Query(admin, subscribe=kafkapy_topic, **{limit: "5"}).reader._options
        with pytest.raises(BadOption, match=rf"{limit} needs PySpark 4\.2 or newer"):
            PlainStreamReader(limited)
    reader = PlainStreamReader(options.reader._options)
    end = through(reader.latestOffset())
    fill(admin, kafkapy_topic, 2)
    assert reader.partitions(through(reader.initialOffset()), end) == []
    (one,) = reader.partitions(end, through(reader.latestOffset()))
    assert (one.start, one.end) == (5, 7)
    last = through(reader.latestOffset())
    assert through(reader.latestOffset()) == last
    repeated = PlainStreamReader(options.reader._options)
    assert repeated.partitions(through(repeated.initialOffset()), end) == [], "the first batch once more"


def test_a_query_survives_a_restart_of_its_broker(tmp_path):
    with kafkapy.Broker(tmp_path, process=True) as broker:
        address = broker.bootstrap_servers
        with Admin(address) as admin:
            admin.create_topic("lasting", 1)
            fill(admin, "lasting", 3)
            query = Query(admin, subscribe="lasting", startingOffsets="earliest")
            assert query.step() == rows(0, 3)
    port = int(address.rpartition(":")[2])
    with kafkapy.Broker(tmp_path, process=True, listeners=f"PLAINTEXT://127.0.0.1:{port}"), Admin(address) as admin:
        fill(admin, "lasting", 2)
        assert query.step() == rows(3, 5)
