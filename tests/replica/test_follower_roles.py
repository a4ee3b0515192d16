"""Followers whose role, connection count or settings change; what a follower flushes, truncates and wakes up."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.failures import Shortage
from kafkapy.log.partition_log import PartitionLog
from kafkapy.metadata.roles import NO_LEADER
from kafkapy.protocol.apis import FETCH
from kafkapy.replica.fetchers import fetcher_index
from kafkapy.runtime.threads import NoThread
from tests.harness.stand_in_leader import LeaderOfLogs, StandInLeader
from tests.harness.waiting import eventually
from tests.log.support import Bench, batch
from tests.replica.follower_bench import LEADER, FollowerBench

TOPIC_ID = bytes(range(1, 17))
PARTITIONS = 6


class Leader(LeaderOfLogs):
    """The leader of six partitions of topic `t`."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        bench = Bench(directory)
        self.epoch = 0
        for index in range(PARTITIONS):
            log = PartitionLog.load(bench.env, str(directory / f"t-{index}"), "t", index, bench.config)
            log.assign_leader_epoch(0)
            self.add(log, 0, TOPIC_ID)
        self.server = StandInLeader(self)

    def produce(self, index: int = 0, *values: Any, commit: bool = True) -> None:
        log = self.logs["t", index]
        (verdict,) = log.append([batch(*(values or (b"v",)))], self.epoch)
        assert not isinstance(verdict, KafkaError)
        if commit:
            log.advance_high_watermark(log.log_end_offset, self.epoch)
        self.notify()

    def close(self) -> None:
        self.closed = True
        self.notify()
        self.server.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    made = Leader(tmp_path / "leader")
    yield made
    made.close()


Make = Callable[..., FollowerBench]


@pytest.fixture
def make(tmp_path: Path, leader: Leader) -> Iterator[Make]:
    made: list[FollowerBench] = []

    def maker(**options: Any) -> FollowerBench:
        made.append(FollowerBench(tmp_path / "follower", leader.server.address, **options))
        return made[-1]

    yield maker
    for bench in made:
        bench.close()


def is_copied(follower: FollowerBench, leader: Leader, index: int = 0) -> bool:
    own, theirs = follower.log("t", index), leader.logs["t", index]
    return own.end[0] == theirs.end[0] and own.high_watermark == theirs.high_watermark


def are_copied(follower: FollowerBench, leader: Leader) -> bool:
    return all(is_copied(follower, leader, index) for index in range(PARTITIONS))


def follow_all(follower: FollowerBench) -> None:
    for index in range(PARTITIONS):
        follower.follow("t", index, topic_id=TOPIC_ID)


@pytest.mark.parametrize(
    ("topic", "partition", "count", "index"),
    # In Java, "t".hashCode() is 116. That of the long name is Integer.MIN_VALUE, for which Utils.abs returns 0.
    [("t", 0, 1, 0), ("t", 0, 3, 2), ("t", 5, 4, 1), ("polygenelubricants", 0, 4, 0), ("polygenelubricants", 5, 4, 3)],
)
def test_the_fetcher_of_a_partition_is_kafkas(topic: str, partition: int, count: int, index: int) -> None:
    assert fetcher_index(topic, partition, count) == index


def test_a_change_of_the_number_of_fetchers_loses_nothing(leader: Leader, make: Make) -> None:
    follower = make()
    follow_all(follower)
    for fetchers in (3, 2, 1):
        for index in range(PARTITIONS):
            leader.produce(index)
        eventually(lambda: are_copied(follower, leader))
        before = len(follower.links)
        follower.fetching.resize(fetchers)
        leader.produce(0)
        eventually(lambda: are_copied(follower, leader))
        eventually(lambda: len(follower.links) == before + fetchers)  # noqa: B023
    assert follower.fetching.failed == 0


def test_a_fetcher_without_partitions_ends_and_another_takes_its_place(leader: Leader, make: Make) -> None:
    follower = make()
    role = follower.follow(topic_id=TOPIC_ID)
    leader.produce()
    eventually(lambda: is_copied(follower, leader))
    follower.fetching.stop(role)
    leader.produce()  # the response to the fetch in flight is not used
    eventually(lambda: follower.links[0]._closed)
    assert follower.log().end[0] == 1
    follower.fetching.follow(role)
    eventually(lambda: is_copied(follower, leader))
    assert len(follower.links) == 2


def test_a_former_role_that_comes_late_does_not_end_the_fetching(leader: Leader, make: Make) -> None:
    """The thread that makes the earlier role reports it after the thread that makes the later role."""
    follower = make()
    former = follower.follow(topic_id=TOPIC_ID)
    present = follower.follow(topic_id=TOPIC_ID, epoch=1)
    follower.fetching.follow(former)
    assert follower.state().partition is present


def test_nothing_is_fetched_without_a_leader(leader: Leader, make: Make) -> None:
    follower = make()
    follower.follow(topic_id=TOPIC_ID, leader=NO_LEADER)
    follower.follow("t", 1, topic_id=TOPIC_ID)
    leader.produce(1)
    eventually(lambda: is_copied(follower, leader, 1))
    assert {one.partition for fetch in leader.server.fetches for topic in fetch.topics for one in topic.partitions} == {
        1
    }


def test_a_topic_id_that_comes_later_is_used(leader: Leader, make: Make) -> None:
    follower = make()
    role = follower.follow()
    leader.produce()
    eventually(lambda: is_copied(follower, leader))
    role.topic_id = TOPIC_ID
    follower.fetching.follow(role)
    leader.produce()
    eventually(lambda: is_copied(follower, leader))

    def versions() -> list[int]:
        return [version for api, version, _ in list(leader.server.requests) if api is FETCH]

    assert versions()[0] == 12
    eventually(lambda: versions()[-1] == 17)


def test_records_are_flushed_before_the_next_fetch_says_that_they_are_here(leader: Leader, make: Make) -> None:
    follower = make(config={"flush.messages": 1})
    durable: list[tuple[int, int]] = []
    answer = leader.partition

    def look(key: tuple[str, int], asked: Any) -> Any:
        own = follower.logs.get("t", 0)
        assert own is not None
        durable.append((asked.fetch_offset, own.recovery_point))
        return answer(key, asked)

    leader.partition = look  # type: ignore[method-assign]
    follower.follow(topic_id=TOPIC_ID)
    for _ in range(5):
        leader.produce()
        eventually(lambda: is_copied(follower, leader))
    eventually(lambda: max(durable)[0] == 5)
    assert all(recovery_point >= offset for offset, recovery_point in durable)


def test_a_log_without_leader_epochs_is_truncated_to_its_high_watermark_first(leader: Leader, make: Make) -> None:
    follower = make()
    role = follower.follow(topic_id=TOPIC_ID, leader=NO_LEADER)
    own = follower.log()
    own.append_as_follower(batch("a"), 0)
    own.leader_epochs.clear()
    assert (own.end[0], own.high_watermark) == (1, 0)
    leader.produce(0, "the leader's")
    role.leader = LEADER
    follower.fetching.follow(role)
    eventually(lambda: is_copied(follower, leader))
    first = leader.server.fetches[0].topics[0].partitions[0]
    assert (first.fetch_offset, first.last_fetched_epoch) == (0, -1)


@pytest.mark.parametrize(
    "error", [Shortage("truncating t-0", OSError(errno.ENOSPC, "made up")), NoThread("disk", "made up")]
)
def test_a_first_truncation_that_a_shortage_prevents_is_tried_again(
    leader: Leader, make: Make, error: Exception
) -> None:
    follower = make()
    role = follower.follow(topic_id=TOPIC_ID, leader=NO_LEADER)
    own = follower.log()
    own.append_as_follower(batch("a"), 0)
    own.leader_epochs.clear()
    leader.produce(0, "the leader's")
    truncate, errors = follower.logs.truncate_to, [error]

    def truncate_to(*arguments: Any) -> bool:
        if errors:
            raise errors.pop()
        return truncate(*arguments)

    follower.logs.truncate_to = truncate_to  # type: ignore[method-assign]
    role.leader = LEADER
    follower.fetching.follow(role)
    eventually(lambda: is_copied(follower, leader))
    assert follower.fetching.failed == 0


def test_waiting_reads_are_woken_when_the_high_watermark_moves_up_or_down(leader: Leader, make: Make) -> None:
    follower = make()
    role = follower.follow(topic_id=TOPIC_ID)
    told: list[int] = []
    changes: list[int] = []

    class Watcher:
        def changed(self) -> None:
            told.append(role.log.high_watermark)

    role.log.watchers[Watcher()] = None
    role.on_change = lambda partition: changes.append(partition.log.high_watermark)
    leader.produce(0, "a", commit=False)
    eventually(lambda: role.log.end[0] == 1)
    leader.produce(0, "b")
    eventually(lambda: told == changes == [2])
    leader.logs["t", 0].high_watermark = 1  # a new leader may know a lower one
    leader.produce(0, "c", commit=False)
    eventually(lambda: told == changes == [2, 1])
    assert role.log.end[0] == 3


def test_a_late_append_of_a_former_role_changes_nothing(
    leader: Leader, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A response of epoch 0 is being appended on the pool when the partition gets its role of epoch 1."""
    follower = make()
    leader.produce(0, b"x" * 200_000)  # so large that the pool appends it
    role = follower.follow(topic_id=TOPIC_ID, leader=NO_LEADER)
    own = follower.log()
    append, begun, may_go_on = own.append_as_follower, threading.Event(), threading.Event()
    refused: list[KafkaError] = []

    def late(data: memoryview, leader_epoch: int, *, blocking: bool = True) -> Any:
        if leader_epoch == 0:
            begun.set()
            assert may_go_on.wait(30)
            try:
                return append(data, leader_epoch, blocking=blocking)
            except KafkaError as error:
                refused.append(error)
                raise
        return append(data, leader_epoch, blocking=blocking)

    own.append_as_follower = late  # type: ignore[method-assign]
    role.leader = LEADER
    follower.fetching.follow(role)
    assert begun.wait(30)
    leader.logs["t", 0].assign_leader_epoch(1)
    leader.leader_epochs["t", 0] = leader.epoch = 1
    follower.follow(topic_id=TOPIC_ID, epoch=1)
    may_go_on.set()
    eventually(lambda: refused)
    assert refused[0].code == Errors.NOT_LEADER_OR_FOLLOWER
    assert not caplog.records
    leader.produce(0, "later")
    eventually(lambda: is_copied(follower, leader))
    assert follower.fetching.failed == 0


def test_a_throttled_partition_is_fetched_when_it_is_not_throttled_any_more(leader: Leader, make: Make) -> None:
    throttled = {0}
    follower = make(is_throttled=lambda state: state.partition.index in throttled)
    leader.produce(0)
    leader.produce(1)
    follow_all(follower)
    eventually(lambda: is_copied(follower, leader, 1))
    assert follower.log("t", 0).end[0] == 0
    throttled.clear()
    eventually(lambda: is_copied(follower, leader))
    throttled.add(0)
    leader.produce(0)
    eventually(lambda: is_copied(follower, leader))  # a partition in sync is not throttled


def test_the_lag_is_that_of_the_slowest_partition(leader: Leader, make: Make) -> None:
    follower = make()
    assert follower.fetching.max_lag == 0
    follower.address = None
    follow_all(follower)
    assert follower.fetching.max_lag == 0
    follower.state("t", 3).lag = 17
    assert follower.fetching.max_lag == 17


def test_a_failed_log_directory_ends_its_partitions(leader: Leader, make: Make) -> None:
    follower = make()
    follow_all(follower)
    leader.produce(0)
    eventually(lambda: are_copied(follower, leader))
    follower.replicas.directory_failed(follower.directory, OSError("broken"))
    assert all(follower.fetching.state("t", index) is None for index in range(PARTITIONS))
    leader.produce(0)
    eventually(lambda: follower.links[0]._closed)
    assert follower.log().end[0] == 1


def test_appends_to_a_disk_that_stalls_leave_the_network_thread(leader: Leader, make: Make) -> None:
    follower = make()
    role = follower.follow(topic_id=TOPIC_ID)
    leader.produce()
    eventually(lambda: is_copied(follower, leader))
    append = role.log.append_as_follower
    ways: list[bool] = []

    def note(data: memoryview, leader_epoch: int, *, blocking: bool = True) -> Any:
        ways.append(blocking)
        return append(data, leader_epoch, blocking=blocking)

    role.log.append_as_follower = note  # type: ignore[method-assign]
    leader.produce()
    eventually(lambda: is_copied(follower, leader))
    role.stall.calm = 1000.0
    for _ in range(2):  # two slow writes are a stall
        role.stall.observe(5.0, 1)
    leader.produce()
    eventually(lambda: is_copied(follower, leader))
    assert ways == [False, True]
