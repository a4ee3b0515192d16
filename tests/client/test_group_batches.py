"""A member of a group gets whole batches."""

import pytest

from kafkapy.client import Admin, RecordProducer, TransactionalProducer
from kafkapy.client.fetched import read_records
from kafkapy.client.groups.group_batches import GroupBatches
from kafkapy.errors import KafkaError
from kafkapy.protocol import apis
from kafkapy.testing.broker import Broker


@pytest.fixture(scope="module")
def servers():
    with Broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=2) as broker:
        yield broker.bootstrap_servers


def values(chunks):
    found = {}
    for chunk in chunks:
        assert isinstance(chunk.data, memoryview)
        records, after = read_records(chunk.where, chunk.data, chunk.start)
        assert after == chunk.after
        found.setdefault(chunk.where[1], []).extend(record.value for record in records)
    return found


def poll_until(consumer, records):
    chunks = []
    while sum(chunk.after - chunk.start for chunk in chunks) < records:
        more = consumer.poll_batches(10)
        assert more
        chunks += more
    return chunks


def test_stored_batches_are_returned_and_positions_lags_and_commits_count_records(servers):
    with Admin(servers) as admin, RecordProducer(servers) as producer:
        admin.create_topic("plain", 2)
        for number in range(20):
            producer.send("plain", b"%d" % number, partition=number % 2)
        producer.flush()
        with GroupBatches(servers, "g", auto_offset_reset="earliest", auto_commit=False) as consumer:
            consumer.subscribe(["plain"])
            found = values(poll_until(consumer, 20))
            assert found == {0: [b"%d" % n for n in range(0, 20, 2)], 1: [b"%d" % n for n in range(1, 20, 2)]}
            assert consumer.lags() == {("plain", 0): 0, ("plain", 1): 0}
            consumer.commit({("plain", 0): 4})
        with GroupBatches(servers, "g", auto_offset_reset="earliest", auto_commit=False) as consumer:
            consumer.subscribe(["plain"])
            chunks = poll_until(consumer, 16)
            starts = {chunk.where: chunk.start for chunk in reversed(chunks)}
            assert starts == {("plain", 0): 4, ("plain", 1): 0}  # the batch begins before
            assert values(chunks)[0] == [b"%d" % n for n in range(8, 20, 2)]
            consumer.seek("plain", 0, 9)
            consumer.seek("plain", 1, 10)
            assert values(consumer.poll_batches(10)) == {0: [b"18"]}
            assert consumer.position("plain", 0) == 10


def test_a_read_committed_batch_comes_with_its_aborted_transactions(servers):
    with Admin(servers) as admin, TransactionalProducer(servers, "x") as producer:
        admin.create_topic("t", 1)
        producer.begin()
        producer.send("t", b"no")
        producer.flush()
        producer.abort()
        with producer.transaction():
            producer.send("t", b"yes")
        with GroupBatches(servers, "c", auto_offset_reset="earliest", isolation="read_committed") as consumer:
            consumer.subscribe(["t"])
            chunks = poll_until(consumer, 4)
        assert [offset for chunk in chunks for _, offset in chunk.aborted] == [0]


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (b"\x00" * 30, "malformed batches"),
        (b"\x00" * 8 + b"\x00\x00\x10\x00" + b"\x00" * 40, "4108 bytes, more than one"),
    ],
)
def test_bytes_that_are_no_whole_batch_are_refused_with_their_position(servers, monkeypatch, records, says):
    with Admin(servers) as admin, GroupBatches(servers, "bad", auto_offset_reset="earliest") as consumer:
        admin.create_topic("bad" + str(len(records)), 1)
        topic = "bad" + str(len(records))
        shape = apis.FETCH.Response.Responses.Partitions
        answer = shape(partition_index=0, high_watermark=5, records=records)
        taken = consumer._fetcher._take

        def wrong(response):
            return taken(
                apis.FETCH.Response(responses=[apis.FETCH.Response.Responses(topic=topic, partitions=[answer])])
            )

        monkeypatch.setattr(consumer._fetcher, "_take", wrong)
        consumer.subscribe([topic])
        with pytest.raises(KafkaError, match=says) as raised:
            consumer.poll_batches(30)
        assert f"{topic}-0 at offset 0" in raised.value.message
