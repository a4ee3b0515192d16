"""No record waits longer than its topic's flush.ms for a flush to begin (Kafka's LogManager.flushDirtyLogs)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.log.config import LogConfig
from kafkapy.log.flushing.timed_flush import SHORTEST_MS, TimedFlush
from kafkapy.log.settings import NEVER_MS
from kafkapy.runtime.clock import ManualClock
from tests.harness.examples import examples


class Timeline:
    """A scheduler that runs tasks when they are due while the test moves the clock."""

    def __init__(self):
        self.clock = ManualClock()
        self.tasks = []

    def schedule(self, name, fn, delay_s=0.0, period_s=None):
        task = Planned(fn, self.clock.monotonic() + delay_s)
        self.tasks.append(task)
        return task

    def advance_ms(self, ms):
        end = self.clock.monotonic() + ms / 1000
        while self.waiting and (first := min(self.waiting, key=lambda task: task.due)).due <= end + 1e-9:
            self.clock.advance(max(first.due - self.clock.monotonic(), 0))
            self.tasks.remove(first)
            first.fn()
        self.clock.advance(max(end - self.clock.monotonic(), 0))

    @property
    def waiting(self):
        return [task for task in self.tasks if not task.cancelled]


class Planned:
    def __init__(self, fn, due):
        self.fn, self.due, self.cancelled = fn, due, False

    def cancel(self):
        self.cancelled = True


class FakeLog:
    """A log with only the times of its last flush and of the first record since."""

    def __init__(self, clock, flush_ms):
        self.clock, self.flusher = clock, self
        self.config = LogConfig({"flush.ms": flush_ms})
        self.flushed_at = clock.monotonic()
        self.waiting_since = None
        self.has_unsynced = False
        self.longest_wait_ms = 0.0
        self.flushes = 0

    @property
    def ms_since_flush(self):
        return (self.clock.monotonic() - self.flushed_at) * 1000

    def append(self):
        if self.waiting_since is None:
            self.waiting_since = self.clock.monotonic()

    def flush(self):
        self.flushed_at = self.clock.monotonic()
        self.flushes += 1
        if self.waiting_since is not None:
            self.longest_wait_ms = max(self.longest_wait_ms, (self.clock.monotonic() - self.waiting_since) * 1000)
            self.waiting_since = None


class Bench:
    def __init__(self, interval_ms=NEVER_MS):
        self.time = Timeline()
        self.logs = []
        self.timed = TimedFlush(lambda: self.logs, self.each_log, self.time, self.time.clock, interval_ms)

    @staticmethod
    def each_log(act, what, logs, *, threads):
        for log in logs:
            act(log)

    def open(self, flush_ms):
        log = FakeLog(self.time.clock, flush_ms)
        self.logs.append(log)
        self.timed.wanted(flush_ms)
        return log

    def alter(self, log, flush_ms):
        log.config = LogConfig({"flush.ms": flush_ms})
        self.timed.wanted(flush_ms)


def test_nothing_is_scheduled_while_no_log_has_a_time():
    bench = Bench()
    bench.open(NEVER_MS)
    assert not bench.time.waiting


def test_the_first_record_is_flushed_in_time():
    bench = Bench()
    log = bench.open(1000)
    log.append()
    bench.time.advance_ms(1000)
    assert log.flushes
    assert log.longest_wait_ms <= 1000


def test_a_flush_ms_that_is_lowered_later_applies_from_then_on():
    bench = Bench()
    log = bench.open(100_000_000)
    bench.time.advance_ms(5000)
    log.append()
    bench.alter(log, 200)
    bench.time.advance_ms(200)
    assert log.flushes
    assert log.waiting_since is None
    assert log.longest_wait_ms <= 200


def test_checks_become_rare_and_end_when_flush_ms_is_raised_and_removed():
    bench = Bench()
    log = bench.open(100)
    bench.alter(log, 10_000)
    bench.time.advance_ms(100)
    (task,) = bench.time.waiting
    assert task.due - bench.time.clock.monotonic() > 2
    bench.alter(log, NEVER_MS)
    bench.time.advance_ms(10_000)
    assert not bench.time.waiting


@pytest.mark.parametrize(("flush_ms", "interval_ms"), [(0, NEVER_MS), (1000, 0), (1, -5)])
def test_no_setting_keeps_a_thread_busy(flush_ms, interval_ms):
    bench = Bench(interval_ms)
    log = bench.open(flush_ms)
    for _ in range(100):
        log.append()
        bench.time.advance_ms(1)
    assert 0 <= log.flushes <= 100 / SHORTEST_MS + 1


def test_a_log_with_a_shorter_flush_ms_does_not_delay_the_next_check():
    bench = Bench()
    log, other = bench.open(10), bench.open(56)
    bench.alter(log, 152)
    log.append()
    bench.time.advance_ms(143)  # checks after 10, 24, ... 136 ms; the one after 150 is the last in time
    bench.alter(other, 10)
    bench.time.advance_ms(10)
    assert log.longest_wait_ms <= 152


def test_a_shorter_scheduler_interval_is_kept():
    bench = Bench(interval_ms=20)
    bench.open(100_000)
    (task,) = bench.time.waiting
    assert task.due - bench.time.clock.monotonic() == pytest.approx(0.02)


def test_nothing_runs_after_stop():
    bench = Bench()
    log = bench.open(100)
    bench.timed.stop()
    bench.open(50)
    bench.time.advance_ms(1000)
    assert not log.flushes


def test_a_log_that_opens_during_a_check_is_not_forgotten():
    bench = Bench()
    opened = []

    class Opener(FakeLog):
        def flush(self):
            super().flush()
            if not opened:
                opened.append(bench.open(100))

    bench.logs.append(Opener(bench.time.clock, 1000))
    bench.timed.wanted(1000)
    bench.time.advance_ms(750)
    (late,) = opened
    late.append()
    bench.time.advance_ms(100)
    assert late.flushes


def test_a_failed_check_is_followed_by_another(monkeypatch):
    bench = Bench()
    log = bench.open(100)
    with monkeypatch.context() as patched:
        patched.setattr(bench.timed, "_logs", no_memory)
        with pytest.raises(MemoryError):
            bench.time.advance_ms(25)
    log.append()
    bench.time.advance_ms(100)
    assert log.flushes
    assert log.longest_wait_ms <= 100


def test_a_check_that_cannot_be_scheduled_is_scheduled_with_the_next_log(monkeypatch):
    bench = Bench()
    with monkeypatch.context() as patched:
        patched.setattr(bench.time, "schedule", no_memory)
        with pytest.raises(MemoryError):
            bench.open(100)
    assert bench.open(100)
    assert len(bench.time.waiting) == 1


def no_memory(*_, **__):
    raise MemoryError


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_no_record_waits_longer_than_its_flush_ms(data):
    """This holds for any flush.ms of several logs, for any changes of flush.ms, and for records at any time."""
    times = st.integers(SHORTEST_MS, 3000)
    bench = Bench(data.draw(st.sampled_from([NEVER_MS, 1, 50, 5000])))
    logs = [bench.open(data.draw(times)) for _ in range(data.draw(st.integers(1, 3)))]
    for _ in range(data.draw(st.integers(1, 40))):
        log = data.draw(st.sampled_from(logs))
        action = data.draw(st.sampled_from(["append", "wait", "alter"]))
        if action == "append":
            log.append()
        elif action == "wait":
            bench.time.advance_ms(data.draw(st.integers(1, 2000)))
        elif log.waiting_since is None:  # the limit of a waiting record must not change
            bench.alter(log, data.draw(times))
        for one in logs:
            limit = one.config.flush_ms
            assert one.longest_wait_ms <= limit + 0.001, f"waited {one.longest_wait_ms} ms of {limit}"
            if one.waiting_since is not None:
                assert (bench.time.clock.monotonic() - one.waiting_since) * 1000 <= limit + 0.001
            one.longest_wait_ms = 0.0
