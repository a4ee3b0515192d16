"""Leaders and ISRs that the controller chooses. The cases are those of Kafka's Election and PartitionLeaderElection
algorithms (tag 3.9.0)."""

import pytest

from kafkapy.controller import elections
from kafkapy.controller.isr_changes import IsrRequest, decide
from kafkapy.controller.partition import Partition
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.roles import NO_LEADER
from kafkapy.metadata.topic_nodes import RECOVERED, RECOVERING, PartitionState, Topic, decode_state, encode_state

REPLICAS = [1, 2, 3]


def state(leader=1, isr=(1, 2, 3), epoch=5, recovery=RECOVERED):
    return PartitionState(leader, epoch, list(isr), 9, recovery)


def online(*brokers):
    return lambda broker_id: broker_id in brokers


@pytest.mark.parametrize(
    ("alive", "expected"),
    [((1, 2, 3), (1, [1, 2, 3])), ((3, 2), (2, [2, 3])), ((), None)],
)
def test_a_new_partition_is_led_by_its_first_live_replica(alive, expected):
    found = elections.first_state(REPLICAS, online(*alive))
    assert found == (None if expected is None else PartitionState(expected[0], 0, expected[1], 0))


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize(
    ("isr", "alive", "clean", "leader", "new_isr"),
    [
        ((1, 2, 3), (2, 3), True, 2, [2, 3]),
        ((3, 2), (2, 3), True, 2, [3, 2]),
        ((1, 3), (2, 3), True, 3, [3]),
        ((1,), (3, 2), False, 2, [2]),
        ((1, 9), (9,), False, None, None),  # 9 is in the ISR, but is no longer a replica
        ((1,), (), False, None, None),
    ],
)
def test_after_the_loss_of_the_leader_a_live_member_of_the_isr_leads(unclean, isr, alive, clean, leader, new_isr):
    found = elections.elect_offline(REPLICAS, state(isr=isr), online(*alive), unclean=unclean)
    if leader is None or (not clean and not unclean):
        assert found is None
    else:
        assert found == state(leader, new_isr, 6, RECOVERED if clean else RECOVERING)


def test_a_clean_election_keeps_the_recovery_state():
    found = elections.elect_offline(REPLICAS, state(1, (1, 2), recovery=RECOVERING), online(2), unclean=True)
    assert found == state(2, (2,), 6, RECOVERING)


@pytest.mark.parametrize(
    ("alive", "isr", "elected"), [((1, 2), (2, 1), 1), ((2, 3), (1, 2, 3), None), ((1, 2), (2,), None)]
)
def test_only_the_preferred_replica_wins_a_preferred_election_and_the_isr_stays(alive, isr, elected):
    found = elections.elect_preferred(REPLICAS, state(2, isr), online(*alive))
    assert found == (None if elected is None else state(elected, isr, 6))


def test_a_move_is_led_by_the_first_target_replica_that_is_live_and_in_sync():
    assert elections.elect_among([5, 4, 3], state(1, (1, 3, 4)), online(1, 3, 4)) == state(4, (1, 3, 4), 6)
    assert elections.elect_among([5], state(1, (1, 3)), online(1, 3, 5)) is None


@pytest.mark.parametrize(
    ("shutting_down", "leader", "isr"), [({1}, 2, [2, 3]), ({1, 2}, 3, [3]), ({1, 2, 3}, None, None)]
)
def test_a_broker_that_shuts_down_leaves_the_isr_and_hands_over(shutting_down, leader, isr):
    found = elections.elect_for_shutdown(REPLICAS, state(), online(1, 2, 3), shutting_down)
    assert found == (None if leader is None else state(leader, isr, 6))


@pytest.mark.parametrize(
    ("isr", "gone", "leader", "new_isr"),
    [
        ((1, 2, 3), {3}, 1, [1, 2]),
        ((1, 2, 3), {1}, NO_LEADER, [2, 3]),
        ((1,), {1}, NO_LEADER, [1]),  # the last member stays: only it has all committed records
        ((1, 2), {1, 2}, NO_LEADER, [1, 2]),
    ],
)
def test_replicas_that_are_gone_leave_the_isr(isr, gone, leader, new_isr):
    assert elections.without(state(isr=isr), gone) == state(leader, new_isr, 6)


def test_a_replica_that_is_not_in_the_isr_changes_nothing_when_it_goes():
    assert elections.without(state(isr=(1, 2)), {3}) is None
    assert elections.without(state(NO_LEADER, (1,)), {1}) is None


def test_too_many_partitions_led_by_others_are_an_imbalance():
    assert not elections.is_imbalanced(10, 1, 10)
    assert elections.is_imbalanced(10, 2, 10)
    assert not elections.is_imbalanced(0, 0, 10)


def test_the_recovery_state_is_in_the_node_only_while_the_partition_recovers():
    assert b"recovery" not in encode_state(state())
    assert decode_state(encode_state(state(recovery=RECOVERING)), "/path") == state(recovery=RECOVERING)


ASKED = IsrRequest("t", 0, leader_epoch=5, partition_epoch=7, isr=[1, 2])
PRESENT = Partition(Topic("t", bytes(16), {0: REPLICAS}), 0, state(1, (1, 2, 3)), 7)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"leader_epoch": 6}, Errors.NOT_CONTROLLER),
        ({"partition_epoch": 8}, Errors.NOT_CONTROLLER),
        ({"leader_epoch": 4}, Errors.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 6}, Errors.INVALID_UPDATE_VERSION),
        ({"recovery": RECOVERING}, Errors.INVALID_REQUEST),
        ({"recovery": RECOVERING, "isr": [1]}, Errors.INVALID_REQUEST),
        ({"isr": [1, 4]}, Errors.INELIGIBLE_REPLICA),
    ],
)
def test_a_change_of_the_isr_is_refused_as_in_kafka(change, code):
    with pytest.raises(KafkaError) as caught:
        decide(ASKED._replace(**change), 1, PRESENT, [1, 2, 3])
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("asked", "broker_id", "present", "code"),
    [
        (ASKED, 1, None, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        (ASKED._replace(topic_id=b"another topic id"), 1, PRESENT, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        (ASKED, 2, PRESENT, Errors.FENCED_LEADER_EPOCH),
    ],
)
def test_a_change_of_the_isr_is_refused_for_a_partition_that_does_not_exist_or_another_leader(
    asked, broker_id, present, code
):
    with pytest.raises(KafkaError) as caught:
        decide(asked, broker_id, present, [1, 2])
    assert caught.value.code == code


def test_the_wanted_isr_is_written_in_the_same_leader_epoch():
    assert decide(ASKED, 1, PRESENT, [1, 2, 3]) == PRESENT.in_state(state(1, (1, 2), 5))


@pytest.mark.parametrize("partition_epoch", [6, 7])
def test_an_isr_that_is_written_already_is_answered_as_it_is(partition_epoch):
    """The response to the first request was lost, and the leader repeats it."""
    asked = ASKED._replace(isr=[1, 2, 3], partition_epoch=partition_epoch)
    assert decide(asked, 1, PRESENT, [1, 2, 3]) is PRESENT
