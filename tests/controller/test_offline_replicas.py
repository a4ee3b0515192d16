"""Replicas in log directories that have failed, as the controller learns it from responses to LeaderAndIsr."""

from kafkapy.controller.cluster import Cluster, Registered
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cache import LiveBroker
from tests.controller.lab import Lab

BROKEN = KafkaError(Errors.KAFKA_STORAGE_ERROR, "the disk is broken")


def test_nothing_that_was_known_of_brokers_is_remembered_in_the_next_term() -> None:
    """A late response may be that of a broker that has stopped."""
    cluster = Cluster()
    assert cluster.failed([("t", 0, 1)]) == [("t", 0, 1)]
    cluster.shutting_down.add(2)
    cluster.clear()
    cluster.registered = {one: Registered(LiveBroker(one, {}), 1) for one in (1, 2)}
    assert cluster.live == [1, 2]
    assert cluster.is_online("t", 0, 1)


def test_a_replica_is_online_again_when_it_takes_a_role(lab: Lab) -> None:
    """The broker need not register again, as in KafkaController.processLeaderAndIsrResponseReceived."""
    lab.controller.create("t", by_hand={0: [1]})
    lab.controller.create("u", by_hand={0: [1, 2]})
    lab.brokers.failures[1] = {("t", 0): BROKEN, ("u", 0): BROKEN}
    lab.controller.directory_failed(1)  # asks for the errors
    lab.finish()
    assert (lab.topics.state("t", 0).leader, lab.topics.state("t", 0).isr) == (-1, [1])
    assert (lab.topics.state("u", 0).leader, lab.topics.state("u", 0).isr) == (2, [2])
    assert lab.brokers.caches[2].leader("u", 0).offline == (1,)

    lab.brokers.failures.clear()
    lab.controller.directory_failed(1)
    lab.finish()
    assert (lab.topics.state("t", 0).leader, lab.topics.state("t", 0).isr) == (1, [1])
    assert lab.brokers.caches[2].leader("t", 0).offline == ()
    assert lab.topics.state("u", 0).leader == 2
    lab.controller.isr_changed([("u", 0)])
    assert lab.brokers.caches[2].leader("u", 0).offline == ()
