"""After a power cut at any change of the disk, all flushed records are there, and no record that must not be there.

`KAFKAPY_FAULT_ROUNDS=200 python -m pytest tests/faults/test_power_cut.py -s` runs 200 lives and prints the number of
cuts.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kafkapy.log.flushing.flushing import Flusher
from kafkapy.log.indexes.txn_index import AbortedTxn, TxnIndex
from kafkapy.log.storage.files import Files
from tests.faults.compacted_life import CompactedLife
from tests.faults.log_checks import Violation
from tests.faults.log_life import Life
from tests.faults.power_cuts import Figures, live_and_cut
from tests.faults.rounds import rounds
from tests.harness.power_cut import Loss, Platter, RecordingFiles

pytestmark = pytest.mark.not_quick

LIVES = rounds(2)
ACTIONS = 30


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Turn off the log messages of thousands of recoveries."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


# --- the disk itself


def outcomes(
    directory: Path, change: Callable[[RecordingFiles, str], None], block: int, loss: Loss
) -> set[bytes | None]:
    """Return the contents that a file may have after a cut. "old old " was synced, and then `change` was applied."""
    (directory / "disk").mkdir()
    (directory / "disk" / "file").write_bytes(b"old old ")
    files = RecordingFiles(directory / "disk")
    change(files, str(directory / "disk" / "file"))
    platter = Platter(files.journal)
    platter.play(len(files.journal))
    found = set()
    for seed in range(100):
        platter.cut(directory / f"cut{seed}", loss, block, random.Random(seed))
        left = directory / f"cut{seed}" / "file"
        found.add(left.read_bytes() if left.exists() else None)
    return found


def append(files: RecordingFiles, path: str) -> None:
    files.write_all(files.open(path), [b"new ", b"NEW "], 8)


def test_blocks_that_were_not_synced_are_lost_kept_and_reordered(scratch: Path) -> None:
    found = outcomes(scratch, append, 4, Loss.ANY)
    assert found == {
        b"old old " + more for more in (b"", b"new NEW ", bytes(8), b"new " + bytes(4), bytes(4) + b"NEW ")
    }


def test_a_sync_keeps_blocks_and_size(scratch: Path) -> None:
    def change(files: RecordingFiles, path: str) -> None:
        append(files, path)
        files.sync(files.open(path))

    assert outcomes(scratch, change, 4, Loss.ANY) == {b"old old new NEW "}


def test_a_truncation_may_reach_the_disk_in_part(scratch: Path) -> None:
    def change(files: RecordingFiles, path: str) -> None:
        files.truncate(files.open(path), 4)

    assert outcomes(scratch, change, 8, Loss.ANY) == {b"old ", b"old old ", b"old " + bytes(4)}


def test_a_name_is_lost_unless_its_directory_was_synced(scratch: Path) -> None:
    def change(files: RecordingFiles, path: str) -> None:
        files.unlink(path)

    def synced(files: RecordingFiles, path: str) -> None:
        files.unlink(path)
        files.sync_dir(str(Path(path).parent))

    (scratch / "a").mkdir()
    (scratch / "b").mkdir()
    assert outcomes(scratch / "a", change, 8, Loss.LATEST_NAMES) == {b"old old ", None}
    assert outcomes(scratch / "b", synced, 8, Loss.ANY) == {None}


def test_a_replaced_file_is_the_old_or_the_new_one(scratch: Path) -> None:
    def change(files: RecordingFiles, path: str) -> None:
        files.write(path + ".tmp", b"new")
        files.rename(path + ".tmp", path)

    assert outcomes(scratch, change, 4, Loss.ANY) == {b"old old ", b"new"}


def test_unsynced_changes_of_a_killed_process_can_still_be_lost(scratch: Path) -> None:
    """The next process syncs only one of the files. The other changes, and renames, may be lost in a power cut."""
    (scratch / "disk").mkdir()
    files = RecordingFiles(scratch / "disk")
    for name in ("synced", "written", "old"):
        files.write(str(scratch / "disk" / name), b"before")
    files.sync_dir(files.root)
    for name in ("synced", "written"):
        files.write_all(files.open(str(scratch / "disk" / name)), [b"after "], 0)
    files.rename(str(scratch / "disk" / "old"), str(scratch / "disk" / "new"))
    files.write(str(scratch / "disk" / "unnamed"), b"after ")

    killed = Platter(files.journal)
    killed.play(len(files.journal))
    killed.cut(scratch / "killed", Loss.NOTHING, 4, random.Random(0))
    later = RecordingFiles(scratch / "killed", killed)
    assert later.journal == files.journal
    assert later.begin == len(files.journal)
    later.sync(later.open(str(scratch / "killed" / "synced")))
    later.write(str(scratch / "killed" / "later"), b"later")

    platter = Platter(later.journal)
    platter.play(len(later.journal))
    platter.cut(scratch / "cut", Loss.ALL, 4, random.Random(0))
    found = {path.name: path.read_bytes() for path in (scratch / "cut").iterdir()}
    assert found == {"synced": b"after ", "written": b"before", "old": b"before"}


# --- logs on it


def test_flushed_records_survive_a_power_cut_at_every_change(scratch: Path) -> None:
    figures = Figures()
    first = random.randrange(1 << 32) if LIVES > 2 else 0
    for seed in range(first, first + LIVES):
        live_and_cut(seed, scratch, figures, actions=ACTIONS, later_lives=(2, 1))
    print(f"\npower cuts: seeds {first} to {first + LIVES - 1}: {figures}")
    assert figures.cuts > 150 * LIVES
    assert figures.records > figures.cuts
    assert 0 < figures.after_kills < figures.later_lives
    assert figures.in_recoveries


def test_after_kills_while_a_log_directory_is_created_later_flushes_keep_their_records(scratch: Path) -> None:
    figures = Figures()
    for seed in range(3):
        live_and_cut(seed, scratch, figures, actions=0, later_lives=(10, 1))
    assert 0 < figures.after_kills < figures.later_lives


def test_a_power_cut_at_every_change_of_a_cleaning_keeps_the_last_record_of_each_key(scratch: Path) -> None:
    figures = Figures()
    first = random.randrange(1 << 32) if LIVES > 2 else 0
    for seed in range(first, first + LIVES):
        live_and_cut(seed, scratch, figures, actions=ACTIONS, later_lives=(2, 1), kind=CompactedLife)
    print(f"\npower cuts beside cleanings: seeds {first} to {first + LIVES - 1}: {figures}")
    assert figures.cuts > 150 * LIVES
    assert figures.records > figures.cuts
    assert figures.in_recoveries


def no_sync_of(kind: str) -> Callable[[pytest.MonkeyPatch], None]:
    def break_it(patch: pytest.MonkeyPatch) -> None:
        real = RecordingFiles.sync
        patch.setattr(
            RecordingFiles, "sync", lambda self, file: None if str(file.path).endswith(kind) else real(self, file)
        )

    break_it.__qualname__ = f"no_sync_of{kind}"
    return break_it


def no_sync_of_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordingFiles, "sync_dir", lambda self, path: None)


def no_check_of_batches(patch: pytest.MonkeyPatch) -> None:
    real = Files.scan
    patch.setattr(Files, "scan", lambda self, *arguments: real(self, *arguments[:5], False))


def no_flush_of_rolled_segments(patch: pytest.MonkeyPatch) -> None:
    real = Flusher.flush_to
    patch.setattr(Flusher, "flush_to", lambda self, offset, active: real(self, offset, active=True) if active else None)


def no_sync_of_what_a_kill_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TxnIndex, "mark_unsynced", lambda self: None)
    real = TxnIndex.replace

    def replace(self: TxnIndex, entries: Sequence[AbortedTxn]) -> None:
        real(self, entries)
        self._changed = False

    patch.setattr(TxnIndex, "replace", replace)


def test_the_checks_fail_for_a_log_that_assumes_records_found_after_a_kill_are_synced(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_sync_of_what_a_kill_left(monkeypatch)
    with pytest.raises(Violation, match="a kill after change"):
        _live(range(78, 138), scratch, later_lives=(6,))  # 78 is the first seed that finds the fault


@pytest.mark.parametrize(
    "break_it",
    [
        no_sync_of(".log"),
        no_sync_of("index"),
        no_sync_of_names,
        no_check_of_batches,
    ],
    ids=lambda one: one.__qualname__,
)
def test_the_checks_fail_for_a_broken_log(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    break_it(monkeypatch)
    with pytest.raises(Violation):
        _live(range(60), scratch)


@pytest.mark.parametrize(
    ("break_it", "first"),  # the seed of the first life that finds the fault
    [
        pytest.param(no_sync_of(".cleaned"), 0, id="no_sync_of.cleaned"),
        pytest.param(no_flush_of_rolled_segments, 5, id="no_flush_of_rolled_segments"),
    ],
)
def test_the_checks_fail_for_a_broken_cleaner(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None], first: int
) -> None:
    break_it(monkeypatch)
    with pytest.raises(Violation):
        _live(range(first, first + 60), scratch, CompactedLife)


def _live(
    seeds: range, scratch: Path, kind: type[Life] | type[CompactedLife] = Life, *, later_lives: Sequence[int] = ()
) -> None:
    for seed in seeds:
        live_and_cut(seed, scratch, Figures(), actions=ACTIONS, later_lives=later_lives, kind=kind)
