"""After a crash at any step of a cleaning, the next start finds all latest values, and the next cleaning succeeds."""

import errno
import shutil
import threading

import pytest

from kafkapy.log.failures import LogDirFailure
from kafkapy.record.batch import records_of
from tests.harness.batches import iter_batches
from tests.harness.examples import some

from .support import CleanerBench, UnsyncedFiles, data_records, pairs

SETTINGS = {"segment_bytes": 1200, "index_interval_bytes": 200, "segment_index_bytes": 4096}


class Crash(BaseException):
    """Raised in place of a kill."""


class CrashingFiles(UnsyncedFiles):
    """Files that raise Crash at the n-th change of the disk and at all later ones."""

    def __init__(self, *, torn=False):
        self.crash_at = None
        self.torn = torn
        self.steps = []

    def _step(self, name):
        self.steps.append(name)
        if self.crash_at is not None and len(self.steps) >= self.crash_at:
            raise Crash

    def pwritev(self, file, buffers, position):
        try:
            self._step("write")
        except Crash:
            if self.torn and len(self.steps) == self.crash_at:
                data = b"".join(bytes(part) for part in buffers)
                super().pwritev(file, [data[: len(data) // 2]], position)
            raise
        return super().pwritev(file, buffers, position)

    def open(self, path, *, create=False):
        if create:
            self._step("create")
        return super().open(path, create=create)

    def truncate(self, file, size):
        self._step("truncate")
        super().truncate(file, size)

    def sync(self, file):
        self._step("sync")
        super().sync(file)

    def sync_dir(self, path):
        self._step("sync_dir")
        super().sync_dir(path)

    def rename(self, old, new):
        self._step("rename")
        super().rename(old, new)

    def unlink(self, path):
        self._step("unlink")
        return super().unlink(path)

    def set_modified_ms(self, path, time_ms):
        self._step("date")
        super().set_modified_ms(path, time_ms)


def fill(bench):
    """Write four segments with overwritten keys, tombstones, an aborted and a committed transaction."""
    for number in range(6):
        bench.append(("a", f"a{number}" * 20), ("b", "b" * 40), producer=7)
    bench.append(("only here", "x"))
    bench.append(("aborted", "never seen"), producer=8, transactional=True)
    bench.end_transaction(8, commit=False)
    bench.append(("committed", "seen"), producer=8, transactional=True, codec=3)
    bench.end_transaction(8, commit=True)
    bench.append(("gone", "x"), ("gone", None))
    for number in range(20):
        bench.append((f"key {number % 3}", "value" * number), codec=number % 3)
    bench.append(("a", "last"), ("b", None))
    bench.log.roll()
    bench.append(("a", "in the active segment"))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Return (directory of a closed log, the latest value of each key without aborted records, all records)."""
    directory = tmp_path_factory.mktemp("template")
    bench = CleanerBench(directory, **SETTINGS)
    fill(bench)
    assert len(bench.log.segments) >= 4
    table, _ = pairs(bench.log)
    table.pop(b"aborted")
    records = data_records(bench.log)
    bench.log.close()
    bench.scheduler.run_all()
    return directory, table, records


def opened(template, tmp_path, name, files):
    directory = tmp_path / name
    shutil.copytree(template[0], directory)
    bench = CleanerBench(directory, files=files, **SETTINGS)
    bench.log.set_high_watermark(bench.log.log_end_offset)
    files.steps.clear()
    return bench


def clean(bench):
    """Clean the log and remove the old files."""
    bench.clean()
    bench.scheduler.run_all()


def clean_twice(bench):
    """Clean twice. The tombstones expire before the second cleaning."""
    clean(bench)
    bench.clock.advance(2)
    clean(bench)


def steps_of_a_cleaning(template, tmp_path):
    files = CrashingFiles()
    bench = opened(template, tmp_path, "whole", files)
    clean(bench)
    steps = files.steps.copy()
    bench.clock.advance(2)
    clean(bench)
    return steps, data_records(bench.log)


@pytest.mark.parametrize("torn", [False, True])
def test_a_crash_at_any_step_loses_nothing(template, tmp_path, torn):
    steps, final = steps_of_a_cleaning(template, tmp_path)
    assert {"create", "write", "truncate", "sync", "date", "rename", "sync_dir", "unlink"} <= set(steps)
    _, table, records = template
    for at, step in some([(at, step) for at, step in enumerate(steps, 1) if step == "write" or not torn]):
        files = CrashingFiles(torn=torn)
        bench = opened(template, tmp_path, f"{at}", files)
        files.crash_at = at
        with pytest.raises(Crash):
            clean(bench)
        files.crash_at = None

        after = CleanerBench(tmp_path / f"{at}", **SETTINGS)
        after.clock.set_time_ms(bench.clock.time_ms())
        after.restart()
        after.log.set_high_watermark(after.log.log_end_offset)
        found = data_records(after.log)
        offsets = [record[0] for record in found]
        assert offsets == sorted(set(offsets)), f"step {at}, {step}"
        assert set(found) <= set(records), f"step {at}, {step}"
        seen = {key: value for _, _, key, value, _ in found if key != b"aborted"}
        assert {key: value for key, value in seen.items() if value is not None} == {
            key: value for key, value in table.items() if value is not None
        }, f"step {at}, {step}"
        assert not [name for name in after.names() if name.endswith((".cleaned", ".swap", ".deleted"))]

        clean_twice(after)
        assert data_records(after.log) == final
        after.log.abandon()
        shutil.rmtree(tmp_path / f"{at}")


def test_a_cleaning_that_fails_leaves_the_log_as_it_was(template, tmp_path):
    """After an error such as a full disk, the new files are removed and the log can still be read."""

    class FullDisk(CrashingFiles):
        def pwritev(self, file, buffers, position):
            if str(file.path).endswith(".cleaned"):
                raise OSError(28, "No space left on device")
            return super().pwritev(file, buffers, position)

    bench = opened(template, tmp_path, "full", FullDisk())
    before, names = data_records(bench.log), bench.names()
    with pytest.raises(OSError, match="No space left"):
        bench.clean()
    assert bench.names() == names
    assert data_records(bench.log) == before
    assert bench.env.failure is None


class FailsOnce(CrashingFiles):
    """Files whose n-th operation of one kind fails once, with the given error."""

    def __init__(self, kind, at, error):
        super().__init__()
        self.kind, self.at, self.error = kind, at, error
        self.armed = False

    def _fail(self, kind):
        if self.armed and kind == self.kind:
            self.at -= 1
            if self.at == 0:
                raise OSError(self.error, "made to fail")

    def rename(self, old, new):
        self._fail("rename")
        super().rename(old, new)

    def open(self, path, *, create=False):
        self._fail("open")
        return super().open(path, create=create)


@pytest.mark.parametrize(("kind", "error"), [("rename", errno.ENOSPC), ("open", errno.EMFILE)])
def test_a_swap_that_cannot_be_done_is_undone_or_takes_the_directory_offline(template, tmp_path, kind, error):
    """Otherwise the next start would finish an unfinished swap, although the log may have changed since."""
    _, table, _ = template
    offline = undone = 0
    for at in range(1, 200):
        files = FailsOnce(kind, at, error)
        bench = opened(template, tmp_path, f"{kind}{at}", files)
        files.armed = True
        try:
            bench.clean()
        except LogDirFailure:
            offline += 1
            assert bench.failures
        except OSError:
            undone += 1
            assert not bench.failures
            assert not [name for name in bench.names() if name.endswith((".cleaned", ".swap"))]
            for segment in bench.log.segments:
                assert not any(file._pinned for file in (segment, segment.offset_index, segment.time_index))
            assert {key: value for key, value in pairs(bench.log)[0].items() if key != b"aborted"} == table
        done = files.at > 0
        files.armed = False
        bench.restart()
        assert {key: value for key, value in pairs(bench.log)[0].items() if value is not None and key in table} == {
            key: value for key, value in table.items() if value is not None
        }
        bench.log.abandon()
        shutil.rmtree(tmp_path / f"{kind}{at}")
        if done:
            break
    assert done
    assert undone > 1
    assert bool(offline) == (kind == "rename")


def test_readers_find_all_records_while_segments_are_swapped(template, tmp_path):
    """A region read before stays readable, and readers during the swaps find every record that compaction keeps."""
    bench = opened(template, tmp_path, "read", CrashingFiles())
    log = bench.log
    region = log.read(0, 1 << 20, min_one=True, max_offset=log.log_end_offset).region
    data = region.read()
    last = {record[2]: record[0] for record in data_records(log) if record[2] != b"aborted"}
    failures, stop = [], threading.Event()

    def read_all():
        try:
            while not stop.is_set():
                found = {record.key: record.offset for record in read_through(log) if record.key != b"aborted"}
                missing = {key for key, offset in last.items() if found.get(key) != offset}
                assert missing <= {b"b", b"gone"}, missing  # keys whose tombstones expire
        except BaseException as failure:
            failures.append(failure)

    readers = [threading.Thread(target=read_all) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(15):
        bench.clean()
        if number % 3 == 2:
            bench.scheduler.run_all()
        bench.clock.advance(0.4)
    stop.set()
    for reader in readers:
        reader.join()
    assert not failures, failures
    assert region.read() == data


def read_through(log):
    """Return all records, read region by region as a consumer does."""
    offset = 0
    while offset < log.log_end_offset:
        region = log.read(offset, 1 << 20, min_one=True, max_offset=log.log_end_offset).region
        content = region.read()
        for header in iter_batches(content):
            offset = header.last_offset + 1
            if not header.is_control:
                yield from records_of(content, header)
