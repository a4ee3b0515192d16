"""After a truncation that a full disk or another shortage stops, the log is unchanged or its directory is offline."""

import errno
from functools import partial

import pytest

from kafkapy.errors import Errors
from kafkapy.log.failures import LogDirFailure, Shortage
from kafkapy.log.partition_log import AppendResult
from kafkapy.log.storage.files import Files

from .support import Bench, FailingFiles, batch, idempotent, values_of

END = 14
SETTINGS = {"segment_bytes": 400}  # room for four batches


class FullDisk(Files):
    """A disk on which nothing can be written while `full` is True."""

    full = False

    def pwritev(self, file, buffers, position):
        if self.full:
            raise OSError(errno.ENOSPC, "full")
        return super().pwritev(file, buffers, position)


def filled(directory, files, *, reloaded=False):
    """Return (bench, log with records of epoch 0 below offset 4 and of epoch 1 from there on)."""
    bench = Bench(directory, files=files, **SETTINGS)
    log = bench.load()
    for number in range(END):
        if number in (0, 4):
            log.assign_leader_epoch(number // 4)
        log.append([idempotent(number, sequence=number)], number // 4 if number <= 4 else 1)
    if reloaded:
        log.close()
        log = bench.load()
    return bench, log


def fail_at_every_step(tmp_path, error, truncate, check, *, reloaded=False):
    """Let the 1st, 2nd, … operation of `truncate(log)` fail. Call `check(log)` if the log stays online. Return how
    often it did, and how often its directory went offline. A snapshot that fails does not stop the truncation.
    """
    online = offline = snapshots = 0
    while True:
        files = FailingFiles(error=error)
        tried = online + offline + snapshots
        bench, log = filled(tmp_path / str(tried), files, reloaded=reloaded)
        before = state(log)
        files.count, files.fail_at = 0, tried + 1
        try:
            truncate(log)
        except LogDirFailure:
            assert len(bench.failures) == 1
            offline += 1
            continue
        except Shortage:
            files.fail_at = None
            assert state(log) == before
            check(log)
            online += 1
            continue
        if files.count < files.fail_at:
            return online, offline
        assert bench.failures == []
        assert f"{log.log_end_offset:020}.snapshot" not in {path.name for path in log.dir.iterdir()}
        snapshots += 1


def state(log):
    epochs = (log.dir / "leader-epoch-checkpoint").read_text()
    sizes = [(segment.base_offset, segment.size) for segment in log.segments]
    return values_of(log), log.leader_epochs.entries, epochs, log.active_producers(), sizes, log.high_watermark


def assert_truncated(log, to):
    """Repeat a truncation that a shortage had stopped, and check that the producer's records can continue."""
    assert log.truncate_to(to)
    (refusal,) = log.append([idempotent(to + 1, sequence=to + 1)], 2)  # its record is truncated, so it is no duplicate
    assert refusal.code == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(to, END):
        verdict = log.append([idempotent(f"other {number}", sequence=number)], 2)[0]
        assert (verdict.base_offset, verdict.duplicate) == (number, False)
    expected = [(number, str(number if number < to else f"other {number}").encode()) for number in range(END)]
    assert values_of(log) == expected
    log.flush()
    again = Bench(log.dir.parent, **SETTINGS).load(clean=False)
    assert values_of(again) == expected
    assert again.leader_epochs.entries == log.leader_epochs.entries


@pytest.mark.parametrize(
    ("error", "to", "reloaded"),
    [(errno.ENOSPC, 4, False), (errno.EMFILE, 4, True), (errno.EMFILE, 13, False), (errno.ENOSPC, 13, True)],
    ids=["full disk", "too many files, loaded", "active segment, too many files", "active segment, full disk, loaded"],
)
def test_a_truncation_that_a_shortage_stops_leaves_no_removed_record(tmp_path, error, to, reloaded):
    online, offline = fail_at_every_step(
        tmp_path, error, lambda log: log.truncate_to(to), lambda log: assert_truncated(log, to), reloaded=reloaded
    )
    assert online
    assert offline


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE], ids=["full disk", "too many files"])
def test_emptying_a_log_that_a_shortage_stops_leaves_its_files_their_names(tmp_path, error):
    def check(log):
        assert not [path.name for path in log.dir.iterdir() if path.suffix in (".deleted", ".cleaned")]
        kept = values_of(log)
        assert isinstance(log.append([batch("more")], 2)[0], AppendResult)
        log.flush()
        assert values_of(Bench(log.dir.parent, **SETTINGS).load(clean=False)) == [*kept, (END, b"more")]
        log.truncate_fully(50)
        assert log.append([batch("on")], 2)[0].base_offset == 50
        log.close()
        assert values_of(Bench(log.dir.parent, **SETTINGS).load(log_start_offset=50)) == [(50, b"on")]

    online, offline = fail_at_every_step(tmp_path, error, lambda log: log.truncate_fully(50), check)
    assert online
    assert offline


@pytest.mark.parametrize("method", ["truncate_to", "truncate_fully"])
def test_a_full_disk_refuses_a_truncation_that_removes_leader_epochs_and_takes_nothing_offline(tmp_path, method):
    bench, log = filled(tmp_path, FullDisk())
    before = state(log)
    bench.files.full = True
    with pytest.raises(Shortage):
        getattr(log, method)(4)
    assert state(log) == before
    assert bench.failures == []
    bench.files.full = False
    getattr(log, method)(4)
    assert log.log_end_offset == 4
    assert bench.failures == []


def test_a_full_disk_does_not_prevent_a_truncation_within_the_last_epoch(tmp_path):
    """Only a producer snapshot needs space. Without it, the next start just reads more of the log."""
    bench, log = filled(tmp_path, FullDisk())
    bench.files.full = True
    assert log.truncate_to(11)
    assert bench.failures == []
    assert [offset for offset, _ in values_of(log)] == list(range(11))
    assert not (log.dir / f"{11:020}.snapshot").exists()
    crashed = Bench(tmp_path, **SETTINGS).load(clean=False)
    assert values_of(crashed) == values_of(log)
    assert crashed.active_producers() == log.active_producers()
    bench.files.full = False
    (refusal,) = log.append([idempotent(12, sequence=12)], 1)
    assert refusal.code == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append([idempotent(11, sequence=11)], 1)[0].base_offset == 11


def test_leader_epochs_that_could_not_be_removed_from_the_file_are_removed_by_the_next_attempt(tmp_path):
    files = FailingFiles(only={"create"})
    bench, log = filled(tmp_path, files)
    log.assign_leader_epoch(2)  # this epoch has no records
    files.count, files.fail_at = 0, 1
    with pytest.raises(Shortage):
        log.truncate_to(END)
    assert log.leader_epochs.latest_epoch == 2
    assert not log.truncate_to(END)
    log.abandon()
    assert bench.load().leader_epochs.latest_epoch == 1


def test_a_roll_to_a_later_offset_that_fails_leaves_no_snapshot_above_the_end(tmp_path):
    """The next records may have offsets below the snapshot's, and would be missing in it."""
    gap = END + (1 << 31)
    step = 1
    while True:
        files = FailingFiles(only={"create", "write", "truncate", "open"})
        _, log = filled(tmp_path / str(step), files)
        files.count, files.fail_at = 0, step
        try:
            log.changed("rolling", partial(log.roll_locked, gap))
            break
        except Shortage:
            files.fail_at = None
        assert log.producers.end_offset == END
        assert gap not in log.snapshots.offsets
        assert log.append([idempotent(14, sequence=14)], 1)[0].base_offset == END
        log.roll()
        assert log.snapshots.latest == END + 1
        step += 1
    assert log.segments.base_offsets[-1] == gap
    assert step > 3
