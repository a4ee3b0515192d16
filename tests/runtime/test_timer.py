"""The timer under a manual clock, and its races with cancellation."""

import gc
import threading
import weakref

import pytest

from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.timer import Timer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock):
    timer = Timer(clock)
    timer.start()
    yield timer
    timer.stop()


def passed(timer: Timer) -> None:
    """Wait until the timer thread has made all calls that are due."""
    done = threading.Event()
    timer.schedule(0, done.set)
    assert done.wait(30)


def test_callbacks_come_in_order_of_their_time(clock: ManualClock, timer: Timer) -> None:
    calls: list[str] = []
    timer.schedule(3, lambda: calls.append("c"))
    timer.schedule(1, lambda: calls.append("a"))
    timer.schedule(2, lambda: calls.append("b"))
    passed(timer)
    assert calls == []
    clock.advance(2)
    passed(timer)
    assert calls == ["a", "b"]
    clock.advance(1)
    passed(timer)
    assert calls == ["a", "b", "c"]


def test_an_earlier_entry_wakes_the_thread_that_sleeps_for_a_later_one(clock: ManualClock, timer: Timer) -> None:
    called = threading.Event()
    timer.schedule(100, lambda: None)
    passed(timer)
    timer.schedule(1, called.set)
    clock.advance(1)
    assert called.wait(30)


def test_a_cancelled_entry_is_not_called_and_holds_nothing_alive(clock: ManualClock, timer: Timer) -> None:
    class Held:
        def call(self) -> None:
            raise AssertionError("a cancelled entry was called")

    held = Held()
    entry = timer.schedule(1, held.call)
    gone = weakref.ref(held)
    entry.cancel()
    entry.cancel()
    del held
    gc.collect()
    assert gone() is None
    clock.advance(2)
    passed(timer)
    assert len(timer) == 0


def test_cancelled_entries_are_swept_before_their_time(timer: Timer) -> None:
    keep = timer.schedule(1000, lambda: None)
    for _ in range(5000):
        timer.schedule(1000, lambda: None).cancel()
    assert len(timer._heap) < 2100
    assert len(timer) == 1
    keep.cancel()


def test_a_failing_callback_does_not_end_the_timer(timer: Timer, caplog: pytest.LogCaptureFixture) -> None:
    timer.schedule(0, lambda: 1 // 0)
    passed(timer)
    assert "ZeroDivisionError" in caplog.text


def test_nothing_is_called_after_stop(clock: ManualClock) -> None:
    timer = Timer(clock)
    timer.start()
    timer.schedule(1, lambda: pytest.fail("called after stop"))
    timer.stop()
    clock.advance(2)
    timer.schedule(0, lambda: pytest.fail("called after stop"))
    timer.start()
    assert len(timer) == 0
