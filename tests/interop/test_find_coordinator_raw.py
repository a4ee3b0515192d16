"""FindCoordinator, and the internal topics that it creates, answer like Kafka 3.9 (KAFKAPY_INTEROP_BROKER=kafka)."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import DELETE_RECORDS, DESCRIBE_CONFIGS, FIND_COORDINATOR, METADATA, PRODUCE
from kafkapy.record.batch import build
from tests.harness import brokers
from tests.harness.wire import Wire

GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPICS = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}
SOON = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    running = brokers.start(tmp_path_factory.mktemp("find"))
    yield running
    running.stop()


@pytest.fixture
def wire(broker: brokers.Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def ask(wire: Wire, version: int, key_type: int, *keys: str) -> list[Any]:
    """Return the response for each key."""
    if version < 4:
        (key,) = keys
        return [wire.call(FIND_COORDINATOR, version, key=key, key_type=key_type)]
    return list(wire.call(FIND_COORDINATOR, version, coordinator_keys=list(keys), key_type=key_type).coordinators)


def found(wire: Wire, version: int, key_type: int, *keys: str) -> list[Any]:
    """Return the responses as soon as the coordinator's topic is available."""
    deadline = time.monotonic() + SOON
    while True:
        answers = ask(wire, version, key_type, *keys)
        if all(one.error_code == Errors.NONE for one in answers):
            return answers
        assert {one.error_code for one in answers} <= {Errors.NONE, Errors.COORDINATOR_NOT_AVAILABLE}
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_the_broker(broker: brokers.Broker, wire: Wire, version: int) -> None:
    keys = ["a", "", "größe"] if version >= 4 else ["a"]
    for key_type in (GROUP, TRANSACTION) if version else (GROUP,):
        for one in found(wire, version, key_type, *keys):
            assert f"{one.host}:{one.port}" == broker.bootstrap
    if version >= 4:
        assert [one.key for one in found(wire, version, GROUP, *keys)] == keys
        assert ask(wire, version, GROUP) == []


@pytest.mark.parametrize(
    ("version", "key_type", "code"),
    [
        (6, SHARE, Errors.COORDINATOR_NOT_AVAILABLE),
        (5, SHARE, Errors.INVALID_REQUEST),
        (1, SHARE, Errors.INVALID_REQUEST),
        (6, 3, Errors.INVALID_REQUEST),
        (3, -1, Errors.INVALID_REQUEST),
    ],
)
def test_there_are_two_kinds_of_coordinators(wire: Wire, version: int, key_type: int, code: int) -> None:
    (one,) = ask(wire, version, key_type, "key")
    assert (one.error_code, one.node_id, one.host, one.port) == (code, -1, "", -1)


@pytest.mark.parametrize(
    ("key_type", "settings"),
    [
        (GROUP, {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}),
        (
            TRANSACTION,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "2",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
        ),
    ],
)
def test_the_internal_topics_are_created_with_their_own_settings(
    wire: Wire, key_type: int, settings: dict[str, str]
) -> None:
    found(wire, 3, key_type, "key")
    name = TOPICS[key_type]
    make = METADATA.Request.Topics
    (topic,) = wire.call(METADATA, 9, topics=[make(name=name)], allow_auto_topic_creation=False).topics
    assert (len(topic.partitions), topic.is_internal) == (50, True)
    resource = DESCRIBE_CONFIGS.Request.Resources(resource_type=2, resource_name=name, configuration_keys=None)
    (result,) = wire.call(DESCRIBE_CONFIGS, 1, resources=[resource]).results
    set_on_the_topic = 1
    own = {one.name: one.value for one in result.configs if one.config_source == set_on_the_topic}
    assert own == settings


def test_clients_cannot_write_to_internal_topics(wire: Wire) -> None:
    found(wire, 3, GROUP, "key")
    make = PRODUCE.Request.TopicData
    data = make.PartitionData(index=0, records=build([(1, b"\x00\x09later", b"value", ())]))
    topic = make(name=TOPICS[GROUP], partition_data=[data])
    answer = wire.call(PRODUCE, 9, acks=1, timeout_ms=10_000, topic_data=[topic])
    assert answer.responses[0].partition_responses[0].error_code == Errors.INVALID_TOPIC_EXCEPTION


def test_clients_cannot_delete_records_of_internal_topics(wire: Wire) -> None:
    found(wire, 3, GROUP, "key")
    make = DELETE_RECORDS.Request.Topics
    topic = make(name=TOPICS[GROUP], partitions=[make.Partitions(partition_index=0, offset=0)])
    (answer,) = wire.call(DELETE_RECORDS, 2, topics=[topic], timeout_ms=10_000).topics
    assert answer.partitions[0].error_code == Errors.INVALID_TOPIC_EXCEPTION
