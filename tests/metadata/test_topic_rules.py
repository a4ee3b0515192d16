"""The rules for new topics and partitions: names, counts, and the assignment of replicas to brokers."""

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topic_rules import (
    MAX_NEW_PARTITIONS,
    check_collision,
    is_internal,
    plan_more_partitions,
    plan_topic,
    spread_over_racks,
    validate_name,
)


def refused(code: int, call: object, *arguments: object, **keywords: object) -> None:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **keywords)  # type: ignore[operator]
    assert caught.value.code == code
    assert caught.value.message


@pytest.mark.parametrize("name", ["a", "a..b", "...", "_", "-", "A.b_C-9", "x" * 249, "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    validate_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250, "ä", "a b", "a\n", "a\0", "a:b", "٣"])
def test_illegal_names(name: str) -> None:
    refused(Errors.INVALID_TOPIC_EXCEPTION, validate_name, name)


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    refused(Errors.INVALID_TOPIC_EXCEPTION, check_collision, "a.b", ["x", "a_b"])
    refused(Errors.INVALID_TOPIC_EXCEPTION, check_collision, "a_b", ["a.b"])
    check_collision("a.b", ["a.b", "a.c", "ab", "a-b"])
    check_collision("ab", ["a.b"])


def test_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert is_internal("__transaction_state")
    assert not is_internal("__mine")


def planned(
    partitions: int = -1, replicas: int = -1, by_hand: object = None, brokers: object = (7,)
) -> dict[int, list[int]]:
    return plan_topic(brokers, partitions, replicas, by_hand, default_partitions=3, default_replication=1)  # type: ignore[arg-type]


def test_counts_default_to_the_settings() -> None:
    assert planned() == {0: [7], 1: [7], 2: [7]}
    assert planned(1, 1) == {0: [7]}


def test_leaders_are_assigned_round_robin_and_replicas_to_different_brokers() -> None:
    assignment = planned(3, 2, brokers=(1, 2, 3))
    assert sorted(replicas[0] for replicas in assignment.values()) == [1, 2, 3]
    assert all(len(set(replicas)) == 2 for replicas in assignment.values())


@pytest.mark.parametrize("count", [0, -2, -(2**31)])
def test_a_topic_needs_partitions(count: int) -> None:
    refused(Errors.INVALID_PARTITIONS, planned, count, 1)


@pytest.mark.parametrize("count", [0, -2, 2, 32767])
def test_a_replication_factor_needs_that_many_brokers(count: int) -> None:
    refused(Errors.INVALID_REPLICATION_FACTOR, planned, 1, count)


def test_too_many_partitions_at_once_are_refused() -> None:
    refused(Errors.POLICY_VIOLATION, planned, MAX_NEW_PARTITIONS + 1, 1)
    refused(Errors.POLICY_VIOLATION, planned, 2**31 - 1, 1)
    refused(Errors.POLICY_VIOLATION, plan_more_partitions, "t", {0: [7]}, [7], 2**31 - 1, None)


def test_a_manual_assignment_is_used_unchanged() -> None:
    assert planned(by_hand={1: [7], 0: [7]}) == {0: [7], 1: [7]}


@pytest.mark.parametrize(
    "by_hand",
    [
        {0: [8]},
        {0: [7, 7]},
        {0: []},
        {0: [7], 2: [7]},
        {1: [7]},
        {-1: [7], 0: [7]},
    ],
)
def test_an_invalid_manual_assignment_is_refused(by_hand: dict[int, list[int]]) -> None:
    refused(Errors.INVALID_REPLICA_ASSIGNMENT, planned, by_hand=by_hand)


def test_a_manual_assignment_needs_equal_replica_counts() -> None:
    refused(Errors.INVALID_REPLICA_ASSIGNMENT, planned, by_hand={0: [1], 1: [1, 2]}, brokers=(1, 2))


@pytest.mark.parametrize(("partitions", "replicas"), [(1, -1), (-1, 1), (1, 1)])
def test_a_manual_assignment_excludes_counts(partitions: int, replicas: int) -> None:
    refused(Errors.INVALID_REQUEST, planned, partitions, replicas, {0: [7]})


def test_added_partitions_begin_with_the_leader_of_the_first_partition_as_in_kafka() -> None:
    assert plan_more_partitions("t", {0: [2, 3]}, {1: None, 2: None, 3: None}, 3, None) == {1: [3, 2], 2: [1, 3]}
    assert plan_more_partitions("t", {0: [7]}, [7], 3, None) == {1: [7], 2: [7]}
    assert plan_more_partitions("t", {0: [7]}, [7], 2, [[7]]) == {1: [7]}


@pytest.mark.parametrize("count", [2, 1, 0, -5])
def test_partitions_cannot_shrink_or_stay(count: int) -> None:
    refused(Errors.INVALID_PARTITIONS, plan_more_partitions, "t", {0: [7], 1: [7]}, [7], count, None)


@pytest.mark.parametrize("by_hand", [[], [[7], [7]], [[]], [[7, 7]], [[8]], [[7, 9]]])
def test_invalid_manual_partitions_are_refused(by_hand: list[list[int]]) -> None:
    refused(Errors.INVALID_REPLICA_ASSIGNMENT, plan_more_partitions, "t", {0: [7]}, [7, 9], 2, by_hand)


def test_replicas_without_racks_are_spread_as_kafka_spreads_them() -> None:
    """The example in AdminUtils: ten partitions with three replicas on five brokers, from the first broker on."""
    brokers = dict.fromkeys(range(5))
    assert spread_over_racks(brokers, 10, 3, start=0) == {
        0: [0, 1, 2],
        1: [1, 2, 3],
        2: [2, 3, 4],
        3: [3, 4, 0],
        4: [4, 0, 1],
        5: [0, 2, 3],
        6: [1, 3, 4],
        7: [2, 4, 0],
        8: [3, 0, 1],
        9: [4, 1, 2],
    }


def test_replicas_are_on_as_many_racks_as_possible() -> None:
    """The example in AdminUtils: six brokers on three racks, which alternate as 0, 3, 1, 5, 4, 2."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    spread = spread_over_racks(racks, 7, 3, start=0)
    assert [replicas[0] for replicas in spread.values()] == [0, 3, 1, 5, 4, 2, 0]
    assert spread == {
        0: [0, 3, 1],
        1: [3, 1, 5],
        2: [1, 5, 4],
        3: [5, 4, 2],
        4: [4, 2, 0],
        5: [2, 0, 3],
        6: [0, 4, 2],
    }
    for replicas in spread_over_racks(racks, 50, 5).values():
        assert len(set(replicas)) == 5
        assert {racks[one] for one in replicas} == {"rack1", "rack2", "rack3"}


def test_one_broker_gets_every_partition() -> None:
    assert spread_over_racks({4: None}, 2, 1) == {0: [4], 1: [4]}


def test_replicas_cannot_be_spread_over_too_few_brokers_or_racks_that_are_not_known() -> None:
    refused(Errors.INVALID_REPLICATION_FACTOR, spread_over_racks, {1: None}, 1, 2)
    refused(Errors.INVALID_REPLICATION_FACTOR, spread_over_racks, {1: None}, 1, 0)
    refused(Errors.INVALID_PARTITIONS, spread_over_racks, {1: None}, 0, 1)
    refused(Errors.UNKNOWN_SERVER_ERROR, spread_over_racks, {1: None, 2: "r"}, 1, 1)
