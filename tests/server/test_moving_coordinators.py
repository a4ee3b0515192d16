"""Coordinators that move from one broker to another, and commits that count only when they are replicated."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.coordinator.internal_topic_config import GROUPS
from kafkapy.errors import Errors
from tests.server.coordinator_cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def test_a_commit_counts_when_it_is_replicated(cluster: Cluster) -> None:
    first, second = cluster.members
    codes = first.commit(5)
    assert (codes, first.committed()) == ([], -1)
    cluster.replicate(GROUPS)
    assert (codes, first.committed()) == ([[Errors.NONE]], 5)
    assert second.committed() == -Errors.NOT_COORDINATOR


def test_a_commit_moves_with_the_coordinator(cluster: Cluster) -> None:
    first, second = cluster.members
    first.commit(5)
    cluster.replicate(GROUPS)
    cluster.elect(GROUPS, 1)
    assert first.committed() == -Errors.NOT_COORDINATOR
    assert second.committed() == 5


def test_a_commit_that_timed_out_counts_after_the_next_load(cluster: Cluster) -> None:
    first, second = cluster.members
    codes = first.commit(5)
    cluster.pass_time(5)
    assert codes == [[Errors.REQUEST_TIMED_OUT]]
    cluster.replicate(GROUPS)
    assert first.committed() == -1
    cluster.elect(GROUPS, 1)
    assert second.committed() == 5


def test_a_commit_that_waits_when_the_coordinator_moves_is_refused(cluster: Cluster) -> None:
    first, _ = cluster.members
    codes = first.commit(5)
    cluster.elect(GROUPS, 1)
    cluster.pass_time(0)
    assert codes == [[Errors.NOT_COORDINATOR]]


def test_a_waiting_commit_keeps_waiting_in_the_next_epoch_of_the_same_leader(cluster: Cluster) -> None:
    """When the follower dies, the controller takes it out of the ISR in a new leader epoch of the same leader."""
    first, second = cluster.members
    codes = first.commit(5)
    second.is_alive = False
    cluster.elect(GROUPS, 0, isr=[0])
    cluster.pass_time(0)
    assert (codes, first.committed()) == ([[Errors.NONE]], 5)


def test_members_that_wait_notice_nothing_of_a_new_epoch_of_the_same_leader(cluster: Cluster) -> None:
    first, second = cluster.members
    joined = first.groups.join()
    cluster.pass_time(0)
    member = joined.answer.member_id
    synced = first.groups.sync(member, 1, {member: b"mine"})
    waiting = first.groups.join(client="another")
    second.is_alive = False
    cluster.elect(GROUPS, 0, isr=[0])
    cluster.pass_time(0)
    assert not waiting.is_answered
    assert synced.is_answered
    rejoined = first.groups.join(member)
    cluster.pass_time(0)
    assert (waiting.answer.generation_id, rejoined.answer.generation_id) == (2, 2)


def test_members_that_wait_for_others_look_for_the_coordinator_when_it_moves(cluster: Cluster) -> None:
    first, second = cluster.members
    joined = first.groups.join()
    cluster.pass_time(0)
    member = joined.answer.member_id
    synced = first.groups.sync(member, 1, {member: b"mine"})
    cluster.replicate(GROUPS)
    assert synced.code == Errors.NONE
    joining = first.groups.join(client="another")
    cluster.elect(GROUPS, 1)
    assert joining.code == Errors.NOT_COORDINATOR
    assert first.groups.heartbeat(member, 1) == Errors.NOT_COORDINATOR
    assert second.groups.heartbeat(member, 1) == Errors.NONE


def test_members_that_wait_for_an_assignment_look_for_the_coordinator_when_it_moves(cluster: Cluster) -> None:
    """The assignment is in the log of the former coordinator, but not replicated, and therefore lost."""
    first, second = cluster.members
    joined = first.groups.join()
    cluster.pass_time(0)
    member = joined.answer.member_id
    synced = first.groups.sync(member, 1, {member: b"mine"})
    assert not synced.is_answered
    cluster.elect(GROUPS, 1)
    cluster.pass_time(0)
    assert synced.code == Errors.NOT_COORDINATOR
    assert first.groups.heartbeat(member, 1) == Errors.NOT_COORDINATOR
    assert second.groups.heartbeat(member, 1) == Errors.UNKNOWN_MEMBER_ID


def test_a_follower_between_two_epochs_of_a_leader_makes_it_load_again(cluster: Cluster) -> None:
    first, second = cluster.members
    first.commit(5)
    cluster.replicate(GROUPS)
    cluster.elect(GROUPS, 1)
    second.commit(6)
    cluster.replicate(GROUPS)
    cluster.elect(GROUPS, 0)
    assert first.committed() == 6


def test_a_shard_that_is_loading_is_loaded_again_in_a_new_epoch(cluster: Cluster) -> None:
    first, second = cluster.members
    first.commit(5)
    cluster.replicate(GROUPS)
    second.loads.held = True
    cluster.elect(GROUPS, 1)
    assert second.committed() == -Errors.COORDINATOR_LOAD_IN_PROGRESS
    cluster.elect(GROUPS, 1)
    assert second.committed() == -Errors.COORDINATOR_LOAD_IN_PROGRESS
    second.loads.run()
    assert second.committed() == 5


def test_the_coordinators_log_that_is_loading_is_no_sign_of_a_coordinator_elsewhere(cluster: Cluster) -> None:
    """This broker may soon lead a log that it is recovering, unless the metadata name another leader."""
    _, second = cluster.members
    second.replicas.expect(GROUPS, [0])
    assert second.committed() == -Errors.NOT_COORDINATOR
    assert not second.coordinators.group_shards.is_loading
    cluster._role = cluster._role._replace(topic=GROUPS, leader=1)
    cluster.tell()
    assert second.committed() == -Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert second.coordinators.group_shards.is_loading
