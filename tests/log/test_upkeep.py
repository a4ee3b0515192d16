"""Only one task at a time may rearrange a log's segments, and an urgent task interrupts it."""

import threading

import pytest

from kafkapy.log.cleaner.offsets import NAME, CleanerOffsets
from kafkapy.log.segments.upkeep import Interrupted, Upkeep
from kafkapy.log.storage.files import Files
from kafkapy.runtime.clock import ManualClock


def test_only_one_task_at_a_time_may_begin():
    upkeep = Upkeep()
    assert upkeep.try_begin()
    assert not upkeep.try_begin()
    upkeep.check()
    upkeep.end()
    assert upkeep.try_begin()


def test_an_urgent_step_interrupts_the_upkeep_and_runs_after_it_has_stopped():
    upkeep, steps = Upkeep(), []
    assert upkeep.try_begin()
    paused = threading.Event()

    def truncate():
        paused.wait()
        with upkeep.interrupting():
            steps.append("truncated")
            with upkeep.interrupting():  # the same thread does not wait for itself
                steps.append("nested")
            assert not upkeep.try_begin()

    thread = threading.Thread(target=truncate)
    thread.start()
    paused.set()
    upkeep.pause(ManualClock(), 1e9, lambda: False)  # ends when the other thread interrupts
    with pytest.raises(Interrupted):
        upkeep.check()
    steps.append("cleaning stops")
    upkeep.end()
    thread.join()
    assert steps == ["cleaning stops", "truncated", "nested"]
    assert upkeep.try_begin()


def test_a_pause_ends_when_its_time_is_up_or_its_owner_stops():
    upkeep, clock = Upkeep(), ManualClock()
    upkeep.pause(clock, 0, lambda: False)
    upkeep.pause(clock, 100, lambda: True)
    begun, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (upkeep.pause(clock, 5, lambda: bool(begun.set())), done.set()))
    thread.start()
    assert begun.wait(30)  # set after the pause has computed its end
    clock.advance(6)
    assert done.wait(30)
    thread.join()


# --- cleaner-offset-checkpoint


def test_the_checkpoint_is_kafkas_and_every_change_is_in_it(tmp_path):
    offsets = CleanerOffsets(Files(), str(tmp_path))
    assert offsets.get(("a", 0)) is None
    assert not (tmp_path / NAME).exists()
    offsets.put(("a", 0), 5)
    offsets.put(("topic.with-dots", 12), 7)
    assert (tmp_path / NAME).read_bytes() == b"0\n2\na 0 5\ntopic.with-dots 12 7\n"
    offsets.lower(("a", 0), 9)
    assert offsets.get(("a", 0)) == 5
    offsets.lower(("a", 0), 3)
    offsets.lower(("unknown", 0), 3)
    offsets.remove(("topic.with-dots", 12))
    offsets.remove(("unknown", 0))
    assert (tmp_path / NAME).read_bytes() == b"0\n1\na 0 3\n"
    assert CleanerOffsets(Files(), str(tmp_path)).get(("a", 0)) == 3


@pytest.mark.parametrize("content", [b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na x 5\n", b"nonsense"])
def test_an_unreadable_cleaner_checkpoint_makes_every_log_dirty(tmp_path, content, caplog):
    (tmp_path / NAME).write_bytes(content)
    offsets = CleanerOffsets(Files(), str(tmp_path))
    assert offsets.get(("a", 0)) is None
    assert len(caplog.records) == 1
    assert "every compacted log counts as never cleaned" in caplog.text
    offsets.put(("a", 0), 5)
    assert (tmp_path / NAME).read_bytes() == b"0\n1\na 0 5\n"
