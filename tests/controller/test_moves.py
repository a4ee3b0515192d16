"""Reassignments while brokers are gone, across terms of the controller, and with partition states that other programs
have written.
"""

import pytest

from kafkapy.controller.requests import StopRequest
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.topic_nodes import Move
from kafkapy.metadata.tree import Set, wait
from tests.controller.lab import Lab


def test_a_new_term_completes_all_reassignments_of_a_topic(lab: Lab) -> None:
    """The last controller ended just after the target replicas of both partitions had come in sync."""
    lab.controller.create("t", by_hand={0: [0, 1], 1: [1, 0]})
    for index in (0, 1):
        lab.controller.reassign("t", index, [0, 2])
    lab.controller.end()
    for index in (0, 1):
        write_isr(lab, index, [0, 1, 2])
    assert lab.controller.start(lab.topics.all(), lambda: False)
    assert replicas(lab) == ({0: [0, 2], 1: [0, 2]}, {})
    assert [lab.topics.state("t", index).leader for index in (0, 1)] == [0, 0]


def test_a_reassignment_is_cancelled_while_the_only_original_replica_is_gone(lab: Lab) -> None:
    lab.controller.create("t", by_hand={0: [1]})
    lab.controller.reassign("t", 0, [2])
    lab.brokers_are(0, 2)
    lab.controller.reassign("t", 0, None)
    assert replicas(lab) == ({0: [1]}, {})
    known = lab.brokers.caches[2].leader("t", 0)
    assert (known.id, known.replicas) == (-1, (1,))
    lab.brokers_are(0, 1, 2)
    assert lab.topics.state("t", 0).leader == 1


def test_a_reassignment_is_not_cancelled_while_only_replicas_that_it_adds_are_in_sync(lab: Lab) -> None:
    lab.controller.create("t", by_hand={0: [1]})
    lab.controller.reassign("t", 0, [2, 0])
    write_isr(lab, 0, [1, 2])
    lab.brokers_are(0, 2)
    with pytest.raises(KafkaError) as raised:
        lab.controller.reassign("t", 0, None)
    assert raised.value.code == Errors.INVALID_REPLICA_ASSIGNMENT
    assert replicas(lab) == ({0: [2, 0, 1]}, {0: Move([2, 0], [1])})
    assert (lab.topics.state("t", 0).leader, lab.topics.state("t", 0).isr) == (2, [2])
    lab.brokers_are(0, 1, 2)
    write_isr(lab, 0, [2, 1])
    lab.controller.reassign("t", 0, None)
    assert replicas(lab) == ({0: [1]}, {})
    assert (lab.topics.state("t", 0).leader, lab.topics.state("t", 0).isr) == (1, [1])


def test_no_replica_is_deleted_while_the_state_of_the_partition_cannot_be_decoded(lab: Lab) -> None:
    lab.controller.create("t", by_hand={0: [1]})
    lab.controller.reassign("t", 0, [2])
    lab.tree.commit([Set(paths.partition_state("t", 0), b"[]")])
    for target in ([0], None):
        with pytest.raises(KafkaError, match="t-0 in the metadata cannot be decoded"):
            lab.controller.reassign("t", 0, target)
    lab.controller.end()
    assert lab.controller.start(lab.topics.all(), lambda: False)
    assert replicas(lab) == ({0: [2, 1]}, {0: Move([2], [1])})
    assert not any(isinstance(request, StopRequest) for _, request in lab.brokers.sent)


def test_replicas_get_another_order_while_there_is_no_leader(lab: Lab) -> None:
    lab.controller.create("t", by_hand={0: [1, 2]})
    write_isr(lab, 0, [1])
    lab.brokers_are(0, 2)
    lab.controller.reassign("t", 0, [2, 1])
    assert replicas(lab) == ({0: [2, 1]}, {})
    assert lab.brokers.caches[2].leader("t", 0).replicas == (2, 1)
    assert lab.brokers.roles[2]["t", 0] == lab.topics.state("t", 0).leader_epoch


def test_a_reassignment_to_the_replica_that_is_gone_waits_for_it(lab: Lab) -> None:
    """Broker 1 alone has all records, so it stays in the ISR."""
    lab.controller.create("t", by_hand={0: [1, 2]})
    write_isr(lab, 0, [1])
    lab.brokers_are(0, 2)
    lab.controller.reassign("t", 0, [1])
    assert replicas(lab) == ({0: [1, 2]}, {0: Move([], [2])})
    lab.brokers_are(0, 1, 2)
    assert replicas(lab) == ({0: [1]}, {})
    assert (lab.topics.state("t", 0).leader, lab.topics.state("t", 0).isr) == (1, [1])


def test_a_partition_that_was_never_led_is_led_by_the_replica_to_which_it_is_reassigned(lab: Lab) -> None:
    lab.controller.controlled_shutdown(1, 2)
    lab.controller.create("t", by_hand={0: [1]})
    lab.brokers_are(0, 2)
    assert lab.topics.state("t", 0) is None
    lab.controller.reassign("t", 0, [2])
    assert replicas(lab) == ({0: [2]}, {})
    assert (lab.topics.state("t", 0).leader, lab.topics.state("t", 0).isr) == (2, [2])
    assert lab.brokers.caches[0].leader("t", 0).id == 2


def test_an_isr_that_an_old_broker_has_written_completes_a_reassignment(lab: Lab) -> None:
    """A leader before Kafka 2.7 writes the ISR itself, and names the partition in a notification."""
    lab.controller.create("t", by_hand={0: [1]})
    lab.controller.reassign("t", 0, [2])
    write_isr(lab, 0, [1, 2])
    lab.controller.isr_changed([("t", 0)])
    assert replicas(lab) == ({0: [2]}, {})
    assert (lab.topics.state("t", 0).leader, lab.topics.state("t", 0).isr) == (2, [2])


def write_isr(lab: Lab, index: int, isr: list[int]) -> None:
    """Write the ISR of a partition of topic t directly to the tree, without the controller."""
    wait(lab.topics.set_states, {("t", index): lab.topics.state("t", index)._replace(isr=isr)})


def replicas(lab: Lab) -> tuple[dict[int, list[int]], dict[int, Move]]:
    """Return the assignment of topic t, and its reassignments in progress."""
    topic = lab.topics.get("t")
    return topic.assignment, dict(topic.moves)
