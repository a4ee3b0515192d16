"""A crash at every step of a landing: the rows that readers see meanwhile, and the next run that completes it."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import pyarrow as pa
import pytest

from kafkapy.spark.load import durable, landing
from kafkapy.spark.load.compaction import compact
from kafkapy.spark.load.errors import DirectoryInUse, LoadError
from kafkapy.spark.load.files import final_name
from kafkapy.spark.load.landing import Landing
from kafkapy.spark.load.rebuild import rebuild
from kafkapy.spark.load.runners import here
from kafkapy.spark.load.state import Decision, State, Topic, rejected_of
from kafkapy.spark.load.task import write_rows
from tests.spark.load.rows import SETTINGS, batch, seen


class Killed(BaseException):
    """The end of the process by a kill."""


@contextmanager
def killed_at(step: int) -> Iterator[Callable[[], int]]:
    """Raise Killed before change number `step` that readers can see in the file system. Yield a function that returns
    the number of these changes."""
    count = 0
    patch = pytest.MonkeyPatch()

    def before(real: Callable[..., object]) -> Callable[..., object]:
        def called(*args: object, **kwargs: object) -> object:
            nonlocal count
            count += 1
            if count == step:
                raise Killed
            return real(*args, **kwargs)

        return called

    for name in ("rename", "replace", "link", "mkdir"):
        patch.setattr(os, name, before(getattr(os, name)))
    patch.setattr(os, "fsync", before(lambda _: None))  # a kill loses nothing that the process has written
    patch.setattr(landing, "exchange", before(durable.exchange))
    patch.setattr(shutil, "rmtree", before(shutil.rmtree))
    try:
        yield lambda: count
    finally:
        patch.undo()


def of_three_days(partition: int, first: int, end: int) -> pa.RecordBatch:
    return batch(partition, range(first, end), [offset % 3 for offset in range(first, end)])


def load_batch(directory: Path, partition: int, first: int, end: int) -> None:
    """Load one batch as a run does: open, write, decide, finish."""
    with State(directory) as state:
        land = Landing(state)
        have = state.topics.get("t", Topic()).have.get(partition, [])
        if (first, end) in have:
            return
        written = write_rows(
            "t", [batch(partition, range(first, end), [n % 3 for n in range(first, end)])], SETTINGS, land.room
        )
        topics = deepcopy(state.topics) or {"t": Topic()}
        topics["t"].have.setdefault(partition, []).append((first, end))
        moves = [
            (file.path, str(state.directory / "topic=t" / f"date={file.date}" / final_name(file.spans)))
            for file in written.files
        ]
        land.land(Decision(topics, moves))


def until_it_lives(work: Callable[[], None], check: Callable[[], None]) -> int:
    """Run the work again and again, killed at its first step, then at its second, and so on, until it completes. Check
    the result each time."""
    for step in range(1, 1000):
        with killed_at(step) as steps:
            try:
                work()
                return steps()
            except Killed:
                pass
        check()
    raise AssertionError("it never got through")


ROWS = [(0, offset) for offset in range(10)]


def test_a_batch_that_is_killed_at_any_step_is_there_once_in_the_end(tmp_path: Path) -> None:
    directory = tmp_path / "landed"

    def check() -> None:
        rows = seen(directory) if directory.exists() else []
        assert len(rows) == len(set(rows))
        assert set(rows) <= set(ROWS)

    steps = until_it_lives(lambda: load_batch(directory, 0, 0, 10), check)
    assert steps > 3
    assert seen(directory) == ROWS


@pytest.mark.parametrize("step", range(1, 25))
def test_a_batch_that_is_killed_once_is_finished_or_done_again_by_the_next_run(tmp_path: Path, step: int) -> None:
    directory = tmp_path / "landed"
    load_batch(directory, 1, 0, 4)
    with killed_at(step):
        try:
            load_batch(directory, 0, 0, 10)
        except Killed:
            pass
    rows = seen(directory)
    assert len(rows) == len(set(rows))
    load_batch(directory, 0, 0, 10)
    assert seen(directory) == [*ROWS, *((1, offset) for offset in range(4))]


def test_rows_that_the_state_has_but_no_file_has_are_an_error(tmp_path: Path) -> None:
    directory = tmp_path / "landed"
    with State(directory) as state:
        land = Landing(state)
        staged, place = land.room / "gone.parquet", directory / "topic=t" / "date=2024-01-01" / "0.parquet"
        with pytest.raises(LoadError, match=r"neither .*0\.parquet nor .*gone\.parquet"):
            land.land(Decision({"t": Topic("", {0: [(0, 10)]})}, [(str(staged), str(place))]))
    with State(directory) as state:
        assert state.topics == {}
        with pytest.raises(LoadError, match="restore one of them"):
            Landing(state)


def test_the_state_of_the_current_directory_is_next_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "landed").mkdir()
    monkeypatch.chdir(tmp_path / "landed")
    with State(Path()) as state:
        assert (state.directory, state.home) == (tmp_path / "landed", tmp_path / "landed.kafkapy")
    assert rejected_of(Path("../landed")) == tmp_path / "landed.kafkapy" / "rejected"


def compacted(directory: Path) -> None:
    with State(directory) as state:
        compact(Landing(state), here, prefix="", file_bytes=1 << 30, files=2)


def test_a_compaction_that_is_killed_at_any_step_changes_no_row(tmp_path: Path) -> None:
    directory = tmp_path / "landed"
    for partition in range(3):
        load_batch(directory, partition, 0, 6)
    rows = seen(directory)
    assert len(rows) == 18

    def check() -> None:
        assert seen(directory) == rows

    until_it_lives(lambda: compacted(directory), check)
    check()
    assert len(list(directory.rglob("*.parquet"))) == 3  # one for each date


def test_merged_files_are_sorted_by_partition_and_offset(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    directory = tmp_path / "landed"
    for partition, first in ((1, 6), (0, 6), (1, 0), (0, 0)):
        load_batch(directory, partition, first, first + 6)
    compacted(directory)
    for path in directory.rglob("*.parquet"):
        rows = [(row["partition"], row["offset"]) for row in pq.ParquetFile(path).read().to_pylist()]
        assert rows == sorted(rows)
        assert len(rows) == 8


def again(directory: Path, first: int, end: int) -> None:
    """Reload offsets whose rows are there: their directories are written again and exchanged with the old ones."""
    with State(directory) as state:
        land = Landing(state)
        written = write_rows(
            "t", [batch(0, range(first, end), [n % 3 for n in range(first, end)])], SETTINGS, land.room
        )
        decision = Decision(deepcopy(state.topics))
        for file in written.files:
            place = state.directory / "topic=t" / f"date={file.date}"
            rebuilt_rows = rebuild(place, land.room, prefix="", without={0: [(first, end)]}, add=[file])
            decision.swaps.append((str(rebuilt_rows), str(place), rebuilt_rows.stat().st_ino))
        land.land(decision)


@pytest.mark.parametrize("merged", [False, True])
def test_rows_that_are_loaded_again_are_there_once_at_every_step(tmp_path: Path, merged: bool) -> None:
    directory = tmp_path / "landed"
    load_batch(directory, 0, 0, 10)
    load_batch(directory, 1, 0, 10)
    if merged:
        compacted(directory)
    rows = seen(directory)
    before = {path.stat().st_ino for path in directory.rglob("*.parquet")}

    def check() -> None:
        assert seen(directory) == rows

    until_it_lives(lambda: again(directory, 3, 8), check)
    check()
    assert {path.stat().st_ino for path in directory.rglob("*.parquet")} != before


def test_an_exchange_that_was_done_is_not_done_a_second_time(tmp_path: Path) -> None:
    """The process is killed between the exchange and its record: the next run must not put the old directory back."""
    directory = tmp_path / "landed"
    load_batch(directory, 0, 0, 3)
    with State(directory) as state:
        land = Landing(state)
        place = directory / "topic=t" / "date=1970-01-01"
        rebuilt_rows = rebuild(place, land.room, prefix="", without={0: [(0, 10)]})
        inode = rebuilt_rows.stat().st_ino
        state.decision = Decision(state.topics, swaps=[(str(rebuilt_rows), str(place), inode)])
        state.write()
        durable.exchange(rebuilt_rows, place)
    with State(directory) as state:
        Landing(state)
        assert state.decision is None
    assert place.stat().st_ino == inode


def test_a_directory_is_loaded_by_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        State(tmp_path / "landed"),
        pytest.raises(DirectoryInUse, match=rf"by another process \(pid {os.getpid()} on "),
    ):
        State(tmp_path / "landed")
    State(tmp_path / "landed").close()


def test_a_directory_that_was_not_written_by_a_load_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "landed").mkdir()
    (tmp_path / "landed" / "mine.txt").touch()
    with pytest.raises(LoadError, match="is not empty and was not loaded by kafkapy"):
        State(tmp_path / "landed")
    assert not (tmp_path / "landed.kafkapy").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "form": {}, "topics": 5}'])
def test_a_state_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path, text: str) -> None:
    load_batch(tmp_path / "landed", 0, 0, 3)
    (tmp_path / "landed.kafkapy" / "state.json").write_text(text)
    with pytest.raises(LoadError, match=r"state\.json cannot be read"):
        State(tmp_path / "landed")


def test_a_load_fails_when_its_directory_is_gone(tmp_path: Path) -> None:
    load_batch(tmp_path / "landed", 0, 0, 3)
    shutil.rmtree(tmp_path / "landed")
    with pytest.raises(LoadError, match=r"landed does not exist, but .*landed\.kafkapy says what is in it"):
        State(tmp_path / "landed")


def test_a_state_of_a_later_version_is_refused(tmp_path: Path) -> None:
    load_batch(tmp_path / "landed", 0, 0, 3)
    (tmp_path / "landed.kafkapy" / "state.json").write_text('{"format": 2}')
    with pytest.raises(LoadError, match="has format 2; this version of kafkapy supports 1"):
        State(tmp_path / "landed")


def test_a_file_system_that_cannot_exchange_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_EXCHANGE", 1 << 20)  # a flag that no file system supports
    for name in "ab":
        (tmp_path / name).mkdir()
    with pytest.raises(LoadError, match="cannot exchange two directories in one step"):
        durable.exchange(tmp_path / "a", tmp_path / "b")
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        durable.exchange(tmp_path / "a", tmp_path / "missing")
