"""A partition of a running broker is read between two offsets."""

import os
import time

import pyarrow as pa
import pytest

from kafkapy.arrow import SCHEMA, DamagedRows
from kafkapy.arrow.partition_reader import read_partition
from kafkapy.client import Admin, Cluster, NewTopic, RecordProducer, TransactionalProducer
from kafkapy.client.fetching.batch_fetcher import NothingFetched, OffsetOutOfRange
from kafkapy.record.legacy import iter_entries


@pytest.fixture
def cluster(kafkapy_broker):
    with Cluster(kafkapy_broker.bootstrap_servers) as cluster:
        yield cluster


def fill(cluster, topic, count, size=100, batch_bytes=2000, codec=0, **more):
    with RecordProducer(cluster, batch_bytes=batch_bytes, codec=codec, **more) as producer:
        for number in range(count):
            producer.send(topic, b"%0*d" % (size, number), timestamp=1_700_000_000_000 + number)


def read(cluster, topic, start, end, **more):
    batches = list(read_partition(cluster, topic, 0, start, end, **{"columns": ["offset"], **more}))
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def log_of(broker, topic):
    return broker.log_dir / f"{topic}-0" / "00000000000000000000.log"


@pytest.mark.parametrize("codec", range(5))
def test_every_offset_of_the_range_is_read_once_wherever_fetches_end(cluster, kafkapy_topic, codec):
    fill(cluster, kafkapy_topic, 3000, codec=codec)
    for start, end in ((0, 3000), (7, 2990), (1500, 1501), (2999, 3000), (10, 10)):
        for fetch_bytes in (1, 5000, 1 << 20):
            assert read(cluster, kafkapy_topic, start, end, fetch_bytes=fetch_bytes) == list(range(start, end))


def test_rows_have_the_sent_records_in_the_requested_columns(cluster, kafkapy_topic):
    with RecordProducer(cluster) as producer:
        producer.send(kafkapy_topic, b"v", key=b"k", headers=(("h", None),), timestamp=1_700_000_000_123)
        producer.send(kafkapy_topic, None, timestamp=1_700_000_000_124)
    (batch,) = read_partition(cluster, kafkapy_topic, 0, 0, 2, include_headers=True)
    assert batch.schema.equals(SCHEMA)
    rows = batch.to_pylist()
    assert [row["timestamp"].microsecond for row in rows] == [123_000, 124_000]
    for row in rows:
        del row["timestamp"]
    shared = {"topic": kafkapy_topic, "partition": 0, "timestampType": 0}
    assert rows == [
        {"key": b"k", "value": b"v", "offset": 0, "headers": [{"key": "h", "value": None}], **shared},
        {"key": None, "value": None, "offset": 1, "headers": None, **shared},
    ]
    (plain,) = read_partition(cluster, kafkapy_topic, 0, 0, 2)
    assert plain.schema.names == SCHEMA.names[:-1]
    (two,) = read_partition(cluster, kafkapy_topic, 0, 0, 2, columns=["offset", "value"])
    assert two.to_pylist() == [{"offset": 0, "value": b"v"}, {"offset": 1, "value": None}]


def test_batches_of_rows_are_bounded_and_filled(cluster, kafkapy_topic):
    fill(cluster, kafkapy_topic, 2500)
    batches = list(read_partition(cluster, kafkapy_topic, 0, 0, 2500, max_rows=1000, fetch_bytes=10_000))
    assert [len(batch) for batch in batches] == [1000, 1000, 500]
    assert max(batch.nbytes for batch in read_partition(cluster, kafkapy_topic, 0, 0, 2500, max_bytes=5000)) < 9000


def test_several_partitions_are_read_at_the_same_time(cluster, kafkapy_topic):
    """Each partition has its own requests in flight."""
    fill(cluster, kafkapy_topic, 600)
    one, other = (
        read_partition(cluster, kafkapy_topic, 0, start, start + 500, columns=["offset"], max_rows=50, fetch_bytes=3000)
        for start in (0, 100)
    )
    for first, second in zip(one, other, strict=True):
        assert second["offset"][0].as_py() == first["offset"][0].as_py() + 100
        assert cluster.topic(kafkapy_topic, refresh=True).name == kafkapy_topic


def test_a_record_larger_than_the_fetch_and_than_the_batch_of_rows(cluster, kafkapy_topic):
    value = os.urandom(900_000)
    with RecordProducer(cluster) as producer:
        for one in (b"a", value, b"c"):
            producer.send(kafkapy_topic, one)
    batches = list(read_partition(cluster, kafkapy_topic, 0, 0, 3, columns=["value"], fetch_bytes=1000, max_bytes=1000))
    assert [batch["value"].to_pylist() for batch in batches] == [[b"a"], [value], [b"c"]]


def test_read_committed_leaves_out_aborted_records_and_ends_after_a_marker(cluster, kafkapy_topic, kafkapy_broker):
    with TransactionalProducer(kafkapy_broker.bootstrap_servers, f"{kafkapy_topic}-id") as producer:
        for aborts in (False, True, False, True):
            producer.begin()
            for number in range(50):
                producer.send(kafkapy_topic, b"%d" % number)
            producer.flush()
            producer.abort() if aborts else producer.commit()
    end = 204  # markers have offsets too; the last one is written after the transaction's end was acknowledged
    deadline = time.monotonic() + 10
    while Admin(cluster).offsets({(kafkapy_topic, 0): -1}, isolation=1)[kafkapy_topic, 0].offset < end:
        assert time.monotonic() < deadline
    committed = [*range(50), *range(102, 152)]
    for fetch_bytes in (1, 1 << 20):
        assert read(cluster, kafkapy_topic, 0, end, isolation="read_committed", fetch_bytes=fetch_bytes) == committed
    assert read(cluster, kafkapy_topic, 60, 120, isolation="read_committed") == list(range(102, 120))
    assert read(cluster, kafkapy_topic, 52, 102, isolation="read_committed") == []
    everything = [offset for offset in range(204) if offset % 51 != 50]
    assert read(cluster, kafkapy_topic, 0, end) == everything


def test_the_reader_waits_for_an_open_transaction_and_names_it(cluster, kafkapy_topic, kafkapy_broker):
    with TransactionalProducer(kafkapy_broker.bootstrap_servers, f"{kafkapy_topic}-id") as producer:
        producer.begin()
        producer.send(kafkapy_topic, b"open")
        producer.flush()
        with pytest.raises(NothingFetched, match="it ends at offset 0, and is to be read up to 1"):
            read(cluster, kafkapy_topic, 0, 1, isolation="read_committed", timeout_s=0.2)
        assert read(cluster, kafkapy_topic, 0, 1) == [0]
        producer.commit()
    assert read(cluster, kafkapy_topic, 0, 1, isolation="read_committed") == [0]


def test_a_gap_that_deletion_left_at_the_start_is_out_of_range(cluster, kafkapy_topic):
    fill(cluster, kafkapy_topic, 100)
    Admin(cluster).delete_records({(kafkapy_topic, 0): 60})
    with pytest.raises(OffsetOutOfRange) as raised:
        read(cluster, kafkapy_topic, 5, 100)
    assert (raised.value.offset, raised.value.earliest, raised.value.latest) == (5, 60, 100)
    assert read(cluster, kafkapy_topic, 60, 100) == list(range(60, 100))


def test_records_read_before_their_deletion_are_not_lost(cluster, kafkapy_topic):
    fill(cluster, kafkapy_topic, 3000)
    batches = read_partition(cluster, kafkapy_topic, 0, 0, 3000, columns=["offset"], max_rows=100, fetch_bytes=5000)
    found = next(batches)["offset"].to_pylist()
    Admin(cluster).delete_records({(kafkapy_topic, 0): 2500})
    with pytest.raises(OffsetOutOfRange) as caught:  # noqa: PT012
        for batch in batches:
            found += batch["offset"].to_pylist()
    assert found == list(range(caught.value.offset))
    assert caught.value.offset % 100, "the last batch of rows would have been whole by chance"


def test_the_error_names_topic_partition_and_offset_of_a_corrupt_batch(cluster, kafkapy_topic, kafkapy_broker):
    fill(cluster, kafkapy_topic, 200)
    path = log_of(kafkapy_broker, kafkapy_topic)
    header = list(iter_entries(path.read_bytes()))[3]
    with path.open("r+b") as log:
        log.seek(header.position + 70)
        byte = log.read(1)
        log.seek(header.position + 70)
        log.write(bytes([byte[0] ^ 0xFF]))
    with pytest.raises(DamagedRows, match="has a wrong CRC") as raised:
        read(cluster, kafkapy_topic, 0, 200)
    error = raised.value
    assert (error.topic, error.partition, error.offset) == (kafkapy_topic, 0, header.base_offset)
    assert f"{kafkapy_topic}-0 is damaged at offset {header.base_offset}" in str(error)
    # The other batches can be read.
    assert read(cluster, kafkapy_topic, 0, header.base_offset) == list(range(header.base_offset))
    assert read(cluster, kafkapy_topic, header.last_offset + 1, 200) == list(range(header.last_offset + 1, 200))


def test_log_append_time_and_old_formats_have_their_timestamp_types(cluster, kafkapy_topic):
    name = f"{kafkapy_topic}-appended"
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic(name, 1, configs={"message.timestamp.type": "LogAppendTime"})])
        fill(cluster, name, 3)
        (batch,) = read_partition(cluster, name, 0, 0, 3)
        admin.delete_topics([name])
    assert batch["timestampType"].to_pylist() == [1, 1, 1]
    assert len(set(batch["timestamp"].to_pylist())) <= 3


def test_memory_stays_within_the_given_bounds(cluster, kafkapy_topic):
    """The data are 64 MB, compressed to very little, read in fetches and batches of rows of 1 MiB."""
    with RecordProducer(cluster, codec=4, batch_bytes=1_000_000) as producer:
        for _ in range(640):
            producer.send(kafkapy_topic, bytes(100_000))
    seen = 0
    before = pa.total_allocated_bytes()
    for batch in read_partition(cluster, kafkapy_topic, 0, 0, 640, fetch_bytes=1 << 20, max_bytes=1 << 20):
        seen += len(batch)
        assert batch.nbytes < 2 << 20
        assert pa.total_allocated_bytes() - before < 4 << 20
    assert seen == 640
