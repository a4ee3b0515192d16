"""The rules for the ISR, the high watermark and truncation keep committed records. The model finds broken rules."""

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.replica import isr, truncation
from kafkapy.replica.isr import Follower, IsrState
from kafkapy.replica.truncation import EpochEnd
from tests.harness.examples import examples
from tests.replica.cluster_model import Rules, Violation, run

STEPS = 200
# Set KAFKAPY_MODEL_RUNS for a longer search.
RUNS = int(os.environ.get("KAFKAPY_MODEL_RUNS", "500"))


def to_the_high_watermark(latest_epoch: int, log_end: int, high_watermark: int) -> int:
    """Truncate to the high watermark, like Kafka's followers before KIP-101."""
    return high_watermark


def in_one_round(leader: EpochEnd, own: EpochEnd, log_end: int) -> tuple[int, bool]:
    """Truncate to the leader's offset even if its epoch is unknown, like Kafka's followers before KIP-279."""
    return min(leader.end_offset, log_end), True


def without_the_epoch_start(state: IsrState, broker_id: int, follower: Follower, high_watermark: int, _: int) -> bool:
    return isr.may_join(state, broker_id, follower, high_watermark, 0)


def of_the_committed_isr(state: IsrState, current: int, end: int, followers: Any, least: int, *_: Any) -> int:
    """Compute the high watermark as before KIP-497, without a follower whose addition is not confirmed yet."""
    lag = float("-inf")
    return isr.new_high_watermark(state._replace(proposed=None), current, end, followers, least, 0.0, lag)


@settings(max_examples=examples(RUNS), deadline=None)
@given(st.integers(0, 2**40))
def test_nothing_committed_is_lost_and_all_replicas_agree_in_the_end(seed: int) -> None:
    run(seed, STEPS)


@pytest.mark.parametrize(
    ("rules", "seed"),
    [
        pytest.param(Rules(first_fetch_offset=to_the_high_watermark), 18, id="KAFKA-1211"),
        pytest.param(Rules(truncation=in_one_round), 7, id="KAFKA-6361"),
        pytest.param(Rules(may_join=without_the_epoch_start), 275, id="joins below the epoch's start"),
        pytest.param(Rules(new_high_watermark=of_the_committed_isr), 805, id="KIP-497"),
    ],
)
def test_the_model_notices_a_broken_rule(rules: Rules, seed: int) -> None:
    run(seed, STEPS)
    with pytest.raises(Violation):
        run(seed, STEPS, rules)


def test_a_follower_that_is_always_a_little_behind_stays_in_sync() -> None:
    follower, state = Follower(), IsrState((0, 1), 0)
    for second in range(100):
        follower = isr.after_fetch(
            follower, fetch_offset=10 * second, start_offset=0, now=second, leader_end=10 * second + 9
        )
    assert isr.out_of_sync(state, 0, {1: follower}, leader_end=1000, now=100.0, max_lag_s=2.0) == ()
    assert isr.out_of_sync(state, 0, {1: follower}, leader_end=1000, now=102.0, max_lag_s=2.0) == (1,)


def test_a_member_of_the_isr_that_is_no_replica_any_more_is_out_of_sync() -> None:
    """See KAFKA-9672."""
    assert isr.out_of_sync(IsrState((0, 5), 0), 0, {}, leader_end=0, now=0.0, max_lag_s=30.0) == (5,)


def test_the_isr_is_left_alone_while_a_change_is_pending() -> None:
    pending = IsrState((0,), 3, proposed=(0, 1))
    assert isr.out_of_sync(pending, 0, {}, leader_end=9, now=99.0, max_lag_s=1.0) == ()
    assert not isr.may_join(pending, 2, Follower(end_offset=9), high_watermark=0, epoch_start=0)


def test_a_follower_about_to_join_the_isr_holds_the_high_watermark_back_if_it_is_alive() -> None:
    state = IsrState((0,), 0)
    behind = isr.after_fetch(Follower(), fetch_offset=5, start_offset=0, now=10.0, leader_end=5)
    how = {"min_isr": 1, "now": 11.0, "max_lag_s": 30.0}
    assert isr.new_high_watermark(state, 3, 8, {1: behind}, **how) == 5
    assert isr.new_high_watermark(state, 3, 8, {1: behind}, **how, is_eligible=lambda _: False) == 8
    assert isr.new_high_watermark(state, 6, 8, {1: behind}, **how) == 6
    assert isr.new_high_watermark(state, 3, 8, {1: behind}, **{**how, "min_isr": 2}) == 3


def test_nothing_is_known_of_followers_when_a_broker_becomes_leader_and_kept_when_it_is_reelected() -> None:
    fetched = isr.after_fetch(Follower(), fetch_offset=7, start_offset=2, now=50.0, leader_end=7)
    assert isr.at_election(None, 60.0, 9, in_sync=True).end_offset == isr.UNKNOWN
    again = isr.at_election(fetched, 60.0, 9, in_sync=False)
    assert (again.end_offset, again.start_offset) == (7, 2)
    assert not isr.is_caught_up(again, 9, 60.0, 30.0)


def test_delete_records_waits_for_the_follower_with_the_lowest_log_start() -> None:
    assert isr.low_watermark(5, [Follower(start_offset=3), Follower(start_offset=9)]) == 3
    assert isr.low_watermark(5, []) == 5


def test_a_log_without_epochs_is_cut_to_the_high_watermark_and_no_other() -> None:
    assert truncation.first_fetch_offset(truncation.UNDEFINED, log_end=9, high_watermark=4) == 4
    assert truncation.first_fetch_offset(0, log_end=9, high_watermark=4) == 9


def test_logs_that_agree_do_not_diverge() -> None:
    assert truncation.divergence(EpochEnd(3, 10), last_fetched_epoch=3, fetch_offset=10) is None
    assert truncation.divergence(EpochEnd(3, 10), last_fetched_epoch=3, fetch_offset=11) == (3, 10)
    assert truncation.divergence(EpochEnd(2, 10), last_fetched_epoch=3, fetch_offset=5) == (2, 10)
