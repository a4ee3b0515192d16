"""Files of a log are opened when they are needed, and closed when too many are open."""

import gc
import os
import resource
import threading
from contextlib import contextmanager

import pytest

from kafkapy.errors import KafkaError
from kafkapy.log import names
from kafkapy.log.results import BUSY
from kafkapy.log.storage.files import Files
from kafkapy.log.storage.named_file import NamedFile
from kafkapy.log.storage.open_files import OpenFiles

from .support import Bench, batch, values_of


class Limited(Files):
    """Files of which at most `limit` are kept open. `synced` gets the names of synced files."""

    def __init__(self, limit):
        self.open_files = OpenFiles(limit)
        self.synced = []

    def sync(self, file):
        self.synced.append(os.path.basename(file.path))
        super().sync(file)

    def sync_dir(self, path):
        self.synced.append(path)
        super().sync_dir(path)


@contextmanager
def no_descriptor_left():
    """Use up the descriptors of this process, so that a file can be opened only after another is closed.

    Closing any open file must make room, so every descriptor number below the limit must be in use. Unreferenced files
    of other tests are collected first, and then all free numbers are taken.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    taken = []
    while not taken or taken[-1] < highest:
        taken.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in taken:
            os.close(fd)


def open_below(directory):
    """Return the paths of the .log files below the directory that this process has open, including deleted ones."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if path.startswith(str(directory)) and names.LOG in path:
            found.append(path)
    return found


def bench_of(tmp_path, *, limit=3):
    """Return (bench, log with eight segments of one record each)."""
    bench = Bench(tmp_path, files=Limited(limit), segment_bytes=len(batch("0")) + 20)
    log = bench.load()
    log.append([batch(number) for number in range(8)], 0)
    log.set_high_watermark(8)
    return bench, log


VALUES = [(number, str(number).encode()) for number in range(8)]


def test_no_more_files_are_kept_open_than_the_limit_says_and_all_can_be_read(tmp_path):
    bench, log = bench_of(tmp_path)
    for _ in range(2):
        assert values_of(log) == VALUES
        assert len(bench.files.open_files) == len(open_below(tmp_path)) == 3
    log.close()
    assert open_below(tmp_path) == []
    assert len(bench.files.open_files) == 0


def test_a_file_that_is_in_use_stays_open_and_the_others_make_room(tmp_path):
    _, log = bench_of(tmp_path)
    hot = log.segments.items[0]
    kept = hot.handle()
    for segment in log.segments.items[1:]:
        assert hot.handle() is kept
        segment.handle()
    assert hot.handle() is kept
    log.close()


def test_a_region_can_be_read_after_its_file_is_evicted_and_its_log_deleted(tmp_path):
    bench, log = bench_of(tmp_path)
    result = log.read(0, 1 << 20, max_offset=8)
    values_of(log)
    assert log.segments.items[0]._handle is None
    assert b"0" in result.region.read()
    log.abandon()
    os.rename(log.directory, log.directory + "-delete")
    bench.files.remove_tree(log.directory + "-delete")
    assert b"0" in result.region.read()
    assert len(open_below(tmp_path)) == 1
    del result
    assert open_below(tmp_path) == []


def test_a_deleted_log_is_never_read_from_the_files_of_a_new_one_in_its_place(tmp_path):
    bench, old = bench_of(tmp_path)
    values_of(old)
    old.abandon()
    os.rename(old.directory, old.directory + "-delete")
    new = bench.load()
    new.append([batch("new")], 0)
    with pytest.raises(KafkaError):
        old.read(0, 1 << 20, max_offset=8)
    assert values_of(new) == [(0, b"new")]
    new.close()


def test_appends_continue_in_an_active_segment_whose_file_was_closed_in_between(tmp_path):
    _, log = bench_of(tmp_path, limit=1)
    log.update_config(Bench(tmp_path).config)
    for number in range(8, 20):
        log.append([batch(number)], 0)
        log.read(number % 7, 1 << 20, max_offset=8)  # uses the only open file
        assert log.segments.active._handle is None
    log.flush()
    assert values_of(log) == VALUES + [(number, str(number).encode()) for number in range(8, 20)]
    log.close()


def test_a_pinned_file_stays_open_over_the_limit(tmp_path):
    bench, log = bench_of(tmp_path)
    first = log.segments.items[0]
    first.pin_all()
    pinned = first.handle()
    values_of(log)
    assert first.handle() is pinned
    first.release()
    assert len(bench.files.open_files) == 3
    assert first.handle() is not pinned
    log.close()


def test_with_no_descriptor_left_files_are_closed_that_are_only_kept_open(tmp_path):
    bench, log = bench_of(tmp_path, limit=100)
    values_of(log)
    assert len(open_below(tmp_path)) == 8
    with no_descriptor_left():
        log.append([batch("more")], 0)
    assert len(open_below(tmp_path)) < 8
    assert values_of(log) == [*VALUES, (8, b"more")]
    log.close()
    assert bench.failures == []


def test_with_no_descriptor_left_at_all_an_append_is_refused_and_the_directory_stays_online(tmp_path):
    bench, log = bench_of(tmp_path, limit=100)
    for segment in log.segments:
        segment.release()
    with no_descriptor_left():
        (verdict,) = log.append([batch("no")], 0)
        with pytest.raises(KafkaError) as refused:
            log.read(0, 1 << 20, max_offset=8)
    assert isinstance(verdict, KafkaError)
    for refusal in (verdict, refused.value):
        assert "Too many open files" in refusal.message
    assert bench.failures == []
    assert values_of(log) == VALUES
    log.append([batch("yes")], 0)
    assert values_of(log)[-1] == (8, b"yes")
    log.close()


def test_a_file_that_is_retired_while_it_is_opened_does_not_stay_open(tmp_path):
    class Retired(NamedFile):
        __slots__ = ("asked",)

        def _name(self):
            self.asked += 1
            if self.asked == 2:  # asked again after the file was opened
                self.retire()
            return str(tmp_path / "file")

    files = Limited(2)
    files.write(str(tmp_path / "file"), b"", sync=False)
    file = Retired(files)
    file.asked = 0
    with pytest.raises(FileNotFoundError):
        file.handle()
    assert file._handle is None
    assert len(files.open_files) == 0


def test_many_threads_always_read_from_the_right_file(tmp_path):
    class Named(NamedFile):
        __slots__ = ("path",)

        def __init__(self, files, path):
            super().__init__(files)
            self.path = str(path)
            files.write(self.path, self.path.encode(), sync=False)

        def _name(self):
            return self.path

    files = Limited(2)
    named = [Named(files, tmp_path / f"file-{number}") for number in range(6)]
    wrong = []

    def use(start):
        for step in range(400):
            one = named[(start + step * 5) % len(named)]
            if step % 37 == start:
                one.pin()
            if step % 41 == start:
                one.release()
            handle = one.handle()
            if files.pread(handle, 1000, 0) != one.path.encode():
                wrong.append(one.path)

    threads = [threading.Thread(target=use, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for one in named:
        one.release()
    assert len(files.open_files) == 0


# --- after a start


def test_an_unused_log_has_no_file_open_and_its_stop_syncs_and_writes_nothing(tmp_path):
    bench, log = bench_of(tmp_path)
    log.close()
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.dir.iterdir()}
    log = bench.load(clean=True)
    assert open_below(tmp_path) == []
    bench.files.synced.clear()
    log.close()
    assert bench.files.synced == []
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.dir.iterdir()} == before


def test_the_recovery_point_of_an_unused_log_costs_no_sync(tmp_path):
    bench, log = bench_of(tmp_path)
    log.close()
    log = bench.load(clean=True)
    bench.files.synced.clear()
    assert log.flusher.synced_recovery_point() == 8
    assert bench.files.synced == []
    log.append([batch("more")], 0)
    log.flush()
    assert log.flusher.synced_recovery_point() == 9
    assert bench.files.synced != []
    log.close()


def test_the_first_append_after_a_start_may_wait_for_the_disk_and_the_next_ones_do_not(tmp_path):
    bench, log = bench_of(tmp_path)
    log.update_config(Bench(tmp_path).config)
    log.close()
    bench.config = Bench(tmp_path).config
    log = bench.load(clean=True)
    assert log.append([batch("a")], 0, blocking=False) is BUSY
    assert not isinstance(log.append([batch("a")], 0)[0], KafkaError)
    assert log.append([batch("b")], 0, blocking=False) is not BUSY
    log.close()
    assert values_of(bench.load(clean=True)) == [*VALUES, (8, b"a"), (9, b"b")]


@pytest.mark.parametrize("appended", [0, 1, 3])
def test_a_crash_with_segments_that_were_not_opened_loses_nothing(tmp_path, appended):
    bench, log = bench_of(tmp_path)
    log.close()
    log = bench.load(clean=True)
    log.append([batch(f"new-{number}") for number in range(appended)], 0)
    expected = VALUES + [(8 + number, b"new-%d" % number) for number in range(appended)]
    log = bench.load(clean=False, recovery_point=8)
    assert values_of(log) == expected
    log.close()
    assert values_of(bench.load(clean=True)) == expected
