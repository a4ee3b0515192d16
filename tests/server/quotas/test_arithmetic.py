"""Rates, windows, throttle times and quota levels are computed as in Kafka: see tests/data/quotas/README.md."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


# A script with so many samples that room for one more exceeds the limit of the address space; nothing else does.
SHORT_OF_MEMORY = """
import resource
from kafkapy.runtime.rates import Rate, Windows

FULL = 1 << 18  # samples; there is no room for another without more memory
rate = Rate(Windows(1 << 30, 1))
for ms in range(FULL):
    rate.record(1.0, ms)
with open("/proc/self/statm") as statm:
    size = int(statm.read().split()[0]) * resource.getpagesize()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), hard))
try:
    rate.record(1.0, FULL)
except MemoryError:
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
else:
    raise SystemExit("there was memory")
for ms in range(FULL + 1, FULL + 11):
    rate.record(1.0, ms)
now = FULL + 10
print(round(rate.measure(now) * rate.window_ms(now) / 1000) - FULL)
"""


def test_values_recorded_after_a_shortage_of_memory_count():
    words = [sys.executable, "-c", SHORT_OF_MEMORY]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")


def test_buckets_that_were_not_used_for_an_hour_are_removed():
    removed = []
    buckets = Buckets(lambda shares, now: Bucket(shares, Windows(), now, of_tokens=False), lambda: removed.append(True))
    buckets.get(("a", ""), 0)
    buckets.get(("b", ""), 10).record(1, EXPIRY_MS)
    buckets.expire(EXPIRY_MS + 1)
    assert [bucket.shares for bucket in buckets] == [("b", "")]
    assert removed


def test_a_hundred_thousand_client_ids_need_bounded_memory():
    buckets = Buckets(lambda shares, now: Bucket(shares, Windows(), now, of_tokens=False), lambda: None, most=100)
    used_all_the_time = buckets.get(("", "app"), 0)
    for now in range(100_000):
        buckets.get(("", str(now)), now)
        used_all_the_time.record(1, now)
    assert len(buckets) <= 100
    assert buckets.find(("", "app")) is used_all_the_time


def test_the_buckets_of_throttled_clients_are_the_last_to_go():
    buckets = Buckets(lambda shares, now: Bucket(shares, Windows(), now, of_tokens=False), lambda: None, most=100)
    greedy = buckets.get(("", "greedy"), 0)
    greedy.throttled(5000, 0)
    for now in range(1, 5000):
        buckets.get(("", str(now)), now)
    assert buckets.find(("", "greedy")) is greedy
    for now in range(5000, 5200):
        buckets.get(("", str(now)), now)
    assert buckets.find(("", "greedy")) is None


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 400)), max_size=60),
    st.sampled_from([0.0, 50.0, 100.0, 1e9]),
)
def test_what_is_recorded_far_below_the_limit_is_recorded_as_always(values, limit):
    usual, fast = Rate(Windows()), Rate(Windows())
    now = 1000
    for wait, value in values:
        now += wait
        throttle_ms = usual.record_and_throttle(value, limit, now)
        if fast.record_if_far_below(value, limit, now):
            assert throttle_ms == 0
        else:
            assert fast.record_and_throttle(value, limit, now) == throttle_ms
        assert fast.measure(now) == usual.measure(now)
        assert fast.last_ms == usual.last_ms == now
