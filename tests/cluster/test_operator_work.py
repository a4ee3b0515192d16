"""The check of operator_work.py finds topics that differ from all that the operator's requests can have led to."""

from typing import Any

from tests.cluster.operator_work import Partition, Topic, check_topics


def asked(*assignments: tuple[int, ...]) -> dict[str, Topic]:
    return {"t": Topic({p: Partition([ids]) for p, ids in enumerate(assignments)})}


def node(*assignments: list[int], **more: Any) -> dict[str, Any]:
    return {"t": {"partitions": {str(p): ids for p, ids in enumerate(assignments)}, **more}}


def test_topics_that_are_as_asked_have_no_problem() -> None:
    assert check_topics(asked((1, 2), (2, 3)), node([1, 2], [2, 3])) == []


def test_a_lost_topic_and_one_that_came_back_are_found() -> None:
    topics = asked((1, 2))
    assert check_topics(topics, {}) == ["t does not exist, which was not asked for"]
    topics["t"].exists = {False}
    assert check_topics(topics, node([1, 2])) == ["t exists, which was not asked for"]
    topics["t"].exists = {True, False}
    assert check_topics(topics, {}) == check_topics(topics, node([1, 2])) == []


def test_other_replicas_are_found_unless_a_late_request_explains_them() -> None:
    topics = asked((1, 2))
    assert check_topics(topics, node([2, 1])) == ["t-0 is on brokers (2, 1), not [(1, 2)]"]
    topics["t"].partitions[0].late.add((2, 1))
    assert check_topics(topics, node([2, 1])) == []


def test_replicas_that_the_controller_chose_must_be_different_brokers() -> None:
    topics = {"t": Topic({0: Partition()})}
    assert check_topics(topics, node([3, 1])) == []
    assert check_topics(topics, node([3, 3])) == ["t-0 is on brokers (3, 3), not []"]


def test_a_wrong_number_of_partitions_is_found() -> None:
    assert check_topics(asked((1,)), node([1], [1])) == ["t has the partitions [0, 1], not {1} of them"]


def test_a_reassignment_that_did_not_end_is_found() -> None:
    (problem,) = check_topics(asked((1,)), node([1], adding_replicas={"0": [1]}))
    assert problem.startswith("t is still being reassigned")
