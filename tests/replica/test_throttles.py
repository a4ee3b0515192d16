"""Replication throttles: the partitions to which they apply, and when the rate exceeds the limit."""

import pytest

from kafkapy.replica.throttles import UNLIMITED, Rate, ReplicationThrottles, Throttle
from kafkapy.runtime.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock(0)


def test_a_list_of_pairs_throttles_the_partitions_of_this_broker(clock):
    throttle = Throttle(clock)
    throttle.set_topic("t", ["0:1", "1:2", "7:1"], 1)
    assert [index for index in range(10) if throttle.is_throttled("t", index)] == [0, 7]
    assert not throttle.is_throttled("u", 0)


def test_a_star_throttles_all_partitions_of_the_topic(clock):
    throttle = Throttle(clock)
    throttle.set_topic("t", ["*"], 1)
    assert throttle.is_throttled("t", 12345)
    assert not throttle.is_throttled("u", 0)


@pytest.mark.parametrize("replicas", [[], [""], ["0:2"]])
def test_a_later_list_replaces_the_earlier_one(clock, replicas):
    throttle = Throttle(clock)
    assert throttle.is_idle
    throttle.set_topic("t", ["*"], 1)
    assert not throttle.is_idle
    throttle.set_topic("t", replicas, 1)
    assert not throttle.is_throttled("t", 0)
    assert throttle.is_idle


def test_without_a_limit_nothing_is_exceeded(clock):
    throttle = Throttle(clock)
    throttle.record(1 << 40)
    assert throttle.limit == UNLIMITED
    assert not throttle.is_exceeded()


def test_the_limit_is_exceeded_until_time_has_passed(clock):
    throttle = Throttle(clock, samples=11, sample_s=1)
    throttle.limit = 1000
    throttle.record(1000)
    assert not throttle.is_exceeded()  # the first sample counts with its full duration
    throttle.record(3000)
    assert throttle.is_exceeded()
    clock.advance(3.9)
    assert throttle.is_exceeded()
    clock.advance(0.1)
    assert not throttle.is_exceeded()
    assert throttle.rate() == 1000


def test_bytes_are_forgotten_with_their_sample(clock):
    rate = Rate(clock, samples=3, sample_s=2)
    rate.record(600)
    clock.advance(2)
    rate.record(600)
    assert rate.value() == 600  # 1200 bytes in the 2 seconds since the first sample began
    clock.advance(3.9)
    assert rate.value() == pytest.approx(1200 / 5.9)
    clock.advance(0.2)
    assert rate.value() == pytest.approx(600 / 4.1)
    clock.advance(2)
    assert rate.value() == 0


def test_a_long_transfer_has_about_the_rate_of_the_limit(clock):
    throttle = Throttle(clock)
    throttle.limit = 1_000_000
    moved = 0
    for _ in range(600):
        if not throttle.is_exceeded():
            throttle.record(300_000)
            moved += 300_000
        clock.advance(0.1)
    assert moved / 60 == pytest.approx(1_000_000, rel=0.15)


def test_the_settings_set_the_limits_and_a_missing_one_means_none(clock):
    throttles = ReplicationThrottles(clock, samples=11, sample_s=1, log_dir_samples=11, log_dir_sample_s=1)
    throttles.set_limits({"leader.replication.throttled.rate": 5, "follower.replication.throttled.rate": 6})
    assert (throttles.leader.limit, throttles.follower.limit, throttles.log_dirs.limit) == (5, 6, UNLIMITED)
    throttles.set_limits({"replica.alter.log.dirs.io.max.bytes.per.second": 7})
    assert (throttles.leader.limit, throttles.follower.limit, throttles.log_dirs.limit) == (UNLIMITED, UNLIMITED, 7)


def test_leader_and_follower_have_lists_of_their_own(clock):
    throttles = ReplicationThrottles(clock, samples=11, sample_s=1, log_dir_samples=11, log_dir_sample_s=1)
    throttles.set_topic("t", ["0:1"], ["1:1"], 1)
    assert [throttles.leader.is_throttled("t", index) for index in (0, 1)] == [True, False]
    assert [throttles.follower.is_throttled("t", index) for index in (0, 1)] == [False, True]
