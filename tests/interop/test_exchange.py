"""Every client writes with every codec, and every client reads the records of every other."""

import os
import time

import pytest

from tests.harness.clients.base import Client, Record
from tests.harness.clients.registry import KINDS, Clients
from tests.harness.scenario import KEEP, PARTITIONS, T0, assert_same, end_offsets, records_for
from tests.harness.waiting import eventually

WRITERS = [(kind.name, codec) for kind in KINDS.values() if "produce" in kind.abilities for codec in kind.codecs]


class Written:
    """Topics by writing client and codec. Each topic is written at its first use, and read by many tests."""

    def __init__(self, clients: Clients, admin: Client) -> None:
        self._clients = clients
        self._admin = admin
        self._done: dict[tuple[str, str], tuple[str, list[Record], int]] = {}

    def __call__(self, writer: str, codec: str) -> tuple[str, list[Record], int]:
        """Return (topic, records in the order of sending, time in ms at which the writing began)."""
        if (writer, codec) not in self._done:
            topic, since = f"written-{writer}-{codec}", int(time.time() * 1000)
            client = self._clients[writer]
            (client if "create_topic" in client.abilities else self._admin).create_topic(topic, PARTITIONS, KEEP)
            sent = records_for(client, f"{writer} {codec}")
            placed = client.produce(topic, sent, codec=codec)
            assert [p for p, _ in placed] == [record.partition for record in sent]
            if placed[0][1] >= 0:  # offsets count up in each partition, in the order of sending
                for p in range(PARTITIONS):
                    offsets = [offset for where, offset in placed if where == p]
                    assert offsets == list(range(len(offsets)))
            self._done[writer, codec] = (topic, sent, since)
        return self._done[writer, codec]


@pytest.fixture(scope="session")
def written(clients: Clients, admin: Client) -> Written:
    return Written(clients, admin)


@pytest.mark.needs("produce")
def test_writes_with_every_codec_and_the_content_is_read_back(
    client: Client, codec: str, written: Written, clients: Clients
) -> None:
    topic, sent, since = written(client.name, codec)
    reader = client if "fetch" in client.abilities and client.name != "kcat" else clients["java-3.9.1"]
    got = reader.fetch(topic, dict.fromkeys(range(PARTITIONS), 0), end_offsets(sent))
    assert_same(sent, got, reader=reader, since_ms=since)


@pytest.mark.needs("fetch")
@pytest.mark.parametrize("writer", sorted({name for name, _ in WRITERS}))
def test_reads_records_of_another_client(client: Client, writer: str, written: Written) -> None:
    for codec in (codec for name, codec in WRITERS if name == writer):
        topic, sent, since = written(writer, codec)
        got = client.fetch(topic, dict.fromkeys(range(PARTITIONS), 0), end_offsets(sent))
        assert_same(sent, got, reader=client, since_ms=since)


@pytest.mark.other_runtime
@pytest.mark.needs("fetch")
def test_seeks_into_the_middle_of_a_compressed_batch(client: Client, written: Written) -> None:
    topic, sent, _ = written("java-3.9.1", "zstd")
    end = end_offsets(sent)
    start = {p: 5 + 31 * p for p in end}
    got = client.fetch(topic, start, end)
    for p, offset in start.items():
        assert [each.offset for each in got[p]] == list(range(offset, end[p]))
        assert [each.value for each in got[p]] == [r.value for r in sent if r.partition == p][offset:]


@pytest.mark.needs("offsets_for_times")
@pytest.mark.parametrize("codec_written", ["none", "lz4"])
def test_finds_offsets_by_timestamp(client: Client, codec_written: str, written: Written) -> None:
    topic, sent, _ = written("confluent-kafka", codec_written)
    for at in (T0 - 100_000, T0 + 1, T0 + 1100, T0 + 1239):
        expected = {
            p: next(
                (
                    i
                    for i, r in enumerate(r for r in sent if r.partition == p)
                    if r.timestamp is None or r.timestamp >= at
                ),
                None,
            )
            for p in range(PARTITIONS)
        }
        assert client.offsets_for_times(topic, dict.fromkeys(range(PARTITIONS), at)) == expected, f"at T0{at - T0:+}"
    future = int(time.time() * 1000) + 86_400_000
    assert client.offsets_for_times(topic, {0: future}) == {0: None}


@pytest.mark.other_runtime
@pytest.mark.needs("watermarks")
def test_gets_first_and_end_offsets(client: Client, written: Written) -> None:
    topic, sent, _ = written("java-4.4.0", "snappy")
    assert client.watermarks(topic, range(PARTITIONS)) == {p: (0, end) for p, end in end_offsets(sent).items()}


@pytest.mark.needs("offsets_of_max_timestamp")
def test_finds_the_record_with_the_largest_timestamp(client: Client, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, 2, KEEP)
    times = [T0 + 5, T0 + 90, T0 + 20, T0 + 70]
    for partition in range(2):
        values = [Record(b"%d" % at, timestamp=at + partition, partition=partition) for at in times]
        admin.produce(topic_name, values, codec=("none", "gzip")[partition])
    assert client.offsets_of_max_timestamp(topic_name, [0, 1]) == {0: 1, 1: 1}


@pytest.mark.needs("produce")
@pytest.mark.parametrize("acks", [0, 1])
def test_writes_with_fewer_acknowledgements(client: Client, acks: int, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, 1)
    sent = [client.express(Record(b"%d" % number, partition=0)) for number in range(50)]
    client.produce(topic_name, sent, acks=acks)
    eventually(lambda: admin.watermarks(topic_name, [0])[0] == (0, 50))  # acks=0 does not wait for the append
    got = admin.fetch(topic_name, {0: 0}, {0: 50})
    assert [each.value for each in got[0]] == [record.value for record in sent]


@pytest.mark.other_runtime
@pytest.mark.needs("produce")
def test_writes_as_an_idempotent_producer(client: Client, admin: Client, clients: Clients, topic_name: str) -> None:
    admin.create_topic(topic_name, 1)
    sent = [client.express(Record(b"%d" % number, key=b"k", partition=0)) for number in range(120)]
    client.produce(topic_name, sent, idempotent=True)
    got = admin.fetch(topic_name, {0: 0}, {0: 120})
    assert [each.value for each in got[0]] == [record.value for record in sent]
    (state,) = clients["java-3.9.1"].producers(topic_name, 0)
    assert (state["epoch"], state["last_sequence"]) == (0, 119)


@pytest.mark.needs("produce")
def test_spreads_unkeyed_records_and_keeps_keyed_ones_together(client: Client, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, PARTITIONS)
    keyed = [client.express(Record(b"%d" % number, key=b"key-%d" % (number % 7))) for number in range(70)]
    unkeyed = [client.express(Record(b"unkeyed %d" % number)) for number in range(30)]
    client.produce(topic_name, keyed)
    client.produce(topic_name, unkeyed)
    end = {p: high for p, (_, high) in admin.watermarks(topic_name, range(PARTITIONS)).items()}
    assert sum(end.values()) == 100
    got = [each for p in admin.fetch(topic_name, dict.fromkeys(end, 0), end).values() for each in p]
    assert sorted(each.value for each in got if each.key is None) == sorted(record.value for record in unkeyed)
    for key in {record.key for record in keyed}:
        together = [each for each in got if each.key == key]
        assert len({each.partition for each in together}) == 1
        assert [each.value for each in together] == [record.value for record in keyed if record.key == key]


@pytest.mark.needs("produce")
def test_writes_and_reads_records_of_a_megabyte(
    client: Client, admin: Client, clients: Clients, topic_name: str
) -> None:
    admin.create_topic(topic_name, 1, {"max.message.bytes": str(4 << 20)})
    random_bytes = os.urandom(750_000).hex().encode()[: 1 << 20]  # text, for kcat, of which codecs leave more than half
    sent = [client.express(Record(b"%d " % number + random_bytes, key=b"big", partition=0)) for number in range(3)]
    for codec in client.codecs:
        client.produce(topic_name, sent, codec=codec)
    total = 3 * len(client.codecs)
    assert admin.watermarks(topic_name, [0]) == {0: (0, total)}
    reader = client if "fetch" in client.abilities else clients["franz-go"]
    got = reader.fetch(topic_name, {0: 0}, {0: total})[0]
    assert [each.offset for each in got] == list(range(total))
    assert [each.value == sent[each.offset % 3].value for each in got] == [True] * total


@pytest.mark.needs("produce")
def test_refuses_a_record_above_the_topics_limit(client: Client, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, 1, {"max.message.bytes": "2000"})
    with pytest.raises(Exception) as refused:  # noqa: PT011  (every client has a way of its own to say it)
        client.produce(topic_name, [client.express(Record(b"x" * 5000, partition=0))])
    assert getattr(refused.value, "code", None) in (10, -1), refused.value
    assert admin.watermarks(topic_name, [0]) == {0: (0, 0)}
    client.produce(topic_name, [client.express(Record(b"x" * 50, partition=0))])
    assert admin.watermarks(topic_name, [0]) == {0: (0, 1)}


@pytest.mark.needs("fetch")
def test_gets_an_error_when_an_offset_is_out_of_range(client: Client, admin: Client, topic_name: str) -> None:
    admin.create_topic(topic_name, 1)
    admin.produce(topic_name, [Record(b"%d" % number, partition=0) for number in range(10)])
    with pytest.raises(Exception) as refused:  # noqa: PT011
        client.fetch(topic_name, {0: 50}, {0: 60})
    assert getattr(refused.value, "code", None) in (1, -1, -140), refused.value  # -140 is librdkafka's own code
