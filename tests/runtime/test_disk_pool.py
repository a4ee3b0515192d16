"""The disk pool passes results to `done`, starts threads when there is work, and runs all submitted work on stop."""

import threading
from typing import Any

import pytest

from kafkapy.runtime.disk_pool import DiskPool


class Outcome:
    def __init__(self) -> None:
        self.event = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def __call__(self, result: Any, error: BaseException | None) -> None:
        self.result, self.error = result, error
        self.event.set()


def test_done_gets_the_result_or_the_error() -> None:
    pool = DiskPool(1)
    good, bad = Outcome(), Outcome()
    pool.submit(lambda a, b: a + b, 2, 3, done=good)
    pool.submit(lambda: 1 // 0, done=bad)
    pool.stop()
    assert (good.result, good.error) == (5, None)
    assert bad.result is None
    assert isinstance(bad.error, ZeroDivisionError)


def test_threads_start_only_with_work_and_up_to_the_limit() -> None:
    pool = DiskPool(2)
    assert pool.threads == 0
    gate = threading.Event()
    for _ in range(5):
        pool.submit(gate.wait)
    assert pool.threads == 2
    assert pool.depth == 5
    gate.set()
    pool.stop()
    assert pool.depth == 0


def test_stop_runs_all_submitted_work_and_refuses_more() -> None:
    pool = DiskPool(1)
    ran: list[int] = []
    gate = threading.Event()
    pool.submit(gate.wait)
    for i in range(3):
        pool.submit(ran.append, i)
    pool.stop(wait=False)
    with pytest.raises(RuntimeError, match="stopped"):
        pool.submit(ran.append, 9)
    gate.set()
    pool.stop()
    assert ran == [0, 1, 2]


def test_an_error_without_done_is_logged_and_the_thread_lives_on(caplog: pytest.LogCaptureFixture) -> None:
    pool = DiskPool(1)
    ran = threading.Event()
    pool.submit(lambda: 1 // 0)
    pool.submit(ran.set)
    pool.stop()
    assert ran.is_set()
    assert "ZeroDivisionError" in caplog.text
