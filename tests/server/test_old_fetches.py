"""Fetches of clients that know only older message formats: the cost of the conversion, and its failures."""

import os
import struct
import threading

import pytest

from kafkapy.errors import Errors
from kafkapy.log.reading.down_conversion import DownConversion
from kafkapy.protocol.apis import FETCH
from kafkapy.record.batch import build
from kafkapy.record.legacy import iter_entries
from kafkapy.server.handlers import fetch
from tests.harness.wire import Wire
from tests.network.conftest import rss
from tests.server.requests import make_topic, produce, start_broker

PART = 100_000


def batch(first, *values, codec=0):
    return build([(first + at, None, value, []) for at, value in enumerate(values)], codec=codec)


def old_fetch(*topics, offset=0, max_bytes=1 << 25, wait=0, min_bytes=1):
    make = FETCH.Request
    return make(
        replica_id=-1,
        max_wait_ms=wait,
        min_bytes=min_bytes,
        max_bytes=1 << 30,
        topics=[
            make.Topics(
                topic=topic,
                partitions=[make.Topics.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)],
            )
            for topic in topics
        ],
    )


@pytest.fixture
def topic(wire, request):
    return make_topic(wire, "old-" + "".join(char for char in request.node.name if char.isalnum() or char in "-_"))


def test_clients_that_do_not_read_hold_little_memory(broker, wire, topic):
    """Each response has 12 MB, and more than that has to be converted for it."""
    for at in range(120):
        assert produce(wire, topic, batch(0, os.urandom(PART // 2), os.urandom(PART // 2))).error_code == 0, at
    wire.call(FETCH, 3, old_fetch(topic))
    before = rss()
    stalled = [Wire(broker.bootstrap_servers) for _ in range(40)]
    for one in stalled:
        one.send(FETCH, 3, old_fetch(topic))
    heads = [one._exactly(4) for one in stalled]
    assert all(struct.unpack(">i", head)[0] > 120 * PART for head in heads)
    assert wire.call(FETCH, 3, old_fetch("none")).responses[0].partitions[0].error_code != 0  # others are served
    # Per connection, the socket buffers hold some data and this process one or two batches.
    assert rss() - before < 40 * 4 * PART
    for one in stalled[1:]:
        one.close()
    (size,) = struct.unpack(">i", heads[0])
    data = stalled[0]._exactly(size)
    assert len(data) == size
    stalled[0].close()


def test_several_partitions_in_one_answer(wire, topic):
    names = [make_topic(wire, f"{topic}-{at}") for at in range(3)]
    for at, name in enumerate(names):
        for _ in range(at):
            produce(wire, name, batch(0, b"%d" % at * 5000, b"x"))
    answers = wire.call(FETCH, 1, old_fetch(*names, "missing")).responses
    assert [one.partitions[0].error_code for one in answers] == [0, 0, 0, Errors.UNKNOWN_TOPIC_OR_PARTITION]
    offsets = [[entry.last_offset for entry in iter_entries(one.partitions[0].records)] for one in answers]
    assert offsets == [[], [0, 1], [0, 1, 2, 3], []]


def test_a_batch_that_cannot_be_converted_is_a_corrupt_message_when_it_is_asked_for(tmp_path, caplog):
    """The client first gets the batches before the damaged one; otherwise it could never read them."""
    server = start_broker(tmp_path)
    wire, other = Wire(server.bootstrap_servers), Wire(server.bootstrap_servers)
    topic = make_topic(wire, "broken")
    size = 0
    for _ in range(8):
        size = len(batch(0, os.urandom(PART), codec=1))
        assert produce(wire, topic, batch(0, os.urandom(PART), codec=1)).error_code == 0
    log = tmp_path / "broken-0" / "00000000000000000000.log"
    entries = list(iter_entries(log.read_bytes()))
    with log.open("r+b") as file:  # damage the compressed records only, not the header
        file.seek(entries[5].position + size // 2)
        file.write(bytes(1000))
    answer = wire.call(FETCH, 2, old_fetch(topic)).responses[0].partitions[0]
    assert len(answer.records) == sum(entry.size for entry in entries)
    assert [entry.last_offset for entry in iter_entries(answer.records)] == [0, 1, 2, 3, 4]
    assert "ends before byte" in caplog.text
    answer = other.call(FETCH, 2, old_fetch(topic, offset=5)).responses[0].partitions[0]
    assert (answer.error_code, bytes(answer.records)) == (Errors.CORRUPT_MESSAGE, b"")
    answer = other.call(FETCH, 2, old_fetch(topic, offset=6)).responses[0].partitions[0]
    assert [entry.last_offset for entry in iter_entries(answer.records)] == [6, 7]
    other.close()
    wire.close()
    server.stop()


def test_a_partition_that_a_request_names_repeatedly_is_answered_once(wire, topic):
    """As in Kafka. Otherwise the partition would be converted each time that the request names it."""
    produce(wire, topic, batch(0, b"a", b"b"))
    produce(wire, topic, batch(0, b"c"))
    request = old_fetch(topic)
    again = FETCH.Request.Topics.Partitions(partition=0, fetch_offset=2, partition_max_bytes=1 << 20)
    request.topics[0].partitions += [again] * 1000
    for version in (0, 1, 2, 3):
        (answer,) = wire.call(FETCH, version, request).responses
        (part,) = answer.partitions
        assert [entry.last_offset for entry in iter_entries(part.records)] == [2]


def test_conversions_take_turns_and_end_with_their_connection(tmp_path, monkeypatch):
    server = start_broker(tmp_path, kafkapy_disk_pool_threads="1")
    wire, greedy = Wire(server.bootstrap_servers), Wire(server.bootstrap_servers)
    names = [make_topic(wire, f"turns-{at}") for at in range(20)]
    for name in names:
        produce(wire, name, batch(0, b"a"))
    monkeypatch.setattr(fetch, "TURN_S", 0)
    converted, gate = [], threading.Event()
    original = DownConversion.__init__

    def gated(self, *arguments):
        converted.append(1)
        if len(converted) == 1:
            assert gate.wait(20)
        original(self, *arguments)

    monkeypatch.setattr(DownConversion, "__init__", gated)
    greedy.send(FETCH, 1, old_fetch(*names))
    while not converted:
        pass
    wire.send(FETCH, 1, old_fetch(names[0]))  # waits only until one partition is converted
    greedy.close()
    while server._network.connections > 1:
        pass
    gate.set()
    assert wire.receive(FETCH, 1)[1].responses[0].partitions[0].error_code == 0
    wire.call(FETCH, 1, old_fetch("nowhere"))
    assert len(converted) == 2
    wire.close()
    server.stop()


def test_a_client_that_disconnects_in_the_middle_of_a_reply_does_not_disturb_others(broker, wire, topic):
    for _ in range(30):
        produce(wire, topic, batch(0, os.urandom(PART)))
    for taken in (1, 100, PART, 10 * PART):
        one = Wire(broker.bootstrap_servers)
        one.send(FETCH, 3, old_fetch(topic))
        one._exactly(taken)
        one.close()
    answer = wire.call(FETCH, 3, old_fetch(topic, max_bytes=3 * PART)).responses[0].partitions[0]
    assert [entry.last_offset for entry in iter_entries(answer.records)] == [0, 1]


def test_answers_to_requests_behind_one_another_come_in_order(wire, topic):
    for _ in range(10):
        produce(wire, topic, batch(0, os.urandom(PART)))
    asked = [wire.send(FETCH, version, old_fetch(topic)) for version in (3, 4, 1, 12, 0, 3)]
    for number, version in zip(asked, (3, 4, 1, 12, 0, 3), strict=True):
        correlation, response = wire.receive(FETCH, version)
        assert correlation == number
        records = response.responses[0].partitions[0].records
        assert len(records) >= 10 * PART
        assert {entry.magic for entry in iter_entries(records)} == {0 if version < 2 else 1 if version < 4 else 2}


def test_a_batch_larger_than_the_fetch_size_is_returned_cut_and_not_omitted(wire, topic):
    """A cut message makes the client raise its fetch size. After an empty response, which Kafka would send, the client
    would repeat the fetch for ever."""
    produce(wire, topic, batch(0, bytes(5000)))
    for version in (0, 1, 2):
        for limit in (12, 1000):
            answer = wire.call(FETCH, version, old_fetch(topic, max_bytes=limit)).responses[0].partitions[0]
            assert (answer.error_code, len(answer.records)) == (Errors.NONE, limit)
            assert not list(iter_entries(answer.records))
    answer = wire.call(FETCH, 3, old_fetch(topic, max_bytes=12)).responses[0].partitions[0]
    assert [entry.last_offset for entry in iter_entries(answer.records)] == [0]
