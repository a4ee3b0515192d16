"""The order of measurements, failures, and the time limit."""

import json
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import cast

import pytest

from perf import __main__ as perf_command
from perf import runner, tables
from perf.brokers import Fleet
from perf.machine import ROOT
from perf.measurement import BARE, KAFKA, KAFKA_4, KAFKAPY, OTHER, TINY, Bench, Figures, Measurement, Row
from perf.report import write_json
from perf.runner import Collected, run
from perf.stats import compare
from perf.warm import Warmth

NO_BENCH = cast(Bench, SimpleNamespace(close=lambda: None))


class Recorded(Measurement):
    about = "records its calls"

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.rows = (Row(name, name, "s", "lower"),)
        self.calls = calls

    def run(self, bench: Bench, kind: str) -> Figures:
        self.calls.append(f"{self.name} {kind}")
        return {self.name: float(len(self.calls))}

    def limit(self, bench: Bench) -> Figures:
        self.calls.append(f"{self.name} {BARE}")
        return {}


class Failing(Recorded):
    def run(self, bench: Bench, kind: str) -> Figures:
        if kind == KAFKAPY:
            raise ConnectionError("closed")
        return super().run(bench, kind)


def test_the_sides_take_turns_in_every_run_and_change_their_order() -> None:
    calls: list[str] = []
    collected = Collected()
    run(NO_BENCH, [Recorded("a", calls), Recorded("b", calls)], [KAFKA, KAFKAPY], 2, 60, collected)
    first = ["a kafka", "a kafkapy", "a bare", "b kafka", "b kafkapy", "b bare"]
    assert calls == [*first, "a bare", "a kafkapy", "a kafka", "b bare", "b kafkapy", "b kafka"]
    assert collected.figures["a"] == {KAFKA: [1.0, 9.0], KAFKAPY: [2.0, 8.0]}


def test_apache_kafka_4_is_measured_where_it_can_be() -> None:
    calls: list[str] = []
    can, cannot = Recorded("a", calls), Recorded("b", calls)
    can.kafka_4 = True
    run(NO_BENCH, [can, cannot], [KAFKA, KAFKA_4, KAFKAPY], 1, 60, Collected())
    assert calls == ["a kafka", "a kafka-4", "a kafkapy", "a bare", "b kafka", "b kafkapy", "b bare"]


def test_the_headline_has_the_rows_of_the_readme_and_the_named_measurements(tmp_path: Path) -> None:
    options = perf_command._options(["--headline", "commits"])
    chosen, wanted = perf_command._chosen(options)
    assert options.brokers == [KAFKA, KAFKA_4, KAFKAPY]
    assert wanted is not None
    names = [each.name for each in chosen]
    assert {"produce", "latency", "cold_readers", "commits"} <= set(names)
    assert not {"zero_copy", "topics", "soak"} & set(names)
    assert {key for _, keys in tables.HEADLINE for key in keys} <= wanted
    bench = Bench(TINY, tmp_path, Fleet(tmp_path), Warmth(tmp_path, limit=0), wanted)
    assert bench.wants("partitions.start")
    assert bench.wants("commits.1")
    assert not bench.wants("partitions.memory")


class Clock:
    """A clock that only measurements move forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(runner.time, "monotonic", lambda: self.now)


class Timed(Recorded):
    def __init__(self, name: str, calls: list[str], clock: Clock, seconds: float) -> None:
        super().__init__(name, calls)
        self.clock, self.seconds = clock, seconds

    def run(self, bench: Bench, kind: str) -> Figures:
        self.clock.now += self.seconds
        return super().run(bench, kind)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_everything_is_measured_once_and_then_again_if_it_still_fits_the_shortest_first(clock: Clock) -> None:
    calls: list[str] = []
    collected = Collected()
    each = [Timed(name, calls, clock, seconds) for name, seconds in (("a", 20), ("b", 100), ("c", 10))]
    run(NO_BENCH, each, [KAFKA, KAFKAPY], 3, 400, collected)
    first = [f"{name} {side}" for name in "abc" for side in (KAFKA, KAFKAPY, BARE)]
    second = [f"{name} {side}" for name in "ca" for side in (BARE, KAFKAPY, KAFKA)]
    third = [f"{name} {side}" for name in "ca" for side in (KAFKA, KAFKAPY, BARE)]
    assert calls == first + second + third
    assert {name: len(sides[KAFKAPY]) for name, sides in collected.figures.items()} == {"a": 3, "b": 1, "c": 3}
    assert collected.seconds["b"] == {KAFKA: [100.0], KAFKAPY: [100.0], BARE: [0.0]}
    assert not collected.left_out


def test_the_cpu_time_that_the_host_takes_is_collected_and_its_most_is_said(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(runner, "stolen_seconds", lambda: clock.now / 10)
    collected = Collected()
    assert collected.most_stolen() is None
    run(NO_BENCH, [Timed("a", [], clock, 20)], [KAFKAPY], 1, 400, collected)
    assert collected.stolen == {"a": {KAFKAPY: [0.05], BARE: [0.0]}}
    said = collected.most_stolen()
    assert said is not None
    assert "took up to 5% of the CPU time (a of kafkapy, run 1)" in said


def test_the_whole_suite_ends_in_time_even_if_measurements_are_slow(clock: Clock) -> None:
    each = [Timed(f"m{number}", [], clock, 7.0 * number) for number in range(12)]
    collected = Collected()
    run(NO_BENCH, each, [KAFKA, KAFKAPY], 5, 300, collected)
    assert clock.now <= 300 + 2 * 7 * 12
    assert collected.left_out[-1] == "m11"
    assert set(collected.figures) == {each.name for each in each if each.name not in collected.left_out}


def test_a_failure_is_reported_and_the_rest_is_still_measured(capsys: pytest.CaptureFixture[str]) -> None:
    collected = Collected()
    run(NO_BENCH, [Failing("a", []), Recorded("b", [])], [KAFKA, KAFKAPY], 1, 60, collected)
    assert collected.failures == ["a of kafkapy, run 1: ConnectionError: closed"]
    assert "ConnectionError: closed" in capsys.readouterr().err
    assert set(collected.figures["a"]) == {KAFKA}
    assert set(collected.figures["b"]) == {KAFKA, KAFKAPY}


def test_a_measurement_that_would_end_too_late_is_left_out_and_listed() -> None:
    calls: list[str] = []
    collected = Collected()
    run(NO_BENCH, [Recorded("a", calls)], [KAFKAPY], 1, -1.0, collected)
    assert calls == []
    assert collected.left_out == ["a"]


class Endless(Recorded):
    def run(self, bench: Bench, kind: str) -> Figures:
        Event().wait(60)
        return super().run(bench, kind)


def test_a_step_of_the_whole_suite_that_takes_too_long_is_ended_listed_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "STEP_SECONDS", 0.1)
    collected = Collected()
    run(NO_BENCH, [Endless("a", []), Recorded("b", [])], [KAFKAPY], 2, 60, collected)
    assert collected.left_out == ["a of kafkapy, run 1 (not finished after 0 s)"]
    assert not collected.failures
    assert collected.figures == {"b": {KAFKAPY: [1.0, 4.0]}}  # the bare loop comes first in the second run


def test_the_json_holds_every_figure(tmp_path: Path) -> None:
    measured = {"a": {KAFKA: [1.0, 3.0], KAFKAPY: [1.0]}}
    file = tmp_path / "results" / "run.json"
    comparisons = compare([Row("a", "label", "s", "lower")], measured)
    write_json(file, {"kernel": "k"}, comparisons, measured, {"x": "a note"}, {"scale": "tiny"})
    result = json.loads(file.read_text())
    assert result["machine"] == {"kernel": "k"}
    assert result["notes"] == ["a note"]
    assert result["rows"][0]["figures"] == measured["a"]
    assert result["rows"][0]["medians"] == {KAFKA: 2.0, KAFKAPY: 1.0}
    assert result["rows"][0]["ratio"] == 0.5


class WhereItRuns(Recorded):
    """Records the working directory of the started broker."""

    def run(self, bench: Bench, kind: str) -> Figures:
        with bench.broker(kind) as broker:
            self.calls.append(str(Path(f"/proc/{broker.pid}/cwd").resolve()))
        bench.point(("curve", "label", "s", "sizes"), kind, len(self.calls), 1.0)
        return {self.name: float(len(self.calls))}


def test_the_broker_of_another_checkout_is_a_separate_side(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "kafkapy").symlink_to(ROOT / "kafkapy")
    bench = Bench(TINY, tmp_path, Fleet(tmp_path, other), Warmth(tmp_path, limit=0))
    calls: list[str] = []
    collected = Collected()
    run(bench, [WhereItRuns("a", calls)], [OTHER, KAFKAPY], 1, 60, collected)
    assert not collected.failures
    assert calls == [str(other), str(Path.cwd()), "a bare"]
    assert collected.figures == {"a": {OTHER: [1.0], KAFKAPY: [2.0]}}
    assert set(bench.curves["curve"].costs) == {OTHER, KAFKAPY}
    (comparison,) = compare([Row("a", "label", "s", "lower")], collected.figures)
    assert comparison.ratio == 2.0


def test_a_checkout_that_is_not_built_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        perf_command.main(["start", "--brokers", f"kafkapy,{tmp_path}"])
    assert "no checkout in which kafkapy is built" in capsys.readouterr().err
