"""Tables are written to topics of a running broker and read back unchanged."""

import pyarrow as pa
import pytest

import kafkapy.arrow
from kafkapy.client import ConnectionFailed, Consumer, NewTopic, ProduceFailed
from kafkapy.client.producing.partitioner import partition_of_key
from kafkapy.errors import KafkaError
from tests.client.conftest import FakeBroker
from tests.client.test_record_producer import Store


def read(admin, topic, isolation="read_uncommitted"):
    admin.cluster.topic(topic, refresh=True)
    consumer = Consumer(admin.cluster, isolation=isolation)
    consumer.assign_topic(topic)
    return list(consumer.records())


class Stream:
    """Rows with the interface of another library's data frame: __arrow_c_stream__."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


class Array:
    """A batch with the interface of an array library: __arrow_c_array__."""

    def __init__(self, table):
        (self._batch,) = table.combine_chunks().to_batches()

    def __arrow_c_array__(self, requested_schema=None):
        return self._batch.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("give", [lambda t: t, pa.Table.to_reader, Stream, Array, lambda t: t.to_batches()[0]])
def test_everything_that_exports_arrow_data_can_be_written(admin, servers, kafkapy_topic, give):
    table = pa.table({"key": ["a", None], "value": [b"1", None], "timestamp": pa.array([5, 7], pa.timestamp("ms"))})
    written = kafkapy.arrow.write(kafkapy_topic, give(table), bootstrap_servers=servers)
    assert (written.rows, written.partitions) == (2, {(kafkapy_topic, 0): 2})
    records = read(admin, kafkapy_topic)
    assert [(r.key, r.value, r.timestamp) for r in records] == [(b"a", b"1", 5), (None, None, 7)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_rows_arrive_in_order_within_their_partition(admin, servers, kafkapy_topic, codec):
    admin.create_partitions(kafkapy_topic, 5)
    keys = [str(number % 37) for number in range(20_000)]
    values = [b"%06d" % number for number in range(20_000)]
    table = pa.table({"key": keys, "value": values})
    written = kafkapy.arrow.write(
        kafkapy_topic, table, bootstrap_servers=servers, codec=codec, batch_bytes=5000, acks=1 if codec == "lz4" else -1
    )
    assert written.rows == 20_000
    found = {}
    for record in read(admin, kafkapy_topic):
        assert record.partition == partition_of_key(record.key, 5)
        found.setdefault(record.partition, []).append(record.value)
    assert written.partitions == {(kafkapy_topic, index): len(of_it) for index, of_it in found.items()}
    assert all(of_it == sorted(of_it) for of_it in found.values())
    assert sorted(value for of_it in found.values() for value in of_it) == values


def test_rows_go_to_the_topics_that_they_name_which_are_created_if_missing(admin, servers, kafkapy_topic):
    names = [f"{kafkapy_topic}-{number % 3}" for number in range(300)]
    table = pa.table({"topic": names, "value": [b"%d" % number for number in range(300)]})
    kafkapy.arrow.write(None, table, bootstrap_servers=servers)
    for number in range(3):
        values = [int(record.value) for record in read(admin, f"{kafkapy_topic}-{number}")]
        assert values == list(range(number, 300, 3))


def test_a_transaction_is_read_as_a_whole_or_not_at_all(admin, servers, kafkapy_topic):
    table = pa.table({"value": [b"%02000d" % number for number in range(1000)]})
    more = {"bootstrap_servers": servers, "transactional_id": kafkapy_topic, "batch_bytes": 10_000}
    kafkapy.arrow.write(kafkapy_topic, table, **more)
    wrong = pa.RecordBatchReader.from_batches(table.schema, fails_after(table.to_batches()))
    with pytest.raises(ValueError, match="enough"):
        kafkapy.arrow.write(kafkapy_topic, wrong, **more)
    assert len(read(admin, kafkapy_topic)) > 1000
    assert len(read(admin, kafkapy_topic, "read_committed")) == 1000


def fails_after(batches):
    yield from batches
    raise ValueError("enough")


def test_the_error_names_topic_and_size_of_a_row_that_the_broker_refuses(admin, servers, kafkapy_topic):
    table = pa.table({"value": [b"1", b"x" * 2_000_000]})
    with pytest.raises(ProduceFailed, match=f"has 2000\\d\\d\\d bytes, more than .* '{kafkapy_topic}'"):
        kafkapy.arrow.write(kafkapy_topic, table, bootstrap_servers=servers)
    assert [record.value for record in read(admin, kafkapy_topic)] == [b"1"]


def test_batches_are_smaller_for_a_topic_with_a_smaller_limit(admin, servers, kafkapy_topic):
    small = NewTopic(f"{kafkapy_topic}-small", 1, configs={"max.message.bytes": "3000"})
    admin.create_topics([small])
    table = pa.table({"value": [b"%0100d" % number for number in range(2000)]})
    kafkapy.arrow.write(small.name, table, bootstrap_servers=servers, batch_bytes=20_000)
    assert [int(record.value) for record in read(admin, small.name)] == list(range(2000))


def test_an_empty_table_writes_nothing(servers, kafkapy_topic):
    table = pa.table({"value": pa.array([], pa.binary())})
    assert kafkapy.arrow.write(kafkapy_topic, table, bootstrap_servers=servers).rows == 0


def test_rows_without_a_value_are_tombstones_only_if_requested(admin, servers, kafkapy_topic):
    table = pa.table({"key": [b"k"]})
    with pytest.raises(ValueError, match=r"no column 'value', so each would be a tombstone.*they have \['key'\]"):
        kafkapy.arrow.write(kafkapy_topic, table, bootstrap_servers=servers)
    assert read(admin, kafkapy_topic) == []
    kafkapy.arrow.write(kafkapy_topic, table, bootstrap_servers=servers, tombstones=True)
    assert [(record.key, record.value) for record in read(admin, kafkapy_topic)] == [(b"k", None)]


def test_wrong_rows_are_reported_before_anything_is_sent(admin, servers, kafkapy_topic):
    with pytest.raises(TypeError, match="rows is a list, which is not Arrow data"):
        kafkapy.arrow.write(kafkapy_topic, [b"1"], bootstrap_servers=servers)
    with pytest.raises(ValueError, match="column 'value' has the type int64"):
        kafkapy.arrow.write(kafkapy_topic, pa.table({"value": [1]}), bootstrap_servers=servers)
    with pytest.raises(ValueError, match="there is no codec 'zip'"):
        kafkapy.arrow.write(kafkapy_topic, pa.table({"value": [b"1"]}), bootstrap_servers=servers, codec="zip")
    with pytest.raises(ValueError, match="a transaction needs acks=-1"):
        kafkapy.arrow.write(
            kafkapy_topic, pa.table({"value": [b"1"]}), bootstrap_servers=servers, acks=1, transactional_id="x"
        )
    with pytest.raises(ConnectionFailed, match="Is a broker listening there"):
        kafkapy.arrow.write(kafkapy_topic, pa.table({"value": [b"1"]}), bootstrap_servers="127.0.0.1:1")
    with pytest.raises(KafkaError, match="INVALID_TOPIC"):
        kafkapy.arrow.write("no topic", pa.table({"value": [b"1"]}), bootstrap_servers=servers)
    assert read(admin, kafkapy_topic) == []


def test_rows_without_key_go_to_a_partition_with_a_leader():
    broker = FakeBroker()
    try:
        broker.topics = {"t": [-1, 1, -1]}
        Store(broker)
        table = pa.table({"value": [b"%090d" % number for number in range(100)]})
        written = kafkapy.arrow.write("t", table, bootstrap_servers=broker.address, batch_bytes=1000)
    finally:
        broker.close()
    assert written.partitions == {("t", 1): 100}
