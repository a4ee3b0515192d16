"""A shard runs steps: records change its state only when they are in the log, and in log order."""

import threading
from functools import partial
from typing import Any

import pytest

from kafkapy.coordinator.shard import ACTIVE, FAILED, LOADING, UNLOADED, Effects, Producer, Shard
from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.timer import Timer
from tests.coordinator.key_values import KeyValues, put
from tests.coordinator.memory_shard import MemoryLog, memory_shard

FULL = KafkaError(Errors.KAFKA_STORAGE_ERROR, "the disk is gone")


class Answers:
    """A log whose appends the test answers one at a time, in any order."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def append(self, records: Any, producer: Any, done: Any) -> None:
        self.done.append(done)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Any:
    timer = Timer(clock)
    timer.start()
    yield timer
    timer.stop()


@pytest.fixture
def shard(clock: ManualClock, timer: Timer) -> Shard[KeyValues]:
    machine = KeyValues()
    shard: Shard[KeyValues] = memory_shard(machine, clock, timer)[0]
    machine.shard = shard
    return shard


def log_of(shard: Shard[KeyValues]) -> MemoryLog:
    return shard._log  # type: ignore[return-value]


def test_records_are_applied_when_they_are_in_the_log(shard: Shard[KeyValues]) -> None:
    outcomes: list[KafkaError | None] = []
    log_of(shard).held = True
    shard.run(put(b"a", b"1", outcomes.append))
    assert (shard.machine.values, outcomes) == ({}, [])
    log_of(shard).release()
    assert (shard.machine.values, outcomes) == ({b"a": b"1"}, [None])


def test_an_append_that_fails_changes_nothing(shard: Shard[KeyValues]) -> None:
    outcomes: list[KafkaError | None] = []
    shard.run(put(b"a", b"1"))
    log_of(shard).fails = FULL
    shard.run(put(b"a", b"2", outcomes.append))
    assert (shard.machine.values, outcomes) == ({b"a": b"1"}, [FULL])


def together(shard: Shard[KeyValues], *steps: Any) -> list[Any]:
    """Run the steps joined. Return the error of each step, None for a step that was not refused."""
    refused: list[Any] = [None] * len(steps)
    shard.run_joined([(step, partial(refused.__setitem__, number)) for number, step in enumerate(steps)])
    return refused


def test_joined_steps_are_one_append(shard: Shard[KeyValues]) -> None:
    results: list[Any] = []
    steps = [put(b"%d" % number, b"v", lambda error, n=number: results.append((n, error))) for number in range(3)]
    assert together(shard, *steps, lambda _: None) == [None] * 4
    assert log_of(shard).batches == [([(b"0", b"v"), (b"1", b"v"), (b"2", b"v")], None)]
    assert shard.machine.values == {b"0": b"v", b"1": b"v", b"2": b"v"}
    assert results == [(0, None), (1, None), (2, None)]


def test_a_refused_or_failing_step_does_not_affect_the_joined_ones(shard: Shard[KeyValues]) -> None:
    results: list[Any] = []

    def refuses(machine: KeyValues) -> Effects:
        raise FULL

    def fails(machine: KeyValues) -> Effects:
        raise RuntimeError("an unforeseen error")

    refused = together(shard, put(b"a", b"1", results.append), refuses, fails, put(b"b", b"1", results.append))
    assert [error and error.code for error in refused] == [None, FULL.code, Errors.UNKNOWN_SERVER_ERROR, None]
    assert results == [None, None]
    assert shard.machine.values == {b"a": b"1", b"b": b"1"}


def test_each_joined_step_gets_the_error_of_a_failed_append(shard: Shard[KeyValues]) -> None:
    results: list[Any] = []
    log_of(shard).fails = FULL
    together(shard, put(b"a", b"1", results.append), put(b"b", b"1", results.append))
    assert (results, shard.machine.values) == ([FULL, FULL], {})


def test_joined_steps_that_are_too_large_are_appended_one_by_one(
    shard: Shard[KeyValues], monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[Any] = []
    log = log_of(shard)
    plain = log.append

    def append(records: Any, producer: Any, done: Any) -> None:
        if len(records) > 1:
            done(KafkaError(Errors.RECORD_LIST_TOO_LARGE))
        else:
            plain(records, producer, done)

    monkeypatch.setattr(log, "append", append)
    together(shard, put(b"a", b"1", results.append), put(b"b", b"2", results.append))
    assert (results, log.records) == ([None, None], [(b"a", b"1"), (b"b", b"2")])


def test_a_shard_that_has_ended_refuses_each_step(shard: Shard[KeyValues]) -> None:
    shard.end()
    refused = together(shard, put(b"a", b"1"), put(b"b", b"1"))
    assert [error.code for error in refused] == [Errors.NOT_COORDINATOR] * 2


def test_callbacks_run_in_the_order_of_the_appends(clock: ManualClock, timer: Timer) -> None:
    log, results = Answers(), []
    shard: Shard[KeyValues] = Shard("t", 0, KeyValues(), log, clock=clock, timer=timer)
    shard.begin()
    for name in "abc":
        shard.run(put(b"key", name.encode(), lambda error, name=name: results.append((name, error))))
    log.done[2](None)
    log.done[1](FULL)
    assert (results, shard.machine.values) == ([], {})
    log.done[0](None)
    assert results == [("a", None), ("b", FULL), ("c", None)]
    assert shard.machine.values == {b"key": b"c"}


def test_an_unexpected_exception_of_an_append_does_not_block_the_next(
    shard: Shard[KeyValues], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(log_of(shard), "append", lambda *arguments: 1 // 0)
        shard.run(put(b"a", b"1", outcomes.append))
    shard.run(put(b"b", b"2", outcomes.append))
    assert [error and error.code for error in outcomes] == [Errors.UNKNOWN_SERVER_ERROR, None]
    assert shard.machine.values == {b"b": b"2"}


def test_the_callback_of_an_append_may_run_the_next_step(shard: Shard[KeyValues]) -> None:
    shard.run(put(b"a", b"1", lambda error: shard.run(put(b"b", b"2"))))
    assert shard.machine.values == {b"a": b"1", b"b": b"2"}


def test_a_failing_callback_does_not_affect_the_next_append(shard: Shard[KeyValues]) -> None:
    outcomes: list[KafkaError | None] = []
    log_of(shard).held = True
    shard.run(put(b"a", b"1", lambda error: 1 // 0))
    shard.run(put(b"b", b"2", outcomes.append))
    log_of(shard).release()
    assert outcomes == [None]
    assert shard.machine.values == {b"a": b"1", b"b": b"2"}


def test_a_step_without_records_is_done_at_once(shard: Shard[KeyValues]) -> None:
    outcomes: list[KafkaError | None] = []
    shard.run(lambda machine: Effects(then=outcomes.append))
    shard.run(lambda machine: None)
    assert outcomes == [None]
    assert log_of(shard).batches == []


def test_the_producer_is_passed_with_its_records(shard: Shard[KeyValues]) -> None:
    shard.run(put(b"a", b"1", producer=Producer(7, 1)))
    assert log_of(shard).batches == [([(b"a", b"1")], Producer(7, 1))]
    assert shard.machine.producers == [Producer(7, 1)]


def test_a_refusal_is_raised(shard: Shard[KeyValues]) -> None:
    def refuse(machine: KeyValues) -> Effects:
        raise KafkaError(Errors.ILLEGAL_GENERATION)

    with pytest.raises(KafkaError) as refused:
        shard.run(refuse)
    assert refused.value.code == Errors.ILLEGAL_GENERATION


def test_no_step_runs_during_a_load(clock: ManualClock, timer: Timer) -> None:
    shard: Shard[KeyValues] = Shard("t", 3, KeyValues(), MemoryLog(), clock=clock, timer=timer)
    for ask in (lambda: shard.run(put(b"a", b"1")), lambda: shard.read(lambda machine: machine.values)):
        with pytest.raises(KafkaError, match="t-3 is being loaded") as refused:
            ask()
        assert refused.value.code == Errors.COORDINATOR_LOAD_IN_PROGRESS
    shard.begin()
    shard.run(put(b"a", b"1"))
    assert shard.read(lambda machine: dict(machine.values)) == {b"a": b"1"}


def test_an_incomplete_load_continues(clock: ManualClock, timer: Timer) -> None:
    shard: Shard[KeyValues] = Shard("t", 0, KeyValues(), MemoryLog(), clock=clock, timer=timer)
    assert not shard.begin(lambda: False)
    assert (shard.state, shard.machine.seen) == (LOADING, [])
    assert shard.begin(lambda: True)
    assert (shard.state, shard.machine.seen) == (ACTIVE, ["loaded"])


def test_when_loaded_calls_run_before_the_steps_of_requests(clock: ManualClock, timer: Timer) -> None:
    shard: Shard[KeyValues] = Shard("__test", 0, KeyValues(), MemoryLog(), clock=clock, timer=timer)
    seen: list[Any] = []
    shard.when_loaded(lambda: shard.run(lambda machine: seen.append((list(machine.seen), shard.is_loading))))
    assert seen == []
    shard.begin()
    assert seen == [(["loaded"], True)]
    shard.when_loaded(lambda: seen.append("at once"))
    assert seen[1:] == ["at once"]


def test_when_loaded_does_not_call_after_the_shard_has_ended(clock: ManualClock, timer: Timer) -> None:
    shard: Shard[KeyValues] = Shard("__test", 0, KeyValues(), MemoryLog(), clock=clock, timer=timer)
    seen: list[str] = []
    shard.when_loaded(lambda: seen.append("before"))
    shard.end(FAILED)
    shard.begin()
    shard.when_loaded(lambda: seen.append("after"))
    assert seen == []


@pytest.mark.parametrize("state", [UNLOADED, FAILED])
def test_the_end_answers_pending_requests_and_stops_all_steps(shard: Shard[KeyValues], state: str) -> None:
    outcomes: list[Any] = []
    log_of(shard).held = True
    shard.run(put(b"a", b"1", outcomes.append))
    shard.end(state)
    assert shard.has_ended
    assert shard.machine.seen == ["loaded", "unloaded"]
    assert shard.machine.reason is not None
    assert shard.machine.reason.code == Errors.NOT_COORDINATOR
    log_of(shard).release()  # the record is in the log, for the broker that loads the shard next
    assert [one.code for one in outcomes] == [Errors.NOT_COORDINATOR]
    assert shard.machine.values == {}
    with pytest.raises(KafkaError) as refused:
        shard.run(put(b"a", b"1"))
    assert refused.value.code == Errors.NOT_COORDINATOR


def test_a_failed_shard_stays_failed(shard: Shard[KeyValues]) -> None:
    shard.end(FAILED)
    shard.end()
    assert shard.begin()
    assert (shard.state, shard.machine.seen) == (FAILED, ["loaded", "unloaded"])


def test_records_that_cannot_be_applied_end_the_shard(shard: Shard[KeyValues]) -> None:
    outcomes: list[Any] = []
    shard.run(put(b"bad", b"1", outcomes.append))
    assert shard.state == FAILED
    assert [one.code for one in outcomes] == [Errors.NOT_COORDINATOR]


def test_a_marker_that_cannot_be_applied_ends_the_shard(shard: Shard[KeyValues]) -> None:
    outcomes: list[Any] = []
    log_of(shard).held = True
    shard.run(put(b"a", b"1"))
    shard.after_pending_appends(lambda machine: 1 // 0)
    shard.run(put(b"b", b"2", outcomes.append))
    log_of(shard).release()
    assert shard.state == FAILED
    assert shard.machine.seen == ["loaded", "unloaded"]
    assert [one.code for one in outcomes] == [Errors.NOT_COORDINATOR]


def test_a_delayed_step_runs_unless_the_shard_has_ended(shard: Shard[KeyValues], clock: ManualClock) -> None:
    ran = threading.Event()

    def step(machine: KeyValues) -> Effects:
        return Effects([(b"late", b"1")], lambda error: ran.set())

    shard.after(5.0, step)
    clock.advance(4.9)
    assert shard.machine.values == {}
    clock.advance(0.2)
    assert ran.wait(10)
    assert shard.machine.values == {b"late": b"1"}
    shard.after(1.0, lambda machine: ran.clear())
    shard.end()
    clock.advance(2.0)
    done = threading.Event()
    shard._timer.schedule(0, done.set)  # runs after it on the timer's thread
    assert done.wait(10)
    assert ran.is_set()
