"""The high watermark of a partition with several replicas, and appends with acks=all that wait for it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.errors import Errors, KafkaError
from kafkapy.record.batch import build
from kafkapy.replica.high_watermark import ReplicationWaits, effective_min_isr
from kafkapy.runtime.clock import ManualClock
from tests.coordinator.groups.world import HandTimer
from tests.coordinator.partitions import lead, lead_log
from tests.harness.appends import append_to
from tests.harness.followers import follower_at


def batch():
    return memoryview(bytearray(build([(1_600_000_000_000, None, b"v", [])])))


@pytest.mark.parametrize(("wanted", "replicas", "needed"), [(1, 1, 1), (2, 1, 1), (2, 3, 2), (3, 3, 3), (5, 3, 3)])
def test_no_more_replicas_are_needed_than_there_are(wanted, replicas, needed):
    assert effective_min_isr(wanted, replicas) == needed


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 50), st.integers(1, 20)),
            st.tuples(st.just("advance"), st.integers(0, 60), st.just(0)),
            st.tuples(st.just("time"), st.just(0), st.integers(1, 10)),
        )
    )
)
def test_each_wait_ends_once_when_its_offset_is_replicated_or_its_time_is_up(events):
    clock = ManualClock()
    timer, ended = HandTimer(clock), []
    queue = ReplicationWaits(timer, clock)
    waiting, expected = {}, []
    for number, (what, offset, seconds) in enumerate(events):
        if what == "add":
            queue.add(offset, seconds, lambda error, number=number: ended.append((number, error and error.code)))
            waiting[number] = offset, clock.monotonic() + seconds
        elif what == "advance":
            queue.advance(offset, None)
            over = [one for one, (end, _) in waiting.items() if end <= offset]
            expected += [(one, None) for one in over]
        else:
            timer.advance(seconds)
            over = [one for one, (_, deadline) in waiting.items() if deadline <= clock.monotonic()]
            expected += [(one, Errors.REQUEST_TIMED_OUT) for one in over]
        if what != "add":
            for one in over:
                del waiting[one]
        assert sorted(ended, key=lambda one: one[0]) == sorted(expected, key=lambda one: one[0])
        assert len(queue.pending) == len(waiting)
        assert len(timer) <= 1
        assert not waiting or len(timer) == 1


def replicated(tmp_path, isr=(0, 1, 2), **settings):
    """Return (partition with the replicas 0, 1 and 2 and broker 0 as leader, its timer)."""
    clock = ManualClock()
    timer = HandTimer(clock)
    partition = lead(tmp_path, clock, replicas=(0, 1, 2), isr=isr, timer=timer, **settings)
    return partition, timer


def wait(partition, offset):
    """Begin to wait for replication. Return an empty list that gets the result: None or the error."""
    outcome = []
    partition.when_replicated(offset, 5.0, outcome.append)
    return outcome


def test_one_replica_is_enough_at_once(tmp_path):
    partition = lead(tmp_path, min_insync_replicas=2)
    assert partition.refusal(-1) is None
    (verdict,) = append_to(partition, [batch()])
    assert partition.log.high_watermark == 1
    assert wait(partition, verdict.last_offset + 1) == [None]


def test_an_append_waits_for_every_follower_that_is_in_sync(tmp_path):
    partition, _ = replicated(tmp_path)
    append_to(partition, [batch(), batch()])
    assert partition.log.high_watermark == 0
    first, second = wait(partition, 1), wait(partition, 2)
    follower_at(partition, 1, 2)
    follower_at(partition, 2, 1)
    assert (first, second, partition.log.high_watermark) == ([None], [], 1)
    follower_at(partition, 2, 2)
    assert (second, partition.log.high_watermark) == ([None], 2)


def test_a_follower_outside_of_the_isr_is_not_waited_for(tmp_path):
    partition, _ = replicated(tmp_path, isr=(0, 2))
    append_to(partition, [batch()])
    follower_at(partition, 1, 0)
    follower_at(partition, 2, 1)
    assert wait(partition, 1) == [None]


def test_below_min_insync_replicas_nothing_is_appended_or_visible(tmp_path):
    partition, _ = replicated(tmp_path, isr=(0,), min_insync_replicas=2)
    refusal = partition.refusal(-1)
    assert refusal is not None
    assert refusal.code == Errors.NOT_ENOUGH_REPLICAS
    assert "the ISR of __consumer_offsets-0 is [0] and min.insync.replicas is 2" in refusal.message
    assert partition.refusal(1) is None
    append_to(partition, [batch()])
    assert partition.log.high_watermark == 0


def test_the_time_out_leaves_the_records_in_the_log(tmp_path):
    partition, timer = replicated(tmp_path)
    append_to(partition, [batch()])
    outcome = wait(partition, 1)
    timer.advance(4.9)
    assert outcome == []
    timer.advance(0.1)
    assert [one.code for one in outcome] == [Errors.REQUEST_TIMED_OUT]
    follower_at(partition, 1, 1)
    follower_at(partition, 2, 1)
    assert len(outcome) == 1
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 1)


def test_waiting_producers_get_an_error_when_the_partition_is_removed(tmp_path):
    partition, _ = replicated(tmp_path)
    append_to(partition, [batch()])
    before = wait(partition, 1)
    partition.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER))
    after = wait(partition, 1)
    assert [one.code for one in before + after] == [Errors.NOT_LEADER_OR_FOLLOWER] * 2


def test_appends_that_wait_go_on_waiting_in_the_next_leader_epoch_of_this_broker(tmp_path):
    partition, timer = replicated(tmp_path)
    append_to(partition, [batch()])
    before = wait(partition, 1)
    later = lead_log(partition.log, 1, replicas=(0, 1, 2), isr=(0, 1, 2), timer=timer)
    partition.hand_over(later)
    partition.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "a later epoch has begun"))
    after = wait(partition, 1)  # its append ended just before the former epoch
    assert (before, after) == ([], [])
    for follower in (1, 2):
        follower_at(later, follower, 1)
    assert (before, after) == ([None], [None])
    assert partition.precedes(later)
    assert not later.precedes(partition)


def taken_over(partition):
    """Make another broker the leader: truncate this log, and append two replicated records of the new leader."""
    log, epoch = partition.log, partition.leader_epoch + 1
    log.fence(epoch)
    partition.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "broker 1 leads it"))
    log.truncate_to(0, epoch)
    log.append_as_follower(memoryview(build([(1_600_000_000_000, None, b"other", [])] * 2)), epoch)
    log.follow_high_watermark(2, epoch)
    assert log.high_watermark == 2


def test_an_append_is_not_acknowledged_by_the_high_watermark_of_the_next_leader(tmp_path):
    partition, _ = replicated(tmp_path)
    append_to(partition, [batch()])
    taken_over(partition)
    assert [one.message for one in wait(partition, 1)] == ["broker 1 leads it"]


def test_nor_after_later_leader_epochs_of_this_broker(tmp_path):
    partition, timer = replicated(tmp_path)
    append_to(partition, [batch()])
    later = lead_log(partition.log, 1, replicas=(0, 1, 2), isr=(0, 1, 2), timer=timer)
    partition.hand_over(later)
    partition.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "a later epoch has begun"))
    for follower in (1, 2):
        follower_at(later, follower, 1)
    assert wait(partition, 1) == [None]
    taken_over(later)
    assert [one.message for one in wait(partition, 1)] == ["broker 1 leads it"]


def test_a_thread_that_completes_appends_may_be_overtaken_by_the_next_leader(tmp_path):
    """A thread has found that this broker leads. Then another broker takes over, and an append begins to wait."""
    partition, _ = replicated(tmp_path)
    append_to(partition, [batch()])
    outcome = []

    class Overtaken(ReplicationWaits):
        @property
        def pending(self):
            if partition.gone is None:
                taken_over(partition)
                self.add(1, 5.0, outcome.append)
            return super().pending

        @pending.setter
        def pending(self, waits):
            ReplicationWaits.pending.__set__(self, waits)

    partition._waits = Overtaken(partition._timer, partition.log.clock)
    partition._complete_waits()
    assert outcome == []
    partition._complete_waits()  # called by the thread of the late append
    assert [one.message for one in outcome] == ["broker 1 leads it"]


def test_appends_that_wait_end_with_the_last_leader_epoch_of_this_broker(tmp_path):
    partition, timer = replicated(tmp_path)
    append_to(partition, [batch()])
    before = wait(partition, 1)
    later = lead_log(partition.log, 1, replicas=(0, 1, 2), isr=(0, 1, 2), timer=timer)
    partition.hand_over(later)
    partition.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "a later epoch has begun"))
    later.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "broker 1 leads it"))
    (error,) = before
    assert error.message == "broker 1 leads it"
    assert [one.message for one in wait(partition, 1)] == ["broker 1 leads it"]
