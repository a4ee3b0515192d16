"""A deletion writes the checkpoints at once, and may meet the one that is written from time to time."""

import os
import threading

from kafkapy.log.config import LogConfig
from kafkapy.log.files import Files
from kafkapy.log.manager import LogManager
from kafkapy.runtime.clock import ManualClock

from .support import NOW, ManualScheduler


class Slow(Files):
    """Lets the other threads run before a rename; does without syncs."""

    def rename(self, old, new):
        os.sched_yield()
        super().rename(old, new)

    def sync(self, fd):
        pass

    def sync_dir(self, path):
        pass


def test_deletions_beside_periodic_checkpoints_leave_the_directory_online(tmp_path):
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
