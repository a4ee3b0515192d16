"""A disk that is full, tears writes or breaks: nothing half-written is served, and nothing acknowledged is lost."""

import errno

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.partition_log import AppendResult

from .support import Bench, FailingFiles, batch, idempotent, values_of

SETTINGS = {"segment_bytes": 300, "index_interval_bytes": 0}


def append_all(log, count, gather):
    """Appends numbered records in gathers; returns [(offset, value)] of those that were acknowledged."""
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
def test_a_full_disk_at_any_step_loses_nothing_and_the_log_goes_on(tmp_path, gather, torn):
    """ENOSPC at the 1st, 2nd, … operation of appends and rolls, until none is left to fail."""
    step = 1
    while True:
        directory = tmp_path / str(step)
        files = FailingFiles(torn=torn, only={"write", "create", "truncate"})
        log = Bench(directory, files=files, **SETTINGS).load()
        log.assign_leader_epoch(0)
        files.count, files.fail_at = 0, step
        try:
            kept, failed_at = append_all(log, 15, gather)
        except LogDirFailure:  # cutting the file back failed too: nobody was told that it went well
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


def test_too_many_open_files_refuse_a_read_and_no_more(tmp_path):
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
                    segment.let_go()
            super().sync(file)

    gone = log.segments.items[:2]
    for segment in gone:
        segment.files = Racing()
    log.flush()
    assert bench.failures == []
    assert log.recovery_point == 2
