"""Leaders and ISRs that the controller chooses, and the roles that follow from them."""

import pytest

from kafkapy.controller.partition_states import PartitionStates, elect
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.topics import PartitionState, TopicRegistry
from kafkapy.metadata.tree import wait

TERM = 9  # controller epoch


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PartitionState(0, 3, [0], 1), PartitionState(0, 3, [0], 1)),
        # A dead member must leave the ISR before the leader acknowledges records without it.
        (PartitionState(0, 3, [0, 7], 1), PartitionState(0, 4, [0], TERM)),
        (PartitionState(7, 3, [7, 0], 1), PartitionState(0, 4, [0], TERM)),
        (PartitionState(-1, 3, [0], 1), PartitionState(0, 4, [0], TERM)),
        (None, PartitionState(0, 0, [0], TERM)),
    ],
)
def test_the_live_replica_leads_with_an_isr_of_live_replicas(before, after):
    assert elect([7, 0], before, {0}, TERM) == after


@pytest.mark.parametrize("leader", [7, -1])
def test_a_replica_that_was_not_in_sync_does_not_lead(leader):
    with pytest.raises(KafkaError) as caught:
        elect([7, 0], PartitionState(leader, 3, [7], 1), {0}, TERM)
    assert caught.value.code == Errors.LEADER_NOT_AVAILABLE


class Brokers:
    """Stores the roles that a controller sends, and the states in the tree at that time."""

    def __init__(self, topics):
        self.topics = topics
        self.roles = []
        self.written = []

    def apply(self, controller_epoch, changes):
        self.roles += changes
        self.written += [self.topics.state(one.topic, one.partition) for one in changes]
        return {}

    def update_metadata(self, controller_epoch, partitions):
        pass


def test_roles_are_those_of_the_states_in_the_tree(tmp_path):
    tree = LocalTree(tmp_path / FILE_NAME)
    try:
        ClusterRegistry(tree)
        topics = TopicRegistry(tree)
        topic = wait(topics.create, "t", {0: [0, 7], 1: [7, 0]}, {})
        wait(topics.set_states, {("t", 1): PartitionState(7, 5, [7], 1)})
        brokers = Brokers(topics)
        assert PartitionStates(topics, brokers, [0]).lead(topic, [0, 1], is_new=False) == []
        shrunk, without_leader = brokers.roles
        assert (shrunk.leader, shrunk.leader_epoch, shrunk.isr) == (0, 1, [0])
        assert brokers.written[0] == PartitionState(0, 1, [0], topics.controller_epoch)
        assert (without_leader.leader, without_leader.leader_epoch, without_leader.isr) == (-1, 5, [7])
        assert brokers.written[1].leader_epoch == 5
    finally:
        tree.close()
