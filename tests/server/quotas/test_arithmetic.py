"""Rates, windows, throttle times and levels of quotas are those of Kafka: see tests/data/quotas/README.md."""

import pytest

from kafkapy.runtime.rates import LONGEST_MS, Rate, TokenBucket, Windows
from kafkapy.server.quotas.buckets import EXPIRY_MS, Bucket, Buckets
from kafkapy.server.quotas.levels import DEFAULT, applied
from tests.server.quotas.histories import DATA, answers, same


def test_answers_to_histories_are_kafkas():
    lines = [line.split("\t") for line in (DATA / "history.txt").read_text().splitlines()]
    throttled = 0
    for (line, kafkas), ours in zip(lines, answers(line for line, _ in lines), strict=True):
        assert same(ours, kafkas), line
        throttled += bool(ours) and ours.split(" ")[2] != "0"
    assert throttled > 500


ALL_LEVELS = [
    (("alice", "app"), ("alice", "app")),
    (("alice", DEFAULT), ("alice", "app")),
    (("alice", ""), ("alice", "")),
    ((DEFAULT, "app"), ("alice", "app")),
    ((DEFAULT, DEFAULT), ("alice", "app")),
    ((DEFAULT, ""), ("alice", "")),
    (("", "app"), ("", "app")),
    (("", DEFAULT), ("", "app")),
]


@pytest.mark.parametrize("first", range(8))
def test_the_first_level_that_has_a_quota_applies(first):
    limits = {entity: float(n) for n, (entity, _) in enumerate(ALL_LEVELS) if n >= first}
    entity, shares = ALL_LEVELS[first]
    assert applied(limits, "alice", "app") == (shares, entity, first)


def test_a_user_with_the_name_of_the_default_has_no_part_in_it():
    assert applied({("%3Cdefault%3E", ""): 1.0}, "bob", "app").limit is None


def test_a_limit_of_zero_throttles_for_as_long_as_possible():
    rate, bucket = Rate(Windows()), TokenBucket(Windows())
    rate.record(1, 1000)
    bucket.record(1, 0, 1000)
    assert rate.throttle_ms(0.0, 1000) == bucket.throttle_ms(0.0, 1000) == LONGEST_MS


def test_buckets_that_were_not_used_for_an_hour_are_removed():
    removed = []
    buckets = Buckets(lambda shares: Bucket(shares, Windows(), of_tokens=False), lambda: removed.append(True))
    buckets.get(("a", ""), 0)
    buckets.get(("b", ""), 10).record(1, EXPIRY_MS)
    buckets.expire(EXPIRY_MS + 1)
    assert [bucket.shares for bucket in buckets] == [("b", "")]
    assert removed


def test_a_hundred_thousand_client_ids_need_bounded_memory():
    buckets = Buckets(lambda shares: Bucket(shares, Windows(), of_tokens=False), lambda: None, most=100)
    used_all_the_time = buckets.get(("", "app"), 0)
    for now in range(100_000):
        buckets.get(("", str(now)), now)
        used_all_the_time.last_ms = now
    assert len(buckets) <= 100
    assert buckets.find(("", "app")) is used_all_the_time
