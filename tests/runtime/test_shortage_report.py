"""A full disk is reported when it begins, once a minute, and when it is over."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.shortage_report import QUIET_S, REPEAT_S, ShortageReport, free_bytes
from kafkapy.runtime.threads import NoThread

FULL = "No space left on device"


class Bench:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.clock = ManualClock()
        self.scheduled: list[tuple[float, Callable[[], object]]] = []
        self.report = ShortageReport("/data", self.clock, self.call_later)

    def call_later(self, fn: Callable[[], object], delay_s: float) -> None:
        self.scheduled.append((self.clock.monotonic() + delay_s, fn))

    def advance(self, seconds: float) -> None:
        """Advance the clock, and make the calls that are due then."""
        self.clock.advance(seconds)
        due = [call for call in self.scheduled if call[0] <= self.clock.monotonic()]
        for call in due:
            self.scheduled.remove(call)
            call[1]()

    def refuse(self, times: int = 1, doing: str = "appending to t-0") -> None:
        for _ in range(times):
            self.report.refused(doing, FULL)

    def logged(self) -> list[tuple[str, str]]:
        """Return (level, message) of the lines logged since the last call."""
        lines = [(record.levelname, record.message) for record in self._caplog.records]
        self._caplog.clear()
        return lines


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Bench:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("kafkapy.runtime.shortage_report.free_bytes", lambda directory: "4096")
    return Bench(caplog)


def test_the_first_refusal_is_an_error_that_says_what_is_refused(bench: Bench) -> None:
    bench.refuse(100)
    ((level, line),) = bench.logged()
    assert level == "ERROR"
    assert line.startswith(
        f"/data cannot be written: {FULL}; bytes free: 4096. Refused: appending to t-0, and everything else "
    )
    assert bench.report.lasts


def test_once_a_minute_the_number_of_refusals_is_logged(bench: Bench) -> None:
    bench.refuse()
    bench.logged()
    for _ in range(6):
        bench.clock.advance(REPEAT_S / 6)
        bench.refuse(10)
    bench.refuse(10, "appending to __consumer_offsets-3")
    assert bench.logged() == [
        (
            "ERROR",
            f"/data could not be written for 60 s: {FULL}; bytes free: 4096; writes refused since the last line: 51, "
            "the last one: appending to t-0",
        )
    ]
    bench.clock.advance(REPEAT_S)
    bench.report.refused("appending to t-0", FULL, 7)
    ((_, line),) = bench.logged()
    assert "for 120 s:" in line
    assert "since the last line: 26, " in line


def test_the_end_is_one_line_with_the_sum(bench: Bench) -> None:
    bench.refuse(3)
    bench.clock.advance(42)
    bench.refuse(4)
    bench.logged()
    bench.clock.advance(QUIET_S)
    bench.report.written()
    bench.report.written()
    assert bench.logged() == [
        ("WARNING", "/data can be written again; bytes free: 4096; writes refused: 7, in 42 s"),
    ]
    assert not bench.report.lasts


def test_writes_that_still_fit_do_not_end_it(bench: Bench) -> None:
    for _ in range(100):
        bench.refuse()
        bench.clock.advance(QUIET_S / 2)
        bench.report.written()
    assert len(bench.logged()) == 1 + 100 * QUIET_S / 2 // REPEAT_S
    assert bench.report.lasts


def test_the_end_of_a_shortage_is_logged_even_if_there_are_no_more_writes(bench: Bench) -> None:
    bench.refuse(3)
    bench.clock.advance(1)
    for _ in range(100):  # there is space again, and all producers continue at once
        bench.report.written()
    assert len(bench.scheduled) == 1
    assert [level for level, _ in bench.logged()] == ["ERROR"]
    bench.advance(QUIET_S - 1)
    assert bench.logged() == [("WARNING", "/data can be written again; bytes free: 4096; writes refused: 3, in 0 s")]
    assert not bench.report.lasts


def test_a_refusal_after_the_last_write_keeps_it_going(bench: Bench) -> None:
    bench.refuse()
    bench.report.written()
    bench.clock.advance(QUIET_S / 2)
    bench.refuse()
    bench.logged()
    bench.advance(QUIET_S * 2)
    assert (bench.logged(), bench.report.lasts) == ([], True)


def test_the_quiet_time_begins_at_the_last_refusal(bench: Bench) -> None:
    bench.refuse()
    bench.report.written()
    bench.clock.advance(QUIET_S / 2)
    bench.refuse()
    bench.report.written()
    bench.logged()
    bench.advance(QUIET_S / 2)
    assert bench.logged() == []
    bench.advance(QUIET_S / 2)
    assert [level for level, _ in bench.logged()] == ["WARNING"]


def test_a_write_does_not_fail_because_no_thread_can_be_started(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(fn: Callable[[], object], delay_s: float) -> None:
        raise NoThread("scheduler-0", "out of memory")

    monkeypatch.setattr(bench.report, "_call_later", no_thread)
    bench.refuse()
    bench.report.written()
    bench.clock.advance(QUIET_S)
    bench.report.written()
    assert [level for level, _ in bench.logged()] == ["ERROR", "WARNING"]


def test_the_next_shortage_is_another_one(bench: Bench) -> None:
    bench.refuse(5)
    bench.clock.advance(QUIET_S)
    bench.report.written()
    bench.logged()
    bench.refuse(2)
    assert [level for level, _ in bench.logged()] == ["ERROR"]
    bench.clock.advance(QUIET_S)
    bench.report.written()
    ((_, line),) = bench.logged()
    assert "writes refused: 2, in 0 s" in line


def test_free_bytes_are_those_of_the_disk(tmp_path: Path) -> None:
    assert int(free_bytes(str(tmp_path))) > 0
    assert free_bytes(str(tmp_path / "gone")) == "unknown (No such file or directory)"
