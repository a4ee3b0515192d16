"""A deletion writes the checkpoints at once, also while the periodic checkpoint is being written."""

import os
import threading

import pytest

from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.log.storage.files import Files
from kafkapy.runtime.clock import ManualClock

from .support import NOW, ManualScheduler, batch


class Meanwhile:
    """A lock that calls a function just before it is first acquired."""

    def __init__(self, happening):
        self.lock = threading.Lock()
        self.happening = happening

    def __enter__(self):
        happening, self.happening = self.happening, None
        if happening is not None:
            happening()
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


class Slow(Files):
    """Files that let other threads run before a rename, without syncs."""

    def rename(self, old, new):
        os.sched_yield()
        super().rename(old, new)

    def sync(self, fd):
        pass

    def sync_dir(self, path):
        pass


def test_deletions_during_periodic_checkpoints_leave_the_directory_online(tmp_path):
    failed = []
    manager = LogManager(
        [tmp_path],
        LogConfig({}),
        clock=ManualClock(NOW),
        scheduler=ManualScheduler(),
        files=Slow(),
        on_dir_failure=lambda directory, error: failed.append(error),
    )
    manager.load()
    done = threading.Event()

    def checkpoint():
        while not done.is_set():
            manager.checkpoint()

    threads = [threading.Thread(target=checkpoint) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(60):
        manager.create("t", number % 3, None, LogConfig({}))
        manager.delete("t", number % 3)
        if failed:
            break
    done.set()
    for thread in threads:
        thread.join()
    assert failed == []
    manager.close()


@pytest.mark.parametrize("what", ["write_recovery_points", "write_start_offsets", "write_high_watermarks"])
def test_a_log_that_is_deleted_while_a_checkpoint_waits_its_turn_is_not_in_it(tmp_path, what):
    """For example, with its log start offset a new topic of that name would lose all records below it after a crash."""
    config = LogConfig({"segment.bytes": 400})
    manager = LogManager([tmp_path], config, clock=ManualClock(NOW), scheduler=ManualScheduler(), files=Slow())
    manager.load()
    manager.start()
    for topic in ("gone", "stays"):
        log = manager.create(topic, 0, None, config)
        log.append([batch("x") for _ in range(10)], 0)
        log.set_high_watermark(10)
        log.delete_records(9)
    (log_dir,) = manager.dirs.opened
    log_dir._writing = Meanwhile(lambda: manager.delete("gone", 0))
    getattr(manager._tasks, what)()
    lines = [line for path in tmp_path.glob("*-checkpoint") for line in path.read_text().splitlines()]
    assert lines
    assert not [line for line in lines if line.startswith("gone")]
    manager.close()
