"""A clean stop of many logs: what is synced, when the stop counts as clean, and what is lost otherwise."""

import errno
import os

import pytest

from kafkapy.errors import KafkaError
from kafkapy.log import manager as log_manager
from kafkapy.log.config import LogConfig
from kafkapy.log.directories import clean_shutdown
from kafkapy.log.directories import log_dir as log_dir_module
from kafkapy.log.manager import LogManager
from kafkapy.log.storage import whole_sync
from kafkapy.log.storage.files import Files
from kafkapy.runtime.clock import ManualClock

from .support import NOW, Bench, ManualScheduler, batch, idempotent, values_of

CONFIG = LogConfig({"segment.bytes": 400})


class Order(Files):
    """Files that record writes and syncs, in order. `whole` is the result of a sync of the whole file system: True,
    False, or an exception to raise."""

    def __init__(self, whole=True):
        self.whole = whole
        self.done = []

    def pwritev(self, file, buffers, position):
        self.done.append(("write", os.path.basename(file.path)))
        return super().pwritev(file, buffers, position)

    def truncate(self, file, size):
        self.done.append(("truncate", os.path.basename(file.path)))
        super().truncate(file, size)

    def sync(self, file):
        self.done.append(("sync", os.path.basename(file.path)))
        super().sync(file)

    def sync_all(self, fd):
        assert os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) == ".lock"
        self.done.append(("sync_all", ""))
        if isinstance(self.whole, OSError):
            raise self.whole
        return self.whole


class Full(Order):
    """A disk that is full for the snapshots of partition 1 while `is_full` is True."""

    is_full = False

    def open(self, path, *, create=False):
        if self.is_full and "t-1/" in path and path.endswith(".snapshot"):
            raise OSError(errno.ENOSPC, "full")
        return super().open(path, create=create)


def many(directory, files, monkeypatch, count=3):
    """Return a log manager with several segments in each log. From `count` on, logs are synced together."""
    monkeypatch.setattr(log_manager, "_MANY_WRITTEN", count)
    manager = LogManager([directory], CONFIG, clock=ManualClock(NOW), scheduler=ManualScheduler(), files=files)
    manager.load()
    for partition in range(3):
        log = manager.get("t", partition) or manager.create("t", partition, bytes(range(16)), CONFIG)
        for number in range(12):
            log.append([batch(f"{partition}-{number}", number)], 0)
        log.append([idempotent("p", producer_id=7)], 0)
    files.done.clear()
    return manager


def is_clean(directory):
    return (directory / clean_shutdown.NAME).exists()


def test_many_written_logs_are_synced_with_one_call_after_the_last_write_and_before_the_marker(tmp_path, monkeypatch):
    files = Order()
    many(tmp_path, files, monkeypatch).close()
    before, after = (files.done[: files.done.index(("sync_all", ""))], files.done[files.done.index(("sync_all", "")) :])
    assert not [name for what, name in before if what == "sync"]
    of_logs = (".log", "index", ".snapshot")
    assert not [name for _, name in after if name.endswith(of_logs)]
    assert sum(name.endswith(".snapshot") for what, name in before if what == "write") == 3
    assert after[-1] == ("sync", clean_shutdown.NAME)
    assert is_clean(tmp_path)


@pytest.mark.parametrize("whole", [False, OSError(errno.EIO, "a write of some program has failed")])
def test_every_file_is_synced_if_the_file_system_cannot_be_synced_as_a_whole(tmp_path, monkeypatch, whole):
    files = Order(whole)
    many(tmp_path, files, monkeypatch).close()
    synced = [name for what, name in files.done if what == "sync"]
    for log_dir in sorted(tmp_path.glob("t-*")):
        for path in log_dir.iterdir():
            if path.suffix in (".log", ".index", ".timeindex"):
                assert path.name in synced
    assert is_clean(tmp_path)


def test_a_log_on_another_file_system_is_synced_by_itself(tmp_path, monkeypatch):
    files = Order()
    manager = many(tmp_path, files, monkeypatch)
    elsewhere = manager.get("t", 1).directory
    segments = sorted(name for name in os.listdir(elsewhere) if name.endswith(".log"))
    stat = os.stat

    class Elsewhere:
        st_dev = -1

    monkeypatch.setattr(
        log_dir_module.os, "stat", lambda path, **how: Elsewhere if path == elsewhere else stat(path, **how)
    )
    manager.close()
    after = files.done[files.done.index(("sync_all", "")) :]
    assert sorted(name for what, name in after if name.endswith(".log")) == segments
    assert is_clean(tmp_path)


def test_a_second_close_does_not_mark_a_directory_whose_first_close_has_failed(tmp_path, monkeypatch):
    files = Full()
    manager = many(tmp_path, files, monkeypatch)
    files.is_full = True
    manager.close()
    files.is_full = False
    manager.close()
    assert not is_clean(tmp_path)


def test_few_written_logs_are_synced_one_by_one(tmp_path, monkeypatch):
    files = Order()
    many(tmp_path, files, monkeypatch, count=4).close()
    assert ("sync_all", "") not in files.done
    assert is_clean(tmp_path)


@pytest.mark.parametrize("whole", [True, False])
def test_logs_have_everything_after_they_were_closed_together(tmp_path, monkeypatch, whole):
    many(tmp_path, Order(whole), monkeypatch).close()
    manager = many(tmp_path, Order(whole), monkeypatch)
    manager.close()
    assert is_clean(tmp_path)
    manager = LogManager([tmp_path], CONFIG, clock=ManualClock(NOW), scheduler=ManualScheduler())
    manager.load()
    for log in manager:
        assert log.log_end_offset == log.recovery_point == 49  # the producer's retry was a duplicate
        assert len(values_of(log)) == 49
    manager.close()


def test_the_other_logs_are_synced_if_one_cannot_write_its_snapshot(tmp_path, monkeypatch):
    files = Full()
    manager = many(tmp_path, files, monkeypatch)
    files.is_full = True
    manager.close()
    assert ("sync_all", "") in files.done
    assert not is_clean(tmp_path)
    assert manager.get("t", 0).recovery_point == manager.get("t", 0).log_end_offset


def test_a_directory_is_not_stopped_cleanly_if_a_file_cannot_be_synced(tmp_path, monkeypatch):
    class Broken(Order):
        is_broken = False

        def sync(self, file):
            if self.is_broken and "t-2/" in file.path:
                raise OSError(errno.EIO, "broken")
            super().sync(file)

    files = Broken(False)
    manager = many(tmp_path, files, monkeypatch)
    files.is_broken = True
    manager.close()
    assert not is_clean(tmp_path)
    assert manager.get("t", 2).env.failure is not None


def test_a_log_takes_no_appends_once_its_close_has_begun(tmp_path):
    log = Bench(tmp_path).load()
    log.append([batch("a")], 0)
    log.finish()
    with pytest.raises(KafkaError, match="is closed"):
        log.roll()
    (refusal,) = log.append([batch("b")], 0)
    assert isinstance(refusal, KafkaError)
    log.close()
    log.close()
    assert Bench(tmp_path).load().log_end_offset == 1


def test_a_log_that_was_deleted_is_not_closed(tmp_path):
    log = Bench(tmp_path).load()
    log.append([batch("a")], 0)
    log.finish()
    log.abandon()
    log.close()
    assert log.env.failure is None


def test_a_whole_file_system_is_synced_only_where_that_proves_enough(tmp_path, monkeypatch):
    with (tmp_path / "file").open("wb") as file:
        monkeypatch.setattr(whole_sync.syscalls, "file_system_type", lambda fd: 0x65735546)  # FUSE
        assert not whole_sync.sync_file_system(file.fileno())
        monkeypatch.setattr(whole_sync.syscalls, "file_system_type", lambda fd: 0xEF53)
        monkeypatch.setattr(whole_sync, "_FIRST_KERNEL", (1 << 20, 0))
        assert not whole_sync.sync_file_system(file.fileno())
        monkeypatch.setattr(whole_sync, "_FIRST_KERNEL", (5, 17))
        monkeypatch.setattr(whole_sync, "_MOST_WAITING_KIB", -1)
        assert not whole_sync.sync_file_system(file.fileno())
        synced = []
        monkeypatch.setattr(whole_sync.syscalls, "syncfs", synced.append)
        monkeypatch.setattr(whole_sync, "_MOST_WAITING_KIB", 1 << 40)
        assert whole_sync.sync_file_system(file.fileno())
        assert synced == [file.fileno()]


def test_the_system_calls_work_on_a_real_file():
    with open("/proc/self/status") as file:  # this file system has nothing to sync
        assert whole_sync.syscalls.file_system_type(file.fileno()) > 0
        whole_sync.syscalls.syncfs(file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        whole_sync.syscalls.syncfs(-1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        whole_sync.syscalls.file_system_type(-1)
