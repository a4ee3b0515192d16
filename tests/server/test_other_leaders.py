"""Responses to clients when the controller moves leaderships to another broker. The test is the controller."""

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata.cache import LiveBroker
from kafkapy.metadata.roles import PartitionRole
from kafkapy.protocol.apis import FIND_COORDINATOR, HEARTBEAT, METADATA, PRODUCE
from tests.harness.wire import Wire
from tests.server.requests import batch, request, start_broker

OTHER = 7


class Cluster:
    """A cluster of broker 0 and broker 7. Broker 7 exists only in the metadata."""

    def __init__(self, directory):
        self.server = start_broker(directory, broker_id=0, offsets_topic_num_partitions=1)
        self.services = self.server.services
        self.wire = Wire(self.server.bootstrap_servers)

    def hand_over(self, topic, leader_epoch=1):
        """Make broker 7 the leader of partition 0 of the topic."""
        topic_info = self.services.topics.get(topic)
        roles = [PartitionRole(topic, 0, topic_info.id, OTHER, leader_epoch, 1, [0, OTHER], [0, OTHER])]
        assert self.services.roles.apply(1, roles) == {}
        self.services.roles.update_metadata(1, roles)

    def start_other(self):
        other = LiveBroker(OTHER, {"PLAINTEXT": ("other", 9097)})
        self.services.cache.set_brokers(OTHER, [*self.services.cache.live_brokers(), other])

    def metadata(self, topic):
        make = METADATA.Request
        return self.wire.call(METADATA, 12, make(topics=[make.Topics(name=topic)], allow_auto_topic_creation=True))

    def coordinator(self, group):
        asked = FIND_COORDINATOR.Request(coordinator_keys=[group], key_type=0)
        return self.wire.call(FIND_COORDINATOR, 4, asked).coordinators[0]

    def close(self):
        self.wire.close()
        self.server.stop()


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def test_metadata_returns_the_new_leader_once_it_is_alive(cluster):
    cluster.metadata("t")
    cluster.hand_over("t")
    (partition,) = cluster.metadata("t").topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (Errors.LEADER_NOT_AVAILABLE, -1)
    cluster.start_other()
    answer = cluster.metadata("t")
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (Errors.NONE, OTHER, 1)
    assert partition.isr_nodes == [0, OTHER]
    assert answer.controller_id == OTHER
    assert [node.node_id for node in answer.brokers] == [0, OTHER]
    produced = cluster.wire.call(PRODUCE, 9, request("t", batch(b"v"))).responses[0].partition_responses[0]
    assert produced.error_code == Errors.NOT_LEADER_OR_FOLLOWER


def test_find_coordinator_returns_the_new_broker_of_a_moved_coordinator(cluster):
    assert cluster.coordinator("g").node_id == 0
    cluster.hand_over("__consumer_offsets")
    assert cluster.coordinator("g").error_code == Errors.COORDINATOR_NOT_AVAILABLE
    cluster.start_other()
    found = cluster.coordinator("g")
    assert (found.error_code, found.node_id, found.host, found.port) == (Errors.NONE, OTHER, "other", 9097)
    asked = HEARTBEAT.Request(group_id="g", generation_id=1, member_id="m")
    assert cluster.wire.call(HEARTBEAT, 4, asked).error_code == Errors.NOT_COORDINATOR
