"""Small requests that ask for large responses have a bounded cost."""

from types import SimpleNamespace

import pytest

from kafkapy._ext.frames import split
from kafkapy.errors import Errors
from kafkapy.protocol.apis import CREATE_TOPICS, DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS, FETCH, METADATA, PRODUCE
from kafkapy.protocol.headers import request_frame
from kafkapy.record.legacy import build_set
from kafkapy.server import dispatcher
from kafkapy.server.handlers import fetch, metadata
from kafkapy.server.handlers import produce as handler
from kafkapy.server.producing.gather import Gather
from tests.harness.wire import Wire
from tests.server.lab import InlineReads
from tests.server.requests import batch, fetch_of_partitions, make_topic, produce, start_broker

TOPIC, BROKER = 2, 4


def test_a_fetch_of_very_many_partitions_does_not_hold_up_the_network_thread(wire, monkeypatch):
    seen = InlineReads(monkeypatch, fetch, "_resolve")
    many = range(3000)
    answers = wire.call(FETCH, 12, fetch_of_partitions("h-nowhere", many)).responses[0].partitions
    assert [(one.partition_index, one.error_code) for one in answers] == [
        (index, Errors.UNKNOWN_TOPIC_OR_PARTITION) for index in many
    ]
    opened = wire.call(FETCH, 12, fetch_of_partitions("h-nowhere", many, (0, 0)))
    again = wire.call(FETCH, 12, fetch_of_partitions("h-nowhere", [], (opened.session_id, 1)))
    assert len(again.responses[0].partitions) == 3000
    assert len(seen.threads) == 9000
    assert not seen.on_network()


def test_a_fetch_of_very_many_partitions_waits_for_data_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "MOST_INLINE", 1)
    seen = InlineReads(monkeypatch, fetch, "_send")
    server = start_broker(tmp_path, num_partitions="2")
    waiting, wire = Wire(server.bootstrap_servers), Wire(server.bootstrap_servers)
    make_topic(wire, "h-many")
    waiting.send(FETCH, 12, fetch_of_partitions("h-many", [0, 1], wait=30_000))
    while server.services.replicas.fetch_purgatory.delayed == 0:
        pass
    produce(wire, "h-many", batch(b"news"), index=1)
    parts = waiting.receive(FETCH, 12)[1].responses[0].partitions
    assert [len(one.records) > 0 for one in parts] == [False, True]
    assert seen.threads
    assert not seen.on_network()
    waiting.close()
    wire.close()
    server.stop()


@pytest.mark.parametrize("version", [2, 11])
@pytest.mark.parametrize("acks", [0, 1])
def test_a_produce_of_very_many_sets_does_not_hold_up_the_network_thread(wire, monkeypatch, version, acks):
    monkeypatch.setattr(handler, "MOST_INLINE", 40)
    seen = InlineReads(monkeypatch, Gather, "_append_to")
    topic = make_topic(wire, f"h-sets-{version}-{acks}")
    make = PRODUCE.Request
    data = batch(b"one") if version > 2 else build_set([(-1, None, b"one")] * 2, 0)

    def of(name, count):
        parts = [make.TopicData.PartitionData(index=0, records=data) for _ in range(count)]
        return make(acks=acks, timeout_ms=5000, topic_data=[make.TopicData(name=name, partition_data=parts)])

    # The partitions of all requests of a turn are counted together; the responses keep the order.
    names = [topic] if acks == 0 else [topic, "h-nowhere"]
    frames = [request_frame(PRODUCE, version, at, "many", of(name, 50)) for at, name in enumerate(names * 2)]
    wire.socket.sendall(b"".join(frames))
    per = 1 if version > 2 else 2
    if acks:
        for at, name in enumerate(names * 2):
            correlation, answer = wire.receive(PRODUCE, version)
            assert correlation == at
            parts = answer.responses[0].partition_responses
            if name == topic:
                assert [part.base_offset for part in parts] == [(at // 2 * 50 + one) * per for one in range(50)]
            else:
                assert {part.error_code for part in parts} == {Errors.UNKNOWN_TOPIC_OR_PARTITION}
    assert produce(wire, topic, batch(b"behind")).base_offset == 100 * per
    assert any("conversion" in name for name in seen.threads)
    # Only the last request is small enough for the network thread.
    assert not any("network" in name for name in seen.threads[:-1])


def test_metadata_of_very_many_topics_does_not_hold_up_the_network_thread(wire, monkeypatch):
    seen = InlineReads(monkeypatch, metadata, "_topic")
    make = METADATA.Request
    names = [f"h-unknown-{number}" for number in range(2000)]
    asked = make(topics=[make.Topics(name=name) for name in names], allow_auto_topic_creation=False)
    topics = wire.call(METADATA, 12, asked).topics
    assert [(one.name, one.error_code) for one in topics] == [
        (name, Errors.UNKNOWN_TOPIC_OR_PARTITION) for name in names
    ]
    assert len(seen.threads) == 2000
    assert not seen.on_network()


@pytest.mark.parametrize("all_topics", [False, True])
def test_metadata_of_very_many_partitions_does_not_hold_up_the_network_thread(wire, monkeypatch, all_topics):
    seen = InlineReads(monkeypatch, metadata, "_topic")
    make = METADATA.Request
    name = make_topic(wire, "h-partitions")
    asked = make(topics=None if all_topics else [make.Topics(name=name)], allow_auto_topic_creation=False)
    wire.call(METADATA, 12, asked)
    assert seen.on_network()
    seen.threads.clear()
    monkeypatch.setattr(metadata, "MOST_INLINE", 1)
    found = {one.name: len(one.partitions) for one in wire.call(METADATA, 12, asked).topics}
    assert found[name] == 1
    assert not seen.on_network()


def test_a_turn_ends_when_its_answers_fill_the_memory_that_they_may(broker, wire, monkeypatch):
    """The responses to pipelined requests for all topics must not pile up while the client reads nothing."""
    make_topic(wire, "h-listed")
    asked = b"".join(request_frame(METADATA, 12, number, "w", METADATA.Request(topics=None)) for number in range(20))
    alone = SimpleNamespace(together=False)
    connection = SimpleNamespace(listener="PLAINTEXT", name="test", peer=("test", 1), processor=alone)
    frames = split(memoryview(bytearray(asked)), 0, len(asked), 64, 1 << 20)[0]
    handle = dispatcher.Dispatcher(broker.services).handle
    assert len(handle(connection, frames)) == 20
    size = len(handle(connection, frames[:1])[0][0])
    monkeypatch.setattr(dispatcher, "MAX_ANSWERED", 3 * size)
    assert len(handle(connection, frames)) == 3
    wire.socket.sendall(asked)
    assert [wire.receive(METADATA, 12)[0] for _ in range(20)] == list(range(20))


def test_settings_are_described_once_however_often_they_are_asked_for(wire):
    topic = make_topic(wire, "h-configs")
    make = DESCRIBE_CONFIGS.Request
    named = [(BROKER, "0"), (BROKER, "00"), (BROKER, ""), (TOPIC, topic)] * 500
    asked = make(resources=[make.Resources(resource_type=kind, resource_name=name) for kind, name in named])
    results = wire.call(DESCRIBE_CONFIGS, 4, asked).results
    assert [(one.resource_type, one.resource_name) for one in results] == [(BROKER, "0"), (BROKER, ""), (TOPIC, topic)]


def test_producers_of_a_partition_are_described_once_however_often_they_are_asked_for(wire):
    topic = make_topic(wire, "h-producers")
    produce(wire, topic, batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0))
    make = DESCRIBE_PRODUCERS.Request
    asked = make(topics=[make.Topics(name=topic, partition_indexes=[0, 0, 0, 7])] * 3)
    topics = wire.call(DESCRIBE_PRODUCERS, 0, asked).topics
    assert [one.partition_index for topic in topics for one in topic.partitions] == [0, 7]
    assert topics[0].partitions[0].active_producers[0].producer_id == 5


def test_a_stop_does_not_wait_until_all_the_topics_of_a_request_are_created(broker, wire, monkeypatch):
    monkeypatch.setattr(broker.services, "stopping", True)
    make = CREATE_TOPICS.Request
    topics = [make.Topics(name=f"h-stop-{number}", num_partitions=1, replication_factor=1) for number in range(3)]
    answers = wire.call(CREATE_TOPICS, 7, make(topics=topics, timeout_ms=9000)).topics
    assert [one.error_code for one in answers] == [Errors.NOT_CONTROLLER] * 3
    make = METADATA.Request
    asked = make(topics=[make.Topics(name="h-stop-auto")], allow_auto_topic_creation=True)
    assert wire.call(METADATA, 12, asked).topics[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert not [name for name in broker.services.topics.names() if name.startswith("h-stop")]
