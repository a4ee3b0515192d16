"""A follower's log becomes its leader's log, over real sockets, with a stand-in leader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.protocol.apis import FETCH, LIST_OFFSETS
from tests.harness.stand_in_leader import LeaderOfLogs, StandInLeader
from tests.harness.waiting import eventually
from tests.log.support import Bench, batch
from tests.replica.follower_bench import BROKER_EPOCH, ME, FollowerBench

TOPIC_ID = bytes(range(1, 17))


class Leader:
    """A stand-in leader and one log that it leads, `t-0`."""

    def __init__(self, directory: Path, *, epoch: int = 0, **settings: Any) -> None:
        self.bench = Bench(directory, **settings)
        self.log = self.bench.load()
        self.logs = LeaderOfLogs()
        self.server = StandInLeader(self.logs)
        self.lead(epoch)

    def lead(self, epoch: int, topic_id: bytes = TOPIC_ID) -> None:
        self.log.assign_leader_epoch(epoch)
        self.logs.add(self.log, epoch, topic_id)
        self.epoch = epoch

    def produce(self, *values: Any, commit: bool = True, **options: Any) -> None:
        (verdict,) = self.log.append([batch(*values, **options)], self.epoch)
        assert not isinstance(verdict, Exception), verdict
        if commit:
            self.log.advance_high_watermark(self.log.log_end_offset, self.epoch)
        self.logs.notify()

    def close(self) -> None:
        self.logs.closed = True
        self.logs.notify()
        self.server.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    leader_bench = Leader(tmp_path / "leader")
    yield leader_bench
    leader_bench.close()


Make = Callable[..., FollowerBench]


@pytest.fixture
def make(tmp_path: Path, leader: Leader) -> Iterator[Make]:
    benches: list[FollowerBench] = []

    def maker(**options: Any) -> FollowerBench:
        benches.append(FollowerBench(tmp_path / "follower", leader.server.address, **options))
        return benches[-1]

    yield maker
    for bench in benches:
        bench.close()


def records_of(log: Any) -> bytes:
    """Return the bytes of all segments."""
    data = bytearray()
    for path in sorted(log.dir.glob("*.log")):
        data += path.read_bytes()
    return bytes(data)


def assert_follows(follower: FollowerBench, leader: Leader) -> None:
    own = follower.log()
    eventually(
        lambda: own.end[0] == leader.log.end[0] and own.high_watermark == leader.log.high_watermark,
        what=lambda: f"{own} with high watermark {own.high_watermark}, {leader.log} with {leader.log.high_watermark}",
    )
    assert records_of(own) == records_of(leader.log)
    assert own.leader_epochs.entries == leader.log.leader_epochs.entries


def test_a_follower_copies_what_is_there_and_what_comes(leader: Leader, make: Make) -> None:
    leader.produce("a", "b")
    follower = make()
    follower.follow(topic_id=TOPIC_ID)
    assert_follows(follower, leader)
    for number in range(20):
        leader.produce(number)
        assert_follows(follower, leader)
    assert follower.fetching.bytes_in == len(records_of(leader.log))
    first, second = leader.server.fetches[:2]
    assert (first.session_id, first.session_epoch, second.session_epoch) == (0, 0, 1)
    assert second.session_id != 0
    assert first.replica_state.replica_id == ME
    assert first.replica_state.replica_epoch == BROKER_EPOCH
    (topic,) = first.topics
    (asked,) = topic.partitions
    assert topic.topic_id == TOPIC_ID
    assert (asked.fetch_offset, asked.current_leader_epoch, asked.last_fetched_epoch) == (0, 0, -1)


def test_a_partition_without_topic_id_is_fetched_by_name(leader: Leader, make: Make) -> None:
    leader.lead(0, bytes(16))
    leader.produce("a")
    follower = make()
    follower.follow()
    assert_follows(follower, leader)
    assert {version for api, version, _ in leader.server.requests if api is FETCH} == {12}
    assert leader.server.fetches[0].replica_id == ME


def test_a_session_names_only_what_has_changed(leader: Leader, make: Make) -> None:
    leader.produce("a")
    follower = make()
    follower.follow(topic_id=TOPIC_ID)
    assert_follows(follower, leader)
    before = len(leader.server.fetches)
    leader.server.wait(lambda: len(leader.server.fetches) > before + 3)
    assert all(not fetch.topics and fetch.session_epoch for fetch in leader.server.fetches[before + 1 :])


def test_large_responses_are_appended_on_a_pool(leader: Leader, make: Make) -> None:
    for number in range(40):
        leader.produce(bytes([number]) * 20_000)
    follower = make()
    follower.follow(topic_id=TOPIC_ID)
    assert_follows(follower, leader)
    assert len(leader.server.fetches) < 10


def test_a_leader_without_sessions_is_asked_in_full_each_time(leader: Leader, make: Make) -> None:
    leader.logs.forget_sessions = True
    leader.produce("a")
    follower = make()
    follower.follow(topic_id=TOPIC_ID)
    assert_follows(follower, leader)
    leader.produce("b")
    assert_follows(follower, leader)
    assert {(fetch.session_id, fetch.session_epoch) for fetch in leader.server.fetches} == {(0, 0)}


@pytest.mark.parametrize("lost", ["session", "epoch", "connection"])
def test_a_lost_session_or_connection_is_replaced(leader: Leader, make: Make, lost: str) -> None:
    follower = make()
    follower.follow(topic_id=TOPIC_ID)
    leader.produce("a")
    assert_follows(follower, leader)
    if lost == "session":
        leader.logs.sessions.clear()
    elif lost == "epoch":
        leader.logs._epochs.update(dict.fromkeys(leader.logs._epochs, 99))
    else:
        leader.server.drop_connections()
    for number in range(3):
        leader.produce(number)
        assert_follows(follower, leader)


def test_diverging_records_are_replaced_by_the_leaders(leader: Leader, make: Make, tmp_path: Path) -> None:
    leader.produce("a")
    leader.lead(1)
    leader.produce("b")
    follower = make()
    role = follower.follow(topic_id=TOPIC_ID, epoch=1)
    assert_follows(follower, leader)
    follower.fetching.stop(role)
    # The follower becomes the leader, and appends records that no other replica has.
    own = follower.log()
    own.assign_leader_epoch(2)
    own.append([batch("x", "y", "z")], 2)
    leader.lead(3)
    leader.produce("c", commit=False)
    follower.follow(topic_id=TOPIC_ID, epoch=3)
    assert_follows(follower, leader)


def test_a_follower_whose_offset_is_gone_begins_at_the_leaders_start(leader: Leader, make: Make) -> None:
    follower = make()
    role = follower.follow(topic_id=TOPIC_ID)
    leader.produce("a")
    assert_follows(follower, leader)
    follower.fetching.stop(role)
    leader.produce("b", "c")
    leader.log.roll()
    leader.produce("d")
    leader.log.delete_records(3)
    leader.log.delete_old_segments()
    follower.follow(topic_id=TOPIC_ID, epoch=1)
    leader.lead(1)
    eventually(lambda: follower.log().end[0] == leader.log.end[0])
    assert follower.log().log_start_offset == 3
    asked = [one.topics[0].partitions[0].timestamp for api, _, one in leader.server.requests if api is LIST_OFFSETS]
    assert asked == [-1, -2]
