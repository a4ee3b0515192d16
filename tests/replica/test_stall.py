"""The conditions under which writes to a log directory count as stalled."""

import time

import pytest

from kafkapy.replica.stall import StallMonitor


class Hand:
    """A clock for the monitor that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def write(self, monitor: StallMonitor, seconds: float, size: int = 100, *, after: float = 0.0) -> None:
        self.now += after + seconds
        monitor.observe(seconds, size)


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    return Hand(monkeypatch)


def test_one_slow_write_is_no_stall(hand: Hand) -> None:
    monitor = StallMonitor(0.001)
    for _ in range(5):
        hand.write(monitor, 0.02, after=1.0)
        assert not monitor.lasts()
    assert monitor.stalls == 5


def test_two_in_short_order_are_one_until_it_is_calm_again(hand: Hand) -> None:
    monitor = StallMonitor(0.001)
    hand.write(monitor, 0.2)
    hand.write(monitor, 0.0001)
    hand.write(monitor, 0.2, after=0.04)  # counts by its begin, soon after the first stall's end
    assert monitor.lasts()
    hand.write(monitor, 0.002, after=0.04)
    hand.now += 0.049
    assert monitor.lasts()
    hand.now += 0.002
    assert not monitor.lasts()
    hand.write(monitor, 0.002)
    assert not monitor.lasts()


def test_a_large_write_may_take_longer(hand: Hand) -> None:
    monitor = StallMonitor(0.001)
    for _ in range(3):
        hand.write(monitor, 0.015, 1 << 20)
    assert monitor.stalls == 0
