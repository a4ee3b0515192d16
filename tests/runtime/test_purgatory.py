"""Delayed operations complete exactly once, by any thread or by the time-out, and leave nothing behind."""

import random
import threading
from collections.abc import Hashable, Iterable

import pytest

from kafkapy.runtime.clock import SYSTEM_CLOCK, ManualClock
from kafkapy.runtime.purgatory import DelayedOperation, Purgatory
from kafkapy.runtime.timer import Timer


class Op(DelayedOperation):
    def __init__(self, ready: bool = False) -> None:
        super().__init__()
        self.ready = ready
        self.asked = 0
        self.completions = 0
        self.expirations = 0
        self.done = threading.Event()

    def try_complete(self) -> bool:
        self.asked += 1
        return self.ready

    def on_complete(self) -> None:
        self.completions += 1

    def on_expire(self) -> None:
        self.expirations += 1
        self.done.set()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock):
    timer = Timer(clock)
    timer.start()
    yield timer
    timer.stop()


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory:
    return Purgatory("test", timer)


def try_or_watch(purgatory: Purgatory, op: DelayedOperation, timeout_s: float, keys: Iterable[Hashable]) -> bool:
    """Complete `op` now if possible, otherwise watch it, as the broker does. Return True if this call completed it."""
    return op.check() or purgatory.watch(op, timeout_s, keys)


def test_an_operation_that_is_ready_is_not_watched(purgatory: Purgatory) -> None:
    op = Op(ready=True)
    assert try_or_watch(purgatory, op, 10, ["a"])
    assert (op.completions, purgatory.delayed, purgatory.keys) == (1, 0, 0)


def test_a_check_of_one_key_completes_and_removes_it_from_all(purgatory: Purgatory, timer: Timer) -> None:
    op = Op()
    assert not try_or_watch(purgatory, op, 10, ["a", "b", "c", "a"])
    assert (purgatory.delayed, purgatory.watched, purgatory.keys) == (1, 3, 3)
    assert purgatory.check("b") == 0
    assert purgatory.check("unknown") == 0
    op.ready = True
    assert purgatory.check("b") == 1
    assert purgatory.check("a") == 0
    assert (op.completions, op.expirations) == (1, 0)
    assert (purgatory.delayed, purgatory.watched, purgatory.keys, len(timer)) == (0, 0, 0, 0)


def test_time_out_completes_and_then_expires(clock: ManualClock, purgatory: Purgatory) -> None:
    op = Op()
    try_or_watch(purgatory, op, 5, ["a"])
    clock.advance(5)
    assert op.done.wait(30)
    assert (op.completions, op.expirations, purgatory.delayed) == (1, 1, 0)
    op.ready = True
    assert purgatory.check("a") == 0
    assert not op.force_complete()


def test_operations_complete_in_the_order_in_which_they_began_to_wait(purgatory: Purgatory) -> None:
    order: list[int] = []

    class Numbered(Op):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def on_complete(self) -> None:
            order.append(self.number)

    ops = [Numbered(i) for i in range(10)]
    for op in ops:
        try_or_watch(purgatory, op, 10, ["k"])
        op.ready = True
    assert purgatory.check("k") == 10
    assert order == list(range(10))


def test_an_operation_may_complete_others_under_the_same_key(purgatory: Purgatory) -> None:
    class Chain(Op):
        def on_complete(self) -> None:
            super().on_complete()
            purgatory.check("k")

    ops = [Chain() for _ in range(5)]
    for op in ops:
        try_or_watch(purgatory, op, 10, ["k"])
    for op in ops:
        op.ready = True
    purgatory.check("k")
    assert [op.completions for op in ops] == [1] * 5
    assert purgatory.keys == 0


def test_a_failing_operation_does_not_keep_others_from_completing(
    purgatory: Purgatory, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Op):
        broken = False

        def try_complete(self) -> bool:
            if self.broken:
                raise RuntimeError("cannot say")
            return False

    broken, good = Broken(), Op()
    try_or_watch(purgatory, broken, 10, ["k"])
    try_or_watch(purgatory, good, 10, ["k"])
    broken.broken = good.ready = True
    assert purgatory.check("k") == 1
    assert "cannot say" in caplog.text


def test_complete_all_completes_operations_that_are_not_ready(purgatory: Purgatory) -> None:
    ops = [Op() for _ in range(3)]
    for op in ops:
        try_or_watch(purgatory, op, 10, ["k"])
    assert purgatory.complete_all("k") == 3
    assert [op.completions for op in ops] == [1, 1, 1]


def test_a_change_during_another_threads_check_is_not_lost(purgatory: Purgatory) -> None:
    """Thread A has checked too early and still holds the operation; thread B's change and check come exactly then."""
    looked, news = threading.Event(), threading.Event()

    class Slow(Op):
        def try_complete(self) -> bool:
            answer = super().try_complete()
            if self.asked == 3:  # the two calls by `watch` are over: this one is thread A's
                looked.set()
                news.wait()
            return answer

    op = Slow()
    try_or_watch(purgatory, op, 10, ["k"])
    a = threading.Thread(target=purgatory.check, args=("k",))
    a.start()
    looked.wait()
    op.ready = True
    assert purgatory.check("k") == 0  # A holds the lock, so B only leaves a request for another check
    news.set()
    a.join()
    assert op.completions == 1


def test_exactly_once_under_races_of_checks_cancels_and_time_outs() -> None:
    """Many threads check, force and expire the same operations while others add them."""
    timer = Timer(SYSTEM_CLOCK)
    timer.start()
    purgatory = Purgatory("race", timer)
    keys = list(range(8))
    ops: list[Op] = []
    stop = threading.Event()

    def check() -> None:
        rng = random.Random(threading.get_ident())
        while not stop.is_set():
            purgatory.check(rng.choice(keys))
            if ops:
                op = rng.choice(ops)
                op.ready = True
                if rng.random() < 0.3:
                    op.force_complete()

    def add() -> None:
        rng = random.Random(threading.get_ident())
        for _ in range(400):
            op = Op()
            ops.append(op)
            try_or_watch(purgatory, op, rng.choice([0.0, 0.001, 60]), rng.sample(keys, 3))

    checkers = [threading.Thread(target=check) for _ in range(2)]
    adders = [threading.Thread(target=add) for _ in range(3)]
    for thread in checkers + adders:
        thread.start()
    for thread in adders:
        thread.join()
    stop.set()
    for thread in checkers:
        thread.join()
    for op in ops:
        op.ready = True
    for key in keys:
        purgatory.check(key)
    timer.stop()
    assert {op.completions for op in ops} == {1}
    assert (purgatory.delayed, purgatory.watched, purgatory.keys) == (0, 0, 0)
