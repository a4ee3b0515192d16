"""Helpers of the log's tests: builders of batches, a scheduler that the test runs, a disk that fails."""

import errno
from pathlib import Path

from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.storage.files import Files
from kafkapy.record.batch import build
from kafkapy.runtime.clock import ManualClock

DATA = Path(__file__).parent.parent / "data"
GOLDEN = DATA / "golden"
NOW = 1_700_000_000_000


class ManualScheduler:
    """A scheduler that keeps tasks until `run_all`, or until `run` for tasks whose name contains a text."""

    def __init__(self):
        self.tasks = []

    def schedule(self, name, fn, delay_s=0.0, period_s=None):
        task = ManualTask(name, fn, delay_s, period_s)
        self.tasks.append(task)
        return task

    def run_all(self):
        tasks, self.tasks = self.tasks, [task for task in self.tasks if task.period_s is not None]
        for task in tasks:
            if not task.cancelled:
                task.fn()

    def run(self, text):
        for task in [task for task in self.tasks if text in task.name and not task.cancelled]:
            if task.period_s is None:
                self.tasks.remove(task)
            task.fn()


class ManualTask:
    def __init__(self, name, fn, delay_s, period_s):
        self.name, self.fn, self.delay_s, self.period_s = name, fn, delay_s, period_s
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class At:
    """A stand-in for the segment of an index, with a given path for the index."""

    size = 1 << 31

    def __init__(self, path):
        self._path = str(path)

    def path(self, suffix):
        return self._path

    def damaged(self):
        pass


class FailingFiles(Files):
    """A disk whose n-th operation that changes something fails."""

    def __init__(self, fail_at=None, error=errno.ENOSPC, *, only=None, torn=False):
        """Count only the operations named in `only`, if given. With `torn`, a failing write leaves its first half."""
        self.count = 0
        self.fail_at = fail_at
        self.error = error
        self.only = only
        self.torn = torn
        self.log = []

    def _step(self, name):
        if self.only is None or name in self.only:
            self.count += 1
            self.log.append(name)
            if self.count == self.fail_at:
                return OSError(self.error, f"made to fail: {name}")
        return None

    def _act(self, name, action):
        failure = self._step(name)
        if failure is not None:
            raise failure
        return action()

    def pwritev(self, file, buffers, position):
        failure = self._step("write")
        if failure is None:
            return super().pwritev(file, buffers, position)
        if self.torn:
            data = b"".join(buffers)
            super().pwritev(file, [data[: len(data) // 2]], position)
        raise failure

    def open(self, path, *, create=False):
        return self._act("create" if create else "open", lambda: super(FailingFiles, self).open(path, create=create))

    def truncate(self, file, size):
        return self._act("truncate", lambda: super(FailingFiles, self).truncate(file, size))

    def sync(self, file):
        return self._act("sync", lambda: super(FailingFiles, self).sync(file))

    def sync_dir(self, path):
        return self._act("sync", lambda: super(FailingFiles, self).sync_dir(path))

    def rename(self, old, new):
        return self._act("rename", lambda: super(FailingFiles, self).rename(old, new))

    def locate(self, *arguments):
        return self._act("read", lambda: super(FailingFiles, self).locate(*arguments))


class Bench:
    """A log directory with a log, a manual clock and a manual scheduler."""

    def __init__(self, directory, *, files=None, **settings):
        self.directory = Path(directory)
        self.clock = ManualClock(NOW)
        self.scheduler = ManualScheduler()
        self.failures = []
        self.files = files if files is not None else Files()
        self.config = LogConfig({name.replace("_", "."): value for name, value in settings.items()})
        self.env = Environment(str(directory), self.files, self.clock, self.scheduler, on_failure=self.failures.append)

    def load(self, *, clean=True, recovery_point=0, log_start_offset=0, topic_id=None):
        return PartitionLog.load(
            self.env,
            str(self.directory / "t-0"),
            "t",
            0,
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
        )

    def names(self):
        return sorted(path.name for path in (self.directory / "t-0").iterdir())


def batch(*values, timestamp=NOW, **options):
    """Return a produced set of one batch with these values, writable like the network's buffers."""
    records = [(timestamp, None, value if isinstance(value, bytes) else str(value).encode(), []) for value in values]
    return memoryview(bytearray(build(records, **options)))


def idempotent(*values, producer_id=7, epoch=0, sequence=0, **options):
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def values_of(log, start=None, max_bytes=1 << 20):
    """Return (offset, value) of every record from `start` on, read region by region as a consumer does."""
    from kafkapy.record.batch import records_of
    from tests.harness.batches import iter_batches

    found = []
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset:
        result = log.read(offset, max_bytes, min_one=True, max_offset=log.log_end_offset)
        if result.region is None:
            break
        data = result.region.read()
        for header in iter_batches(data):
            for record in records_of(data, header):
                if record.offset >= offset:
                    found.append((record.offset, record.value))
            offset = header.last_offset + 1
    return found
