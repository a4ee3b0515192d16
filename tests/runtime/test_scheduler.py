"""The scheduler under a manual clock: when tasks run, and that failures do not end them."""

import heapq
import threading

import pytest

from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.scheduler import Scheduler
from tests.harness.waiting import eventually


class Runs:
    """A task that counts its runs, and lets a test wait for the next one."""

    def __init__(self, fail: bool = False) -> None:
        self._seen = threading.Semaphore(0)
        self._fail = fail

    def __call__(self) -> None:
        self._seen.release()
        if self._fail:
            raise RuntimeError("this task fails")

    def wait(self) -> None:
        assert self._seen.acquire(timeout=30)

    def none(self) -> bool:
        return not self._seen.acquire(blocking=False)


def test_a_task_runs_after_its_delay_and_then_every_period() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    runs = Runs()
    scheduler.schedule("tick", runs, delay_s=5, period_s=10)
    clock.advance(4.9)
    assert runs.none()
    clock.advance(0.2)
    runs.wait()
    clock.advance(10)
    runs.wait()
    scheduler.stop()
    assert runs.none()


def test_missed_runs_are_skipped() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    runs = Runs()
    scheduler.schedule("tick", runs, delay_s=1, period_s=1)
    clock.advance(50)
    runs.wait()
    runs.wait()  # due at 2 by the rate, so it runs again at once, and from then on by the period
    clock.advance(1)
    runs.wait()
    scheduler.stop()
    assert runs.none()


def test_a_task_that_raises_is_logged_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    runs = Runs(fail=True)
    scheduler.schedule("flaky", runs, period_s=1)
    runs.wait()
    clock.advance(1)
    runs.wait()
    scheduler.stop()
    assert "the background task flaky failed" in caplog.text


def test_a_cancelled_task_does_not_run_and_is_not_pending() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    runs, other = Runs(), Runs()
    task = scheduler.schedule("never", runs, delay_s=1)
    scheduler.schedule("marker", other, delay_s=2)
    task.cancel()
    assert scheduler.pending == 1
    clock.advance(3)
    other.wait()
    assert runs.none()
    scheduler.stop()


def test_a_task_that_blocks_leaves_the_other_threads_to_the_rest() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock, threads=2)
    gate = threading.Event()
    runs = Runs()
    scheduler.schedule("slow", gate.wait)
    scheduler.schedule("quick", runs)
    runs.wait()
    gate.set()
    scheduler.stop()


def test_a_task_that_blocks_does_not_delay_those_that_were_added_while_a_thread_was_free() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock, threads=2)
    gate = threading.Event()
    first, quick = Runs(), Runs()
    scheduler.schedule("first", first)
    first.wait()
    eventually(lambda: scheduler._free == 1)
    scheduler.schedule("slow", gate.wait, delay_s=1)
    scheduler.schedule("quick", quick, delay_s=2)
    clock.advance(1)
    eventually(lambda: scheduler.pending == 1)  # the slow task has begun
    clock.advance(1)
    quick.wait()
    gate.set()
    scheduler.stop()


def test_nothing_runs_after_stop() -> None:
    scheduler = Scheduler(ManualClock())
    runs = Runs()
    scheduler.schedule("early", runs, delay_s=1)
    scheduler.stop()
    assert scheduler.schedule("late", runs).cancelled
    assert scheduler.pending == 0
    assert runs.none()


def test_a_task_is_not_lost_when_there_is_no_memory_to_note_its_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    runs, lacking = Runs(), threading.Event()
    scheduler.schedule("tick", runs, period_s=10)
    push = heapq.heappush

    def refused(*_: object) -> None:
        lacking.set()
        raise MemoryError

    runs.wait()
    eventually(lambda: scheduler.pending == 1)
    monkeypatch.setattr(heapq, "heappush", refused)
    clock.advance(10)
    runs.wait()
    assert lacking.wait(30)
    monkeypatch.setattr(heapq, "heappush", push)
    clock.advance(10)
    runs.wait()
    scheduler.stop()
