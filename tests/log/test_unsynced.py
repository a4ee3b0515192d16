"""A killed process leaves files that look right but were never synced. The next process has to sync them.

The same is true for the names of new files, which a sync of the records does not cover.
"""

import os

import pytest

from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.directories import clean_shutdown
from kafkapy.log.storage.files import Files
from kafkapy.record.control import marker_batch

from .support import NOW, Bench, idempotent

SETTINGS = {"index_interval_bytes": 0, "segment_ms": 1 << 40}


class Noting(Files):
    """Files that record the names of synced files and directories, and of created files, in order."""

    def __init__(self):
        self.done = []

    def open(self, path, *, create=False):
        if create and not os.path.exists(path):
            self.done.append(("made", os.path.basename(path)))
        return super().open(path, create=create)

    def sync(self, file):
        self.done.append(("synced", os.path.basename(file.path)))
        super().sync(file)

    def sync_dir(self, path):
        self.done.append(("synced", os.path.basename(path)))
        super().sync_dir(path)

    @property
    def synced(self):
        return {name for what, name in self.done if what == "synced"}


def name(base_offset, suffix):
    return f"{base_offset:020d}{suffix}"


def begin(log, sequence=0):
    log.append([idempotent("x", sequence=sequence, transactional=True)], 0)


def end(log, *, commit=False):
    marker = marker_batch(7, 0, commit=commit, coordinator_epoch=0, timestamp=NOW)
    log.append([OwnBatch(marker)], 0)


def aborted(log):
    return [entry[:2] for segment in log.segments for entry in segment.txn_index.entries]


@pytest.mark.parametrize("is_rolled", [False, True])
def test_the_transaction_index_that_a_recovery_finds_is_synced_before_a_recovery_point_is_noted(tmp_path, is_rolled):
    log = Bench(tmp_path, **SETTINGS).load()
    begin(log)
    end(log)
    if is_rolled:
        log.roll()
    bench = Bench(tmp_path, files=Noting(), **SETTINGS)
    log = bench.load(clean=False)
    assert aborted(log) == [(7, 0)]
    log.flush()
    log.flusher.synced_recovery_point()
    assert name(0, ".txnindex") in bench.files.synced


def test_a_transaction_index_that_a_recovery_empties_stays_empty(tmp_path):
    log = Bench(tmp_path, **SETTINGS).load()
    begin(log)
    end(log)
    path = tmp_path / "t-0" / name(0, ".log")
    os.truncate(path, path.stat().st_size - 1)  # damages the marker
    bench = Bench(tmp_path, files=Noting(), **SETTINGS)
    log = bench.load(clean=False)
    assert aborted(log) == []
    end(log, commit=True)
    log.flush()
    log.flusher.synced_recovery_point()
    assert name(0, ".txnindex") in bench.files.synced


def test_the_name_of_a_new_transaction_index_is_synced_before_a_recovery_point_is_noted(tmp_path):
    bench = Bench(tmp_path, files=Noting(), **SETTINGS)
    log = bench.load()
    begin(log)
    log.flush()
    end(log)
    log.flush()
    log.flusher.synced_recovery_point()
    created_at = bench.files.done.index(("made", name(0, ".txnindex")))
    assert {("synced", name(0, ".txnindex")), ("synced", "t-0")} <= set(bench.files.done[created_at:])


@pytest.mark.parametrize("then", ["flush", "recovery point", "clean stop"])
def test_changes_by_a_roll_right_before_a_kill_are_synced_after_the_restart(tmp_path, then):
    """All records are flushed before the roll, so the recovery point is the new segment's base offset."""
    log = Bench(tmp_path, **SETTINGS).load()
    begin(log)
    end(log)
    log.flush()
    point = log.flusher.synced_recovery_point()
    log.roll()
    assert point == log.segments.active.base_offset

    bench = Bench(tmp_path, files=Noting(), **SETTINGS)
    log = bench.load(clean=False, recovery_point=point)
    bench.files.done.clear()
    if then == "flush":
        log.flush()
    elif then == "recovery point":
        log.flusher.synced_recovery_point()
    else:
        log.close()
    rolled = {name(0, suffix) for suffix in (".index", ".timeindex", ".txnindex")}
    assert bench.files.synced >= {"t-0", name(point, ".snapshot"), *rolled}


@pytest.mark.parametrize("suffix", [".txnindex", ".timeindex"])
def test_index_entries_that_a_truncation_had_cut_off_do_not_come_back(tmp_path, suffix):
    """After the recovery point is written, the log is truncated and rolled. A power cut undoes the truncation of the
    index."""
    log = Bench(tmp_path, **SETTINGS).load()
    begin(log)
    log.append([idempotent("x", sequence=1, transactional=True)], 0)
    end(log)
    log.flush()
    log.flusher.synced_recovery_point()
    path = tmp_path / "t-0" / name(0, suffix)
    width = {".txnindex": 34, ".timeindex": 12}[suffix]
    before = path.read_bytes()[:width]
    log.truncate_to(1)
    log.roll()
    path.write_bytes(before if suffix == ".txnindex" else (NOW + 1000).to_bytes(8, "big") + (2).to_bytes(4, "big"))

    log = Bench(tmp_path, **SETTINGS).load(clean=False, recovery_point=1)
    assert log.segments.base_offsets == [0, 1]
    assert aborted(log) == []
    assert log.segments.items[0].max_timestamp == (NOW, 0)


def test_the_log_directory_is_synced_at_a_start_without_a_marker(tmp_path):
    """The previous process may have been killed after it removed the marker and before it synced that."""
    files = Noting()
    assert not clean_shutdown.take_marker(files, str(tmp_path))
    assert files.synced == {tmp_path.name}
