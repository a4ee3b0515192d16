"""A bench for tests: a directory of Kafka 0.7 logs, with a clock that tests move."""

from kafkapy.log.environment import Environment
from kafkapy.log.log07.directory import LogDir07
from kafkapy.log.log07.settings import Settings
from kafkapy.log.storage.files import Files
from kafkapy.record.kafka07 import build_message
from kafkapy.record.sets_07 import check_inner_sets, check_set
from kafkapy.runtime.clock import ManualClock
from tests.log.support import ManualScheduler

NOW_MS = 1_700_000_000_000


class Bench:
    """The log directory `path`, which can be opened again after `crash` or `restart`."""

    def __init__(self, path, files=None, count=1, **settings):
        self.path = path
        self.clock = ManualClock(NOW_MS)
        self.scheduler = ManualScheduler()
        self.failures = []
        self.settings = Settings(**settings)
        self.count = count
        self.open(files)

    def open(self, files=None):
        env = Environment(str(self.path), files or Files(), self.clock, self.scheduler, on_failure=self.failures.append)
        self.directory = LogDir07(env, lambda topic: self.settings, lambda topic: self.count)
        self.directory.load()

    def log(self, topic="t", partition=0):
        return self.directory.create(topic, partition)

    def crash(self, files=None):
        """Open the directory again without closing it, as after a kill."""
        self.directory._lock.release()
        self.open(files)

    def restart(self):
        self.directory.close()
        self.open()


def put(log, *payloads, blocking=True):
    """Append a set of messages with these payloads. Return the bytes of the set."""
    return put_set(log, b"".join(map(build_message, payloads)), blocking=blocking)


def put_set(log, data, *, blocking=True):
    checked = check_set(data, log.settings.max_message)
    log.append(data[: checked.size], check_inner_sets(data, checked), blocking=blocking)
    return data[: checked.size]


def contents(log):
    """Return the flushed bytes of the log, as a consumer reads them."""
    found = []
    offset = log.start
    while (region := log.read(offset, 1 << 20)) is not None:
        found.append(region.read())
        offset += len(found[-1])
    return b"".join(found)


def stored(directory):
    """Return the bytes of all segment files of a partition, flushed or not."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.kafka")))
