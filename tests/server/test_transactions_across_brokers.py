"""Transactions whose coordinator and partitions are on different brokers, while leaders die and leaderships move.

Broker 0 leads the partition of `__transaction_state` and topic "t", and broker 1 topic "u".
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.coordinator.internal_topic_config import GROUPS, TRANSACTIONS
from kafkapy.errors import Errors
from kafkapy.metadata.roles import NO_LEADER
from kafkapy.protocol.apis import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from tests.server.coordinator_cluster import Cluster

T, U, OFFSETS = ("t", 0), ("u", 0), (GROUPS, 0)
LONG = 10  # seconds, enough for a retry


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, brokers=3)
    cluster.elect("u", 1)
    yield cluster
    cluster.close()


def replicate(cluster: Cluster) -> None:
    """Replicate the markers, then the resulting transaction states, then the markers that waited for responses."""
    for topic in ("t", "u", GROUPS, TRANSACTIONS) * 2:
        cluster.replicate(topic)


# --- markers


@pytest.mark.parametrize("commit", [True, False])
def test_markers_go_to_the_leaders_of_the_partitions(cluster: Cluster, commit: bool) -> None:
    first, second, _ = cluster.members
    producer = first.init()
    first.add(producer, T, U)
    assert first.end(producer, commit) == [Errors.NONE]
    (request,) = cluster.network.requests
    assert (request.sender, request.receiver, request.api, request.version) == (0, 1, WRITE_TXN_MARKERS, 1)
    assert first.state().startswith("Prepare")
    replicate(cluster)
    assert first.state().startswith("Complete")
    assert first.markers("t") == second.markers("u") == [(producer.id, 0, commit)]


def test_markers_for_a_broker_wait_for_its_response_and_then_go_together(cluster: Cluster) -> None:
    first, second, _ = cluster.members
    cluster.network.held = True
    ids = [f"tx-{number}" for number in range(4)]
    producers = []
    for transactional_id in ids:
        producer = first.init(transactional_id)
        first.add(producer, U, transactional_id=transactional_id)
        first.end(producer, transactional_id=transactional_id)
        producers.append(producer)
    assert len(cluster.network.requests) == 1
    cluster.network.deliver()
    cluster.replicate("u")
    _, request = cluster.network.requests
    assert [one.producer_id for one in request.message.markers] == [one.id for one in producers[1:]]
    cluster.network.held = False
    cluster.network.deliver()
    replicate(cluster)
    assert {first.state(transactional_id) for transactional_id in ids} == {"CompleteCommit"}
    assert [one for one, _, _ in second.markers("u")] == [one.id for one in producers]


def test_a_marker_waits_for_a_leader_that_is_not_alive_and_follows_the_election(cluster: Cluster) -> None:
    first, second, third = cluster.members
    producer = first.init()
    first.add(producer, U)
    second.is_alive = False
    assert first.end(producer) == []  # the dead follower holds back the high watermark
    cluster.elect(TRANSACTIONS, 0, isr=[0, 2])
    replicate_alive(cluster, TRANSACTIONS)
    cluster.pass_time(LONG)
    assert (first.state(), cluster.network.requests) == ("PrepareCommit", [])
    cluster.elect("u", NO_LEADER)
    cluster.pass_time(LONG)
    assert (first.state(), cluster.network.requests) == ("PrepareCommit", [])
    cluster.elect("u", 2, isr=[2, 0])
    cluster.pass_time(LONG)
    replicate_alive(cluster, "u", TRANSACTIONS)
    assert first.state() == "CompleteCommit"
    assert [producer_id for producer_id, _, _ in third.markers("u")] == [producer.id]


def replicate_alive(cluster: Cluster, *topics: str) -> None:
    for topic in topics:
        cluster.replicate(topic)
    cluster.pass_time(0)


def test_a_marker_is_sent_again_if_its_broker_did_not_answer(cluster: Cluster) -> None:
    first, second, _ = cluster.members
    producer = first.init()
    first.add(producer, U)
    cluster.network.lost.add((0, 1))
    first.end(producer)
    cluster.pass_time(LONG)
    assert len(cluster.network.requests) > 2
    cluster.network.lost.clear()
    cluster.pass_time(LONG)
    replicate(cluster)
    assert first.state() == "CompleteCommit"
    assert len(second.markers("u")) == 1


def test_a_marker_that_is_not_replicated_in_time_is_written_again(cluster: Cluster) -> None:
    first, second, _ = cluster.members
    producer = first.init()
    first.add(producer, U)
    first.end(producer)
    cluster.pass_time(31)  # request.timeout.ms
    replicate(cluster)
    cluster.pass_time(LONG)
    replicate(cluster)
    assert first.state() == "CompleteCommit"
    assert set(second.markers("u")) == {(producer.id, 0, True)}
    assert len(second.markers("u")) >= 2


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_partition_is_skipped_only_if_all_partitions_are_known(cluster: Cluster, is_complete: bool) -> None:
    """A broker may become the coordinator before it has complete metadata."""
    first, _, _ = cluster.members
    producer = first.init()
    first.add(producer, U)
    first.services.cache.is_complete = is_complete
    cluster.delete("u")
    first.end(producer)
    cluster.pass_time(LONG)
    cluster.replicate(TRANSACTIONS)
    assert first.state() == ("CompleteCommit" if is_complete else "PrepareCommit")


def test_the_next_coordinator_completes_the_transaction(cluster: Cluster) -> None:
    first, second, third = cluster.members
    producer = first.init()
    first.add(producer, T, U)
    cluster.network.lost.add((0, 1))
    first.end(producer)
    cluster.elect(TRANSACTIONS, 2)
    cluster.pass_time(LONG)
    replicate(cluster)
    assert first.state() == "NOT_COORDINATOR"
    assert third.state() == "CompleteCommit"
    assert second.markers("u") == [(producer.id, 1, True)]
    assert first.markers("t")[-1] == (producer.id, 1, True)


def test_markers_of_a_coordinator_that_has_moved_are_not_sent(cluster: Cluster) -> None:
    first, second, third = cluster.members
    cluster.network.held = True
    before = first.init("before")
    first.add(before, U, transactional_id="before")
    first.end(before, transactional_id="before")  # this request is sent and not delivered
    producer = first.init()
    first.add(producer, U)
    first.end(producer)  # this one waits for the response
    cluster.elect(TRANSACTIONS, 2)
    cluster.network.held = False
    cluster.network.deliver()
    cluster.pass_time(LONG)
    replicate(cluster)
    assert [request.sender for request in cluster.network.requests if request.sender == 0] == [0]
    assert {third.state(), third.state("before")} == {"CompleteCommit"}
    assert (producer.id, 0, True) not in second.markers("u")


def test_a_late_marker_of_a_former_coordinator_is_fenced(cluster: Cluster) -> None:
    first, second, third = cluster.members
    producer = first.init()
    first.add(producer, U)
    cluster.network.held = True
    first.end(producer)
    late = cluster.network._waiting
    cluster.network._waiting, cluster.network.held = [], False
    cluster.elect(TRANSACTIONS, 2)
    cluster.pass_time(LONG)
    replicate(cluster)
    assert third.state() == "CompleteCommit"
    for carry_out in late:
        carry_out()
    cluster.pass_time(LONG)
    assert second.markers("u") == [(producer.id, 1, True)]
    assert len([request for request in cluster.network.requests if request.sender == 0]) == 1, "and it gives up"


def test_a_new_epoch_of_the_same_coordinator_sends_markers_of_its_own(cluster: Cluster) -> None:
    first, second, _ = cluster.members
    producer = first.init()
    first.add(producer, U)
    cluster.network.lost.add((0, 1))
    first.end(producer)
    cluster.elect(TRANSACTIONS, 0)
    cluster.network.lost.clear()
    cluster.pass_time(LONG)
    replicate(cluster)
    assert first.state() == "CompleteCommit"
    assert second.markers("u") == [(producer.id, 1, True)]


def test_a_transaction_commits_offsets_at_a_group_coordinator_on_another_broker(cluster: Cluster) -> None:
    first, second, _ = cluster.members
    cluster.elect(GROUPS, 1)
    producer = first.init()
    first.add(producer, OFFSETS)
    codes = second.commit(7, producer=producer)
    cluster.replicate(GROUPS)
    assert (codes, second.committed()) == ([[Errors.NONE]], -1)
    first.end(producer)
    assert second.committed() == -1
    replicate(cluster)
    assert second.committed() == 7
    assert first.state() == "CompleteCommit"


# --- verifications


def test_the_coordinator_on_another_broker_verifies(cluster: Cluster) -> None:
    first, second, _ = cluster.members
    producer = first.init()
    first.add(producer, U)
    assert second.verify(producer, U) == [{}]
    (request,) = cluster.network.requests
    assert (request.sender, request.receiver, request.api, request.version) == (1, 0, ADD_PARTITIONS_TO_TXN, 5)
    assert request.message.transactions[0].verify_only
    cluster.elect("t", 1)
    assert second.verify(producer, T) == [{T: Errors.TRANSACTION_ABORTABLE}]


def test_the_highest_common_version_is_used(cluster: Cluster) -> None:
    first, second, _ = cluster.members
    producer = first.init()
    first.add(producer, U)
    cluster.network.versions[0, ADD_PARTITIONS_TO_TXN] = 4
    assert second.verify(producer, U) == [{}]
    assert [request.version for request in cluster.network.requests] == [4]


def test_a_coordinator_that_cannot_verify_is_not_asked(cluster: Cluster) -> None:
    """Kafka before 3.6 serves AddPartitionsToTxn only up to v3, which cannot verify."""
    _, second, _ = cluster.members
    producer = cluster.members[0].init()
    cluster.network.versions[0, ADD_PARTITIONS_TO_TXN] = 3
    assert second.verify(producer, U) == [{}]
    assert cluster.network.requests == []


def test_verifications_wait_for_the_response_and_then_go_together(cluster: Cluster) -> None:
    first, second, _ = cluster.members
    cluster.elect("t", 1)
    producers = [first.init(f"tx-{number}") for number in range(3)]
    for number, producer in enumerate(producers):
        first.add(producer, T, U, transactional_id=f"tx-{number}")
    cluster.network.held = True
    answers = [second.verify(producer, U, transactional_id=f"tx-{number}") for number, producer in enumerate(producers)]
    answers.append(second.verify(producers[2], T, transactional_id="tx-2"))
    assert len(cluster.network.requests) == 1
    cluster.network.deliver()
    _, request = cluster.network.requests
    named = {one.transactional_id: len(one.topics) for one in request.message.transactions}
    assert named == {"tx-1": 1, "tx-2": 2}
    cluster.network.deliver()
    assert answers == [[{}]] * 4


def test_a_fenced_producer_is_not_verified_beside_the_next_one(cluster: Cluster) -> None:
    first, second, _ = cluster.members
    cluster.network.held = True
    busy = first.init("busy")
    second.verify(busy, U, transactional_id="busy")
    old, new = first.init(), first.init()
    before, after, late = second.verify(old, U), second.verify(new, U), second.verify(old, U)
    cluster.network.deliver()
    assert (before, after, late) == ([{U: Errors.INVALID_PRODUCER_EPOCH}], [], [{U: Errors.INVALID_PRODUCER_EPOCH}])
    first.add(new, U)
    cluster.network.deliver()
    assert after == [{}]


@pytest.mark.parametrize(
    ("trouble", "code"),
    [("lost", Errors.NETWORK_EXCEPTION), ("dead", Errors.COORDINATOR_NOT_AVAILABLE), ("moved", Errors.NOT_COORDINATOR)],
)
def test_a_producer_tries_again_if_the_coordinator_cannot_answer(cluster: Cluster, trouble: str, code: int) -> None:
    first, second, _ = cluster.members
    producer = first.init()
    first.add(producer, U)
    if trouble == "lost":
        cluster.network.lost.add((1, 0))
    elif trouble == "dead":
        first.is_alive = False
    else:
        cluster.elect(TRANSACTIONS, 2, tell=False)
    assert second.verify(producer, U) == [{U: code}]
