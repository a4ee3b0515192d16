"""The manual clock wakes exactly the threads whose deadlines are reached."""

import threading

import pytest

from kafkapy.runtime.clock import SYSTEM_CLOCK, ManualClock


def test_advance_moves_both_clocks() -> None:
    clock = ManualClock(time_ms=5_000, monotonic=1.0)
    clock.advance(1.5)
    assert clock.time_ms() == 6_500
    assert clock.monotonic() == 2.5


def test_the_wall_clock_can_go_back_without_the_monotonic_one() -> None:
    clock = ManualClock(time_ms=5_000)
    before = clock.monotonic()
    clock.set_time_ms(1_000)
    assert clock.time_ms() == 1_000
    assert clock.monotonic() == before
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_a_waiter_wakes_when_its_deadline_is_reached() -> None:
    clock = ManualClock()
    condition = threading.Condition()
    waits = threading.Event()
    woke = threading.Event()

    def wait() -> None:
        deadline = clock.monotonic() + 10
        with condition:
            waits.set()
            while clock.monotonic() < deadline:
                clock.wait_until(condition, deadline)
        woke.set()

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait()
    clock.advance(9)
    assert not woke.is_set()
    clock.advance(1)
    thread.join()
    assert woke.is_set()


def test_waiting_for_a_time_that_is_past_returns_at_once() -> None:
    for clock in (ManualClock(), SYSTEM_CLOCK):
        condition = threading.Condition()
        with condition:
            clock.wait_until(condition, clock.monotonic() - 1)


def test_subscribers_are_called_at_every_jump() -> None:
    clock = ManualClock()
    jumps: list[float] = []
    clock.subscribe(lambda: jumps.append(clock.monotonic()))
    clock.advance(1)
    clock.advance(2)
    assert jumps == [1001.0, 1003.0]
