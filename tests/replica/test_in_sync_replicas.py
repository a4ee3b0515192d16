"""A leader with followers: their fetches, the ISR, the controller's responses and the high watermark."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.storage.files import Files
from kafkapy.protocol.apis import ALTER_PARTITION
from kafkapy.record.batch import build
from kafkapy.record.control import marker_batch
from kafkapy.replica.in_sync_replicas import IsrEnvironment
from kafkapy.replica.isr import Follower, IsrState, new_high_watermark
from kafkapy.replica.isr_changes import Done, IsrChange, IsrChanges, WrittenIsr
from kafkapy.replica.links import LinkError
from kafkapy.replica.partition import Partition
from kafkapy.runtime.clock import ManualClock
from tests.coordinator.groups.world import HandTimer
from tests.coordinator.partitions import lead, lead_log
from tests.harness.appends import append_to
from tests.harness.followers import follower_at

LAG_S = 30.0
NOW = 1_600_000_000_000


class Leader:
    """A partition with the replicas 0, 1 and 2 that broker 0 leads, and a controller whose responses the test gives."""

    def __init__(self, directory: Path, isr: tuple[int, ...] = (0, 1, 2), **config: Any) -> None:
        self.clock = ManualClock()
        self.timer = HandTimer(self.clock)
        self.dead: set[int] = set()
        self.asked: list[tuple[IsrChange, Done]] = []
        self.refuses = False  # True: changes cannot be submitted
        self.env = IsrEnvironment(self.clock, LAG_S, lambda broker_id: broker_id not in self.dead, self._submit)
        self.partition = lead(
            directory, self.clock, replicas=(0, 1, 2), isr=isr, timer=self.timer, isr_env=self.env, **config
        )

    def _submit(self, change: IsrChange, done: Done) -> bool:
        if not self.refuses:
            self.asked.append((change, done))
        return not self.refuses

    def append(self, count: int = 1) -> None:
        append_to(self.partition, [batch() for _ in range(count)])

    def fetch(self, broker_id: int, offset: int, start: int = 0) -> None:
        follower_at(self.partition, broker_id, offset, start)

    def answer(self, error: int = Errors.NONE, *, epoch: int = 1, leader_epoch: int = 0, number: int = 0) -> None:
        """Respond to a change, by default the first one without a response: with an error, or as carried out."""
        change, done = self.asked.pop(number)
        done(KafkaError(error) if error else WrittenIsr(0, leader_epoch, epoch, change.isr))

    @property
    def isr(self) -> tuple[int, ...]:
        return self.partition.isr

    @property
    def wanted(self) -> list[tuple[int, ...]]:
        """The ISRs in the changes to which the controller has not responded."""
        return [tuple(change.isr) for change, _ in self.asked]

    @property
    def high_watermark(self) -> int:
        return self.partition.log.high_watermark

    def wait(self, offset: int) -> list[Any]:
        """Begin to wait for replication. Return an empty list that gets the error code, 0 for success."""
        outcome: list[Any] = []
        self.partition.when_replicated(offset, 5.0, lambda error: outcome.append(error.code if error else 0))
        return outcome


def batch() -> memoryview:
    return memoryview(bytearray(build([(NOW, None, b"v", [])])))


def test_the_high_watermark_follows_the_slowest_member_of_the_isr(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.append(3)
    leader.fetch(1, 3)
    assert leader.high_watermark == 0  # broker 2 has not fetched yet
    leader.fetch(2, 2)
    assert leader.high_watermark == 2
    leader.fetch(2, 3)
    assert (leader.high_watermark, leader.asked) == (3, [])


def test_a_follower_that_does_not_fetch_leaves_the_isr_after_the_longest_lag(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.append()
    leader.fetch(1, 1)
    leader.clock.advance(LAG_S)
    leader.fetch(1, 1)
    leader.partition.shrink_isr()
    assert leader.wanted == []  # after the election, each member has the whole lag time
    leader.clock.advance(1)
    leader.partition.shrink_isr()
    assert leader.wanted == [(0, 1)]
    assert leader.high_watermark == 0  # the controller may refuse the change
    leader.partition.shrink_isr()
    assert leader.wanted == [(0, 1)]
    leader.answer()
    assert (leader.isr, leader.high_watermark, leader.partition.partition_epoch) == ((0, 1), 1, 1)


def test_a_follower_always_a_little_behind_stays_in_the_isr(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    for end in range(1, 8):
        leader.append()
        leader.fetch(1, end - 1)  # the leader's log end offset at the previous fetch
        leader.clock.advance(LAG_S / 2)
        leader.partition.shrink_isr()
    assert leader.wanted == []


def test_a_member_with_all_records_stays_in_the_isr_although_it_is_silent(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    for broker in (1, 2):
        leader.fetch(broker, 0)
    leader.clock.advance(100 * LAG_S)
    leader.partition.shrink_isr()
    assert leader.wanted == []
    leader.append()
    leader.partition.shrink_isr()
    assert leader.wanted == [(0,)]


def test_a_follower_joins_when_it_has_all_committed_records(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.append(2)
    leader.fetch(1, 2)
    leader.fetch(2, 1)
    assert leader.wanted == []
    leader.fetch(2, 2)
    assert leader.wanted == [(0, 1, 2)]
    leader.append()
    leader.fetch(1, 3)
    assert leader.high_watermark == 2  # broker 2 counts before the controller has responded
    leader.fetch(2, 3)
    assert (leader.high_watermark, leader.wanted, leader.isr) == (3, [(0, 1, 2)], (0, 1))
    leader.answer()
    assert leader.isr == (0, 1, 2)
    assert (leader.env.expansions.value, leader.env.shrinks.value, leader.env.failures.value) == (1, 0, 0)


def test_a_follower_must_reach_the_start_of_the_leader_epoch_before_it_joins(tmp_path: Path) -> None:
    """Records of the previous leader may be committed even above the high watermark that the new leader knows."""
    first = lead(tmp_path)
    append_to(first, [batch(), batch()])
    leader = Leader(tmp_path, isr=(0, 1))
    leader.partition.log.high_watermark = 0
    leader.fetch(2, 1)
    assert leader.wanted == []
    leader.fetch(2, 2)
    assert leader.wanted == [(0, 1, 2)]


def test_a_dead_broker_does_not_join_the_isr(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.dead = {2}
    leader.fetch(2, 0)
    assert leader.wanted == []
    leader.dead = set()
    leader.fetch(2, 0)
    assert leader.wanted == [(0, 1, 2)]


@pytest.mark.parametrize("error", [Errors.OPERATION_NOT_ATTEMPTED, Errors.INELIGIBLE_REPLICA])
def test_the_committed_isr_counts_again_when_the_controller_did_not_try(tmp_path: Path, error: int) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    leader.answer(error)
    assert (leader.partition.in_sync.state.maximal, leader.asked) == ((0, 1), [])  # type: ignore[union-attr]
    leader.fetch(2, 0)
    assert leader.wanted == [(0, 1, 2)]  # the next fetch tries again
    assert leader.env.failures.value == 1


@pytest.mark.parametrize("error", [Errors.OPERATION_NOT_ATTEMPTED, Errors.INELIGIBLE_REPLICA])
def test_a_refused_change_lets_the_high_watermark_pass_the_follower_that_was_to_join(
    tmp_path: Path, error: int
) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    leader.append()
    outcome = leader.wait(1)
    leader.fetch(1, 1)
    leader.dead = {2}
    assert (leader.wanted, leader.high_watermark, outcome) == ([(0, 1, 2)], 0, [])
    leader.answer(error)
    assert (leader.high_watermark, outcome) == (1, [0])


def test_acks_do_not_wait_for_a_follower_that_may_not_join_the_isr(tmp_path: Path) -> None:
    """For example, a broker that shuts down still fetches from the next leader for a moment."""
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    leader.answer(Errors.INELIGIBLE_REPLICA)
    leader.append()
    outcome = leader.wait(1)
    leader.fetch(1, 1)
    assert (leader.high_watermark, outcome) == (1, [0])
    leader.fetch(2, 1)  # the broker was alive after all
    leader.answer()
    assert leader.isr == (0, 1, 2)
    leader.append()
    leader.fetch(1, 2)
    assert leader.high_watermark == 1


def test_acks_wait_no_longer_for_a_follower_whose_broker_is_gone(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    leader.answer(Errors.OPERATION_NOT_ATTEMPTED)
    leader.append()
    outcome = leader.wait(1)
    leader.fetch(1, 1)
    assert (leader.high_watermark, outcome) == (0, [])  # broker 2 is about to join
    leader.dead = {2}
    leader.partition.brokers_gone({9})
    assert outcome == []
    leader.partition.brokers_gone({2})
    assert (leader.high_watermark, outcome) == (1, [0])


def test_a_follower_that_was_refused_is_waited_for_after_its_broker_has_registered_again(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    leader.answer(Errors.INELIGIBLE_REPLICA)
    leader.partition.brokers_gone({2})
    leader.refuses = True  # a change of another partition is under way
    leader.append()
    leader.fetch(2, 0)
    leader.fetch(1, 1)
    assert leader.high_watermark == 0


@pytest.mark.parametrize(
    "error",
    [
        Errors.FENCED_LEADER_EPOCH,
        Errors.INVALID_UPDATE_VERSION,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.INVALID_REQUEST,
    ],
)
def test_the_change_stays_pending_when_the_leader_is_out_of_date(tmp_path: Path, error: int) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    leader.answer(error)
    leader.timer.advance(1)
    leader.fetch(2, 0)
    leader.clock.advance(2 * LAG_S)
    leader.append()
    leader.partition.shrink_isr()
    assert (leader.asked, leader.high_watermark) == ([], 0)


def test_after_any_other_error_the_controller_is_asked_again_without_end(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    first = leader.asked[0][0]
    for _ in range(20):
        leader.answer(Errors.UNKNOWN_SERVER_ERROR)
        assert leader.asked == []  # no retry at once, as the controller may be overloaded
        leader.timer.advance(1)
        assert [change for change, _ in leader.asked] == [first]
    leader.answer()
    assert leader.isr == (0, 1, 2)


def test_a_change_that_cannot_be_submitted_is_tried_at_the_next_fetch(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.refuses = True
    leader.fetch(2, 0)
    leader.refuses = False
    leader.fetch(2, 0)
    assert leader.wanted == [(0, 1, 2)]


def test_a_late_or_repeated_answer_is_ignored(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    change, done = leader.asked[0]
    leader.answer(Errors.OPERATION_NOT_ATTEMPTED)
    done(WrittenIsr(0, 0, 1, change.isr))
    assert leader.isr == (0, 1)
    leader.fetch(2, 0)
    leader.answer(epoch=4)
    done(WrittenIsr(0, 0, 2, (0,)))
    assert (leader.isr, leader.partition.partition_epoch) == ((0, 1, 2), 4)


class LossyController:
    """A link to a controller that carries out changes. Its first `lost` responses do not arrive."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.isr: list[int] = [0, 1]
        self.partition_epoch = 0
        self.requests = 0

    def ask(self, api: Any, message: Any, done: Any, *, timeout_s: float, versions: tuple[int, int]) -> None:
        self.requests += 1
        version = versions[1]
        asked = api.decode_request(api.encode_request(message(version), version), version, 0)
        (part,) = asked.topics[0].partitions
        if self.isr != part.new_isr:  # a repeated change succeeds, as with a real controller
            self.isr, self.partition_epoch = list(part.new_isr), self.partition_epoch + 1
        if self.lost:
            self.lost -= 1
            done(None, LinkError("the connection was lost"))
            return
        make = ALTER_PARTITION.Response
        answer = make.Topics.Partitions(
            partition_index=part.partition_index, leader_id=0, isr=self.isr, partition_epoch=self.partition_epoch
        )
        done(make(topics=[make.Topics(topic_name=asked.topics[0].topic_name, partitions=[answer])]), None)


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_change_whose_answer_is_lost_is_asked_for_again_and_then_committed(tmp_path: Path, lost: int) -> None:
    leader, controller = Leader(tmp_path, isr=(0, 1)), LossyController(lost)
    changes = IsrChanges(lambda: controller, 0, lambda: 5, leader.timer, 30.0)  # type: ignore[arg-type,return-value]
    leader.env.submit = changes.submit
    leader.fetch(2, 0)
    assert leader.isr == ((0, 1) if lost else (0, 1, 2))
    leader.append()
    leader.fetch(1, 1)
    assert leader.high_watermark == 0  # broker 2 counts from the first request on
    leader.timer.advance(1)
    assert (leader.isr, leader.partition.partition_epoch, controller.requests) == ((0, 1, 2), 1, lost + 1)
    leader.fetch(2, 1)
    assert leader.high_watermark == 1


@pytest.mark.parametrize("stale", [{"leader_epoch": 1}, {"epoch": -1}])
def test_a_state_of_another_leader_epoch_or_an_older_state_is_not_taken(tmp_path: Path, stale: dict[str, int]) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    leader.answer(**stale)
    assert (leader.isr, leader.partition.partition_epoch) == ((0, 1), 0)
    assert leader.env.failures.value == 1


def test_a_successful_change_completes_the_appends_that_waited_for_the_removed_follower(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1, 2), min_insync_replicas=2)
    leader.append()
    outcome = leader.wait(1)
    leader.fetch(1, 1)
    leader.clock.advance(LAG_S + 1)
    leader.fetch(1, 1)
    leader.partition.shrink_isr()
    assert outcome == []
    leader.answer()
    assert (outcome, leader.high_watermark) == ([0], 1)


def test_below_min_insync_replicas_appends_wait_and_the_high_watermark_stands(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1), min_insync_replicas=2)
    leader.append()
    outcome = leader.wait(1)
    leader.clock.advance(LAG_S + 1)
    leader.partition.shrink_isr()
    leader.answer()
    assert (leader.isr, leader.high_watermark, outcome) == ((0,), 0, [])
    refusal = leader.partition.refusal(-1)
    assert refusal is not None
    assert refusal.code == Errors.NOT_ENOUGH_REPLICAS
    leader.fetch(1, 1)
    leader.answer(epoch=2)
    assert (leader.isr, leader.high_watermark, outcome) == ((0, 1), 1, [0])


def test_an_isr_that_shrank_after_the_append_has_an_error_code_of_its_own(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1), min_insync_replicas=2)
    leader.append()
    outcome = leader.wait(1)
    leader.clock.advance(LAG_S + 1)
    leader.partition.shrink_isr()
    leader.answer()
    leader.partition.log.advance_high_watermark(1, 0)  # the follower had the record before it fell behind
    leader.partition._complete_waits()
    assert outcome == [Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_acks_all_counts_the_committed_isr_before_the_append_and_the_maximal_one_after_it(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0,), min_insync_replicas=2)
    leader.fetch(1, 0)
    assert leader.wanted == [(0, 1)]
    refusal = leader.partition.refusal(-1)
    assert refusal is not None
    assert refusal.code == Errors.NOT_ENOUGH_REPLICAS
    assert leader.wait(0) == [0]


def test_a_disk_that_is_slow_and_then_fails_blocks_no_fetch_of_a_follower(tmp_path: Path) -> None:
    """During the write of an append, the fetch moves the high watermark, so that a transaction becomes stable. Then the
    disk fails, which ends the leadership while the log's lock is held."""
    leader = Leader(tmp_path, isr=(0, 1))
    partition, log = leader.partition, leader.partition.log
    transaction = build([(NOW, None, b"v", [])], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    append_to(partition, [memoryview(bytearray(transaction))])
    append_to(partition, [OwnBatch(marker_batch(7, 0, commit=True, coordinator_epoch=0, timestamp=NOW))])
    writing, fails = threading.Event(), threading.Event()

    class FailingDisk(Files):
        def pwritev(self, *arguments: Any) -> int:
            writing.set()
            fails.wait(60)
            raise OSError(errno.EIO, "I/O error")

    failure: list[KafkaError] = []
    log.env.files = log.end[1].files = FailingDisk()
    log.env._on_failure = lambda error: (partition.remove(error), failure.append(error))
    verdicts: list[Any] = []
    appending = threading.Thread(target=lambda: verdicts.extend(append_to(partition, [batch()])), daemon=True)
    appending.start()
    assert writing.wait(60)
    fetching = threading.Thread(target=leader.fetch, args=(1, 2), daemon=True)
    fetching.start()
    fetching.join(60)
    was_blocked = fetching.is_alive()
    fails.set()
    appending.join(60)
    assert (was_blocked, appending.is_alive()) == (False, False)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)
    assert [error.code for error in (*failure, *verdicts)] == [Errors.KAFKA_STORAGE_ERROR] * 2


def test_a_member_of_the_isr_that_is_no_replica_is_removed(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1, 7))
    leader.fetch(1, 0)
    leader.partition.shrink_isr()
    assert leader.wanted == [(0, 1)]


def test_the_low_watermark_is_that_of_the_live_replicas(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    in_sync = leader.partition.in_sync
    assert in_sync is not None
    assert in_sync.low_watermark == -1  # the followers have not fetched yet
    leader.fetch(1, 0, start=0)
    leader.dead = {2}
    assert in_sync.low_watermark == 0


def followed_by(leader: Leader) -> Partition:
    """Begin the next leader epoch of the same leader, and return its partition."""
    partition = leader.partition
    later = lead_log(partition.log, 1, replicas=(0, 1, 2), isr=(0, 1), timer=leader.timer, isr_env=leader.env)
    partition.hand_over(later)
    partition.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER))
    return later


def test_the_next_epoch_of_the_same_leader_knows_the_followers_and_ignores_older_answers(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.append(2)
    leader.fetch(1, 2)
    leader.fetch(2, 2)
    before, done = leader.asked.pop()
    later = followed_by(leader)
    assert later.in_sync is not None
    assert [one.end_offset for one in later.in_sync.followers.values()] == [2, 2]
    done(WrittenIsr(0, 0, 9, before.isr))
    assert (leader.isr, later.isr) == ((0, 1), (0, 1))


def test_a_follower_outside_the_isr_does_not_hold_the_next_epoch_back_before_it_fetches(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(0, 1))
    leader.fetch(2, 0)
    leader.answer(Errors.OPERATION_NOT_ATTEMPTED)
    leader.append()
    leader.fetch(1, 1)
    assert leader.high_watermark == 0  # broker 2 is caught up, and about to join
    later = followed_by(leader)
    append_to(later, [batch()])
    follower_at(later, 1, 1)
    assert later.log.high_watermark == 1


offsets = st.integers(-1, 30)
followers = st.builds(
    Follower, offsets, offsets, st.floats(0, 100), offsets, st.one_of(st.just(float("-inf")), st.floats(0, 100))
)


@settings(deadline=None)
@given(
    current=st.integers(0, 30),
    leader_end=st.integers(0, 30),
    known=st.dictionaries(st.integers(1, 4), followers),
    isr=st.sets(st.integers(1, 4)),
    proposed=st.one_of(st.none(), st.sets(st.integers(1, 4))),
    min_isr=st.integers(1, 4),
)
def test_the_high_watermark_never_goes_back_nor_beyond_a_member_of_the_maximal_isr(
    current: int,
    leader_end: int,
    known: dict[int, Follower],
    isr: set[int],
    proposed: set[int] | None,
    min_isr: int,
) -> None:
    state = IsrState((0, *isr), 0, None if proposed is None else (0, *proposed))
    found = new_high_watermark(state, current, leader_end, known, min_isr, 100.0, 10.0)
    assert found >= current
    if len(state.isr) < min_isr:
        assert found == current
    if found > current:
        ends = [known[one].end_offset for one in state.maximal if one in known]
        assert found <= min([leader_end, *ends])
