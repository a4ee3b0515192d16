"""On a disk that is full, tears writes or fails, nothing half-written is served and nothing acknowledged is lost."""

import errno
import os

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.partition_log import AppendResult
from kafkapy.log.storage.files import Files

from .support import Bench, FailingFiles, batch, idempotent, values_of
from .test_transactions import mark, marker, transactional

SETTINGS = {"segment_bytes": 300, "index_interval_bytes": 0}


def append_all(log, count, gather):
    """Append numbered records, `gather` at a time. Return ([(offset, value)] of the acknowledged ones, first number
    that failed)."""
    kept = []
    for start in range(0, count, gather):
        numbers = range(start, min(start + gather, count))
        verdicts = log.append([idempotent(number, sequence=number) for number in numbers], 0)
        for number, verdict in zip(numbers, verdicts, strict=True):
            if isinstance(verdict, AppendResult):
                kept.append((verdict.base_offset, str(number).encode()))
            else:
                assert verdict.code == Errors.KAFKA_STORAGE_ERROR
                return kept, number
    return kept, count


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("gather", [1, 6])
def test_a_full_disk_at_any_step_loses_nothing_and_later_appends_succeed(tmp_path, gather, torn):
    """The 1st, 2nd, … operation of appends and rolls fails with ENOSPC, until every operation has failed once."""
    step = 1
    while True:
        directory = tmp_path / str(step)
        files = FailingFiles(torn=torn, only={"write", "create", "truncate"})
        log = Bench(directory, files=files, **SETTINGS).load()
        log.assign_leader_epoch(0)
        files.count, files.fail_at = 0, step
        try:
            kept, failed_at = append_all(log, 15, gather)
        except LogDirFailure:  # truncating the file failed, too, and no append was acknowledged
            kept, failed_at = [], 15
        reached = files.count >= step
        files.fail_at = None
        if log.env.failure is None:
            assert values_of(log) == kept
            more = [idempotent(number, sequence=number) for number in range(failed_at, 15)]
            assert all(isinstance(one, AppendResult) for one in log.append(more, 0))
            everything = [(number, str(number).encode()) for number in range(15)]
            assert values_of(log) == everything
            again = Bench(directory, **SETTINGS).load(clean=False)
            assert values_of(again) == everything
        if not reached:
            break
        step += 1
    assert step > 15


def test_a_refused_gather_refuses_repetitions_of_its_own_batches_too(tmp_path):
    files = FailingFiles(only={"write"})
    log = Bench(tmp_path, files=files).load()
    log.append([idempotent(0, sequence=0)], 0)
    files.count, files.fail_at = 0, 1
    verdicts = log.append(
        [idempotent(0, sequence=0), idempotent(1, sequence=1), idempotent(1, sequence=1), batch("x")], 0
    )
    assert [getattr(one, "duplicate", None) for one in verdicts] == [True, None, None, None]
    assert {one.code for one in verdicts[1:]} == {Errors.KAFKA_STORAGE_ERROR}
    assert values_of(log) == [(0, b"0")]
    assert not log.append([idempotent(1, sequence=1)], 0)[0].duplicate


def test_a_write_that_cannot_be_undone_takes_the_directory_offline(tmp_path):
    class Stuck(FailingFiles):
        def truncate(self, file, size):
            if self.fail_at is not None:
                raise OSError(errno.ENOSPC, "made to fail")
            super().truncate(file, size)

    files = Stuck(only={"write"}, torn=True)
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    log.append([batch("a")], 0)
    files.count, files.fail_at = 0, 1
    with pytest.raises(LogDirFailure):
        log.append([batch("b")], 0)
    assert len(bench.failures) == 1


def test_another_write_error_takes_the_directory_offline(tmp_path):
    files = FailingFiles(error=errno.EIO, only={"write"})
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    log.append([batch("a")], 0)
    files.count, files.fail_at = 0, 1
    with pytest.raises(LogDirFailure) as failure:
        log.append([batch("b")], 0)
    assert failure.value.code == Errors.KAFKA_STORAGE_ERROR
    assert [one.log_dir for one in bench.failures] == [str(tmp_path)]
    for call in (lambda: log.append([batch("c")], 0), lambda: log.read(0, 100, max_offset=1), log.flush, log.roll):
        with pytest.raises(LogDirFailure):
            call()
    assert len(bench.failures) == 1


def test_a_read_error_takes_the_directory_offline(tmp_path):
    log = Bench(tmp_path).load()
    log.append([batch("a") for _ in range(5)], 0)
    log.append([batch("b")], 0)
    log.close()
    files = FailingFiles(error=errno.EIO, only={"read"}, fail_at=1)
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    with pytest.raises(LogDirFailure):
        log.read(3, 100, max_offset=6)
    assert len(bench.failures) == 1


def test_a_failed_sync_is_never_tried_again(tmp_path):
    files = FailingFiles(error=errno.EIO, only={"sync"})
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    log.append([batch("a")], 0)
    files.count, files.fail_at = 0, 1
    with pytest.raises(LogDirFailure):
        log.flush()
    assert log.recovery_point == 0
    with pytest.raises(LogDirFailure):
        log.flush()
    assert files.count == 1


def test_a_failed_sync_in_the_background_takes_the_directory_offline(tmp_path):
    files = FailingFiles(error=errno.EIO, only={"sync"})
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    log.append([batch("a")], 0)
    log.roll()
    files.count, files.fail_at = 0, 1
    bench.scheduler.run("flush")
    assert len(bench.failures) == 1
    assert log.recovery_point == 0


def test_a_full_disk_during_retention_is_an_error_and_no_failure_of_the_directory(tmp_path):
    files = FailingFiles(only={"rename"})
    bench = Bench(tmp_path, files=files, retention_ms=1000)
    log = bench.load()
    log.append([batch("a")], 0)
    log.set_high_watermark(1)
    bench.clock.advance(10)
    files.count, files.fail_at = 0, 1
    with pytest.raises(KafkaError) as refused:
        log.delete_old_segments()
    assert not isinstance(refused.value, LogDirFailure)
    assert bench.failures == []
    assert log.append([batch("b")], 0)[0].base_offset == 1


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_a_leader_epoch_that_cannot_be_written_refuses_the_append_alone(tmp_path, error):
    files = FailingFiles(error=error, only={"write", "create"})
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    files.count, files.fail_at = 0, 1
    verdicts = log.append([batch("a"), batch("b")], 1)
    assert [one.code for one in verdicts] == 2 * [Errors.KAFKA_STORAGE_ERROR]
    assert log.leader_epochs.latest_epoch == -1
    assert bench.failures == []
    assert [one.base_offset for one in log.append([batch("a"), batch("b")], 1)] == [0, 1]
    assert log.leader_epochs.entries == ((1, 0),)


def test_too_many_open_files_only_refuse_the_read(tmp_path):
    log = Bench(tmp_path).load()
    log.append([batch("a")], 0)
    log.roll()
    log.append([batch("b")], 0)
    log.close()
    files = FailingFiles(error=errno.EMFILE, only={"open"})
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    files.count, files.fail_at = 0, 1
    with pytest.raises(KafkaError) as refused:
        log.read(0, 1000, max_offset=2)
    assert refused.value.code == Errors.KAFKA_STORAGE_ERROR
    assert bench.failures == []
    assert log.read(0, 1000, max_offset=2).region is not None


def test_a_segment_that_retention_takes_during_a_flush_is_passed_over(tmp_path):
    bench = Bench(tmp_path)
    log = bench.load()
    for value in ("a", "b"):
        log.append([batch(value)], 0)
        log.roll()
    log.set_high_watermark(2)

    class Racing(FailingFiles):
        def sync(self, file):
            if len(log.segments) > 1:
                log.delete_records(2)
                log.delete_old_segments()
                for segment in gone:
                    segment.release()
            super().sync(file)

    gone = log.segments.items[:2]
    for segment in gone:
        segment.files = Racing()
    log.flush()
    assert bench.failures == []
    assert log.recovery_point == 2


@pytest.mark.parametrize("change", ["retention", "truncation"])
def test_a_flush_passes_over_an_active_segment_that_is_deleted_before_its_sync(tmp_path, change):
    """The segment is rolled and deleted while the segments before it are being synced."""

    class Racing(Files):
        happening = None

        def sync(self, file):
            happening, self.happening = self.happening, None
            if happening is not None:
                happening()
            super().sync(file)

    files = Racing()
    bench = Bench(tmp_path, files=files, file_delete_delay_ms=0)
    log = bench.load()
    log.append([batch("a")], 0)
    log.roll()
    log.append([batch("b")], 0)
    log.set_high_watermark(2)

    def delete():
        if change == "retention":
            log.roll()
            log.delete_records(2)
            assert log.delete_old_segments() == 2
        else:
            log.truncate_fully(2)
        bench.scheduler.run("delete-segments")

    files.happening = delete
    log.flush()
    assert files.happening is None
    assert bench.failures == []
    assert log.recovery_point == 2
    assert log.append([batch("c")], 0)[0].base_offset == 2
    log.flush()
    assert log.recovery_point == 3


class OneFailure(Files):
    """Files of which one operation (open, truncate or sync) on a name with a given suffix fails once.

    `synced` gets the names of the files that are synced.
    """

    def __init__(self):
        self.failing = None
        self.synced = set()

    def fail(self, operation, suffix, error):
        self.failing = operation, suffix, error

    def _step(self, operation, path):
        if self.failing is not None and operation == self.failing[0] and str(path).endswith(self.failing[1]):
            error, self.failing = self.failing[2], None
            raise error

    def open(self, path, *, create=False):
        self._step("open", path)
        return super().open(path, create=create)

    def truncate(self, file, size):
        self._step("truncate", file.path)
        super().truncate(file, size)

    def sync(self, file):
        self._step("sync", file.path)
        self.synced.add(os.path.basename(file.path))
        super().sync(file)

    def sync_dir(self, path):
        self.synced.add(os.path.basename(path))
        super().sync_dir(path)


def too_many_files():
    return OSError(errno.EMFILE, "made to fail")


def files_of(base_offset, *suffixes):
    return {f"{base_offset:020d}{suffix}" for suffix in suffixes}


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_that_could_not_be_opened_for_its_sync_is_synced_by_the_next_one(tmp_path, suffix):
    files = OneFailure()
    bench = Bench(tmp_path, files=files, index_interval_bytes=0)
    log = bench.load()
    log.append([*(batch(value) for value in "abc"), transactional("d")], 0)
    mark(log, marker(commit=False))
    log.flush()
    log.end[1].write_behind()  # otherwise the flush would open the file for this
    files.fail("open", suffix, too_many_files())
    with pytest.raises(OSError, match="made to fail"):
        log.flusher.synced_recovery_point()
    log.flusher.synced_recovery_point()
    assert files.synced >= files_of(0, ".index", ".timeindex", ".txnindex")
    assert bench.failures == []


@pytest.mark.parametrize("then", ["the roll is repeated", "the log is closed"])
def test_a_roll_that_fails_after_its_snapshot_does_not_lose_the_sync_of_that(tmp_path, then):
    files = OneFailure()
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    log.append([idempotent("a")], 0)
    log.flush()
    files.fail("truncate", "0.timeindex", OSError(errno.ENOSPC, "made to fail"))
    with pytest.raises(KafkaError, match="made to fail"):
        log.roll()
    assert log.segments.base_offsets == [0]
    if then == "the log is closed":
        log.close()
    else:
        log.roll()
        bench.scheduler.run("flush")
        assert files.synced >= files_of(0, ".log", ".index", ".timeindex")
    assert files.synced >= files_of(1, ".snapshot")
    assert bench.failures == []


@pytest.mark.parametrize("sync", [".snapshot", "0.log", "0.timeindex", "1.log"])
def test_a_flush_that_runs_out_of_memory_leaves_all_files_to_the_next_one(tmp_path, sync):
    files = OneFailure()
    bench = Bench(tmp_path, files=files, index_interval_bytes=0)
    log = bench.load()
    log.append([idempotent("a")], 0)
    log.roll()
    log.append([idempotent("b", sequence=1)], 0)
    files.fail("sync", sync, MemoryError())
    with pytest.raises(MemoryError):
        log.flush()
    files.synced.clear()
    log.flush()
    assert files.synced >= {"t-0", *files_of(1, ".snapshot", ".log"), *files_of(0, ".log")}
    if sync == "0.timeindex":  # only if it was not synced before
        assert files.synced >= files_of(0, ".timeindex")
    assert log.recovery_point == 2
    assert bench.failures == []


def test_a_recovery_point_not_noted_for_lack_of_memory_leaves_all_files_to_the_next_one(tmp_path):
    files = OneFailure()
    bench = Bench(tmp_path, files=files, index_interval_bytes=0)
    log = bench.load()
    log.append([idempotent("a")], 0)
    log.roll()
    log.append([idempotent("b", sequence=1)], 0)
    files.fail("sync", "0.index", MemoryError())
    with pytest.raises(MemoryError):
        log.flusher.synced_recovery_point()
    files.synced.clear()
    log.flusher.synced_recovery_point()
    assert files.synced >= {"t-0", *files_of(1, ".snapshot"), *files_of(0, ".log", ".index", ".timeindex")}
