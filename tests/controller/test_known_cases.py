"""Known faults of controllers, replayed with stand-ins for the brokers of the cluster."""

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.topics import PartitionState, TopicRegistry
from kafkapy.metadata.tree import Delete, wait
from tests.controller.lab import Lab


def test_each_new_leader_epoch_is_in_the_metadata_of_all_brokers(lab: Lab) -> None:
    """KAFKA-9212: a reassignment bumped the leader epoch in ZooKeeper and for the leader, and UpdateMetadata had the
    epoch before. Consumers that knew it were fenced until the next election.
    """
    epochs = []

    def check():
        state = lab.topics.state("t", 0)
        epochs.append(state.leader_epoch)
        for one in lab.brokers.live:
            known = lab.brokers.caches[one].leader("t", 0)
            assert (known.id, known.epoch, list(known.isr)) == (state.leader, state.leader_epoch, state.isr)
        assert lab.brokers.roles[state.leader]["t", 0] == state.leader_epoch

    lab.controller.create("t", by_hand={0: [0, 1]})
    check()
    lab.controller.reassign("t", 0, [0, 1, 2])  # broker 2 begins to copy
    check()
    lab.controller.reassign("t", 0, None)
    check()
    lab.controller.elect(0, [("t", 0)])
    lab.brokers_are(0, 2)  # broker 1 leaves the ISR
    check()
    lab.brokers_are(0, 1, 2)
    check()
    assert epochs == sorted(epochs)
    assert epochs[0] < epochs[1] < epochs[2] < epochs[3]


def test_a_controller_that_does_not_know_of_its_successor_changes_nothing(lab: Lab) -> None:
    """KAFKA-3083: the session of the controller had expired, but it still elected leaders, as its successor did."""
    lab.controller.create("t", by_hand={0: [1, 2]})
    before = lab.topics.state("t", 0)
    lab.tree.commit([Delete(paths.CONTROLLER)])  # its session expires
    successor = ControllerFence(lab.tree)
    successor.set_term(lab.registry.become_controller(2, 0))
    elected = PartitionState(2, before.leader_epoch + 1, [2], successor.epoch)
    wait(TopicRegistry(lab.tree, fence=successor).set_states, {("t", 0): elected})
    roles = {one: dict(epochs) for one, epochs in lab.brokers.roles.items()}
    lab.brokers_are(0, 1)  # the old controller believes that broker 2 is dead
    with pytest.raises(KafkaError) as caught:
        lab.controller.create("other", by_hand={0: [0]})
    assert caught.value.code == Errors.NOT_CONTROLLER
    assert TopicRegistry(lab.tree).state("t", 0) == elected
    assert "other" not in TopicRegistry(lab.tree)
    assert lab.brokers.roles == roles
