"""Requests that are small and whose answers are not: what they may cost is bounded."""

from types import SimpleNamespace

from kafkapy._ext.frames import split
from kafkapy.protocol.apis import DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS, METADATA
from kafkapy.protocol.headers import request_frame
from kafkapy.server import dispatcher
from tests.server.test_produce import batch, make_topic, produce

TOPIC, BROKER = 2, 4


def test_a_turn_ends_when_its_answers_fill_the_memory_that_they_may(broker, wire, monkeypatch):
    """A client that pipelines requests for all topics and reads nothing must not pile up sixty-four answers."""
    make_topic(wire, "h-listed")
    asked = b"".join(request_frame(METADATA, 12, number, "w", METADATA.Request(topics=None)) for number in range(20))
    connection = SimpleNamespace(listener="PLAINTEXT", name="test", peer=("test", 1))
    frames = split(memoryview(bytearray(asked)), 0, len(asked), 64, 1 << 20)[0]
    handle = dispatcher.Dispatcher(broker.services).handle
    assert len(handle(connection, frames)) == 20
    size = len(handle(connection, frames[:1])[0][0])
    monkeypatch.setattr(dispatcher, "MAX_ANSWERED", 3 * size)
    assert len(handle(connection, frames)) == 3
    wire.sock.sendall(asked)
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
