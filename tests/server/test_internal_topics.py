"""How internal topics are created, how many replicas they get, and what FindCoordinator waits for."""

import logging
from types import SimpleNamespace

import pytest

from kafkapy.coordinator.internal_topic_config import GROUPS, TRANSACTIONS
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cache import LiveBroker, MetadataCache
from kafkapy.metadata.roles import PartitionRole
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.internal_topics import InternalTopics
from tests.harness.appends import AtOnce

ZOOKEEPER = {"zookeeper.connect": "zookeeper:2181"}
ONE_PARTITION = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


class Cluster:
    """The controller, as a broker sees it. With `tells=False`, a new topic gets into the metadata only by `tell`."""

    def __init__(self, brokers, settings, *, tells=True):
        self.cache = MetadataCache()
        self.cache.set_brokers(0, [LiveBroker(one, {"PLAINTEXT": ("host", 9092)}) for one in range(brokers)])
        self.tells = tells
        self.refusal = None
        self.created = []
        self.services = SimpleNamespace(
            cache=self.cache, config=BrokerConfig(settings), controller=self, disk_pool=AtOnce()
        )
        self.topics = InternalTopics(self.services)

    def create_on_demand(self, name, *, partitions, replication, overrides):
        if self.refusal is not None:
            raise self.refusal
        self.created.append((name, partitions, replication))
        self.settings = overrides
        if self.tells:
            self.tell(name)

    def tell(self, name):
        self.cache.update([PartitionRole(name, 0, b"1" * 16, 0, 0, 0, [0], [0])])

    def ensure(self, topic):
        answers = []
        self.topics.ensure(topic, answers.append)
        (error,) = answers
        return Errors.NONE if error is None else error.code


@pytest.mark.parametrize(
    ("settings", "brokers", "groups", "transactions"),
    [
        ({}, 1, 1, 1),
        (ZOOKEEPER, 0, 1, 1),  # before the first UpdateMetadata
        (ZOOKEEPER, 1, 1, 1),
        (ZOOKEEPER, 2, 2, 2),
        (ZOOKEEPER, 3, 3, 3),
        (ZOOKEEPER, 5, 3, 3),
        ({**ZOOKEEPER, "offsets.topic.replication.factor": 3}, 2, 3, 2),
        ({**ZOOKEEPER, "transaction.state.log.replication.factor": 1}, 5, 3, 1),
        ({"offsets.topic.replication.factor": 2}, 1, 2, 1),
    ],
)
def test_a_topic_has_the_replicas_that_are_set_or_three_if_so_many_are_alive(settings, brokers, groups, transactions):
    cluster = Cluster(brokers, {**settings, **ONE_PARTITION})
    assert cluster.ensure(GROUPS) == cluster.ensure(TRANSACTIONS) == Errors.NONE
    assert cluster.created == [(GROUPS, 1, groups), (TRANSACTIONS, 1, transactions)]


@pytest.mark.parametrize(
    ("settings", "brokers", "is_said"), [(ZOOKEEPER, 2, True), (ZOOKEEPER, 3, False), ({}, 1, False)]
)
def test_fewer_than_three_replicas_are_said_once(caplog, settings, brokers, is_said):
    cluster = Cluster(brokers, settings, tells=False)
    for _ in range(3):
        cluster.ensure(GROUPS)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == is_said
    if is_said:
        assert said[0].startswith(f"topic {GROUPS} gets 2 replicas and not 3, because no more brokers are alive")
        assert "offsets.topic.replication.factor" in said[0]


def test_clients_try_again_until_the_metadata_have_the_topic():
    cluster = Cluster(3, ZOOKEEPER, tells=False)
    assert cluster.ensure(GROUPS) == Errors.COORDINATOR_NOT_AVAILABLE
    cluster.refusal = KafkaError(Errors.TOPIC_ALREADY_EXISTS)
    assert cluster.ensure(GROUPS) == Errors.COORDINATOR_NOT_AVAILABLE
    cluster.tell(GROUPS)
    assert cluster.ensure(GROUPS) == Errors.NONE
    assert len(cluster.created) == 1


def test_another_broker_may_create_the_topic_first():
    cluster = Cluster(3, ZOOKEEPER)

    def overtaken(name, **how):
        cluster.tell(name)
        raise KafkaError(Errors.TOPIC_ALREADY_EXISTS)

    cluster.create_on_demand = overtaken
    assert cluster.ensure(GROUPS) == Errors.NONE


def test_a_refused_creation_is_tried_again(caplog):
    cluster = Cluster(2, {**ZOOKEEPER, "offsets.topic.replication.factor": 3})
    cluster.refusal = KafkaError(Errors.INVALID_REPLICATION_FACTOR, "replication factor 3 is more than 2 brokers")
    assert [cluster.ensure(GROUPS) for _ in range(2)] == [Errors.INVALID_REPLICATION_FACTOR] * 2
    (line,) = caplog.messages
    assert line.endswith("replication factor 3 is more than 2 brokers; offsets.topic.replication.factor says how many")
    cluster.refusal = None
    assert cluster.ensure(GROUPS) == Errors.NONE


def test_nothing_is_created_by_a_broker_that_stops():
    class Stopped:
        def submit(self, *job):
            raise PoolStopped("it is stopped")

    cluster = Cluster(3, ZOOKEEPER)
    cluster.services.disk_pool = Stopped()
    assert cluster.ensure(GROUPS) == Errors.COORDINATOR_NOT_AVAILABLE


def test_a_transactions_topic_needs_two_replicas_in_sync_as_in_kafka():
    cluster = Cluster(3, ZOOKEEPER)
    cluster.ensure(TRANSACTIONS)
    assert cluster.settings["min.insync.replicas"] == "2"
