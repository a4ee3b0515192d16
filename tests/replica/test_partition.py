"""A leader replica's high watermark when several threads append, and while acknowledgements wait for a sync."""

import threading

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.storage.files import Files
from kafkapy.record.batch import build
from kafkapy.record.compression import GZIP
from kafkapy.record.legacy import build_set
from kafkapy.replica.partition import CONVERTED_AT_ONCE, Partition
from kafkapy.replica.stall import StallMonitor
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.scheduler import Scheduler
from tests.harness.appends import AtOnce, append_to
from tests.harness.followers import follower_at, replicas_of


def batch():
    return memoryview(bytearray(build([(1_600_000_000_000, None, b"v", [])])))


def load(directory, **settings):
    scheduler = Scheduler()
    env = Environment(str(directory), Files(), SYSTEM_CLOCK, scheduler)
    config = LogConfig({name.replace("_", "."): value for name, value in settings.items()})
    return PartitionLog.load(env, str(directory / "t-0"), "t", 0, config), scheduler


def lead(log, leader_epoch=0, replicas=(0,), **options):
    """Return a new Partition over the log, as for a role with this leader epoch. All replicas are in the ISR."""
    log.assign_leader_epoch(leader_epoch)
    options |= replicas_of(log, replicas, replicas, leader_epoch)
    options = {"append_pool": AtOnce(), "stall": StallMonitor(1.0), "on_change": lambda _: None} | options
    return Partition(log, broker_id=0, leader_epoch=leader_epoch, **options)


class Hesitant:
    """A log that calls `meanwhile()` once, just before its high watermark is advanced."""

    def __init__(self, log, meanwhile=None):
        self._log = log
        self.meanwhile = meanwhile

    def __getattr__(self, name):
        return getattr(self._log, name)

    def advance_high_watermark(self, offset, leader_epoch):
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self._log.advance_high_watermark(offset, leader_epoch)


def test_an_append_that_is_overtaken_does_not_take_the_high_watermark_back(tmp_path):
    log, scheduler = load(tmp_path)
    partition = lead(log)
    partition.log = Hesitant(log, lambda: append_to(partition, [batch()]))
    append_to(partition, [batch()])
    assert log.log_end_offset == 2
    assert log.high_watermark == 2
    log.close()
    scheduler.stop()


def test_an_append_that_a_later_leader_epoch_overtakes_does_not_move_the_high_watermark(tmp_path):
    """In the later epoch the ISR has a follower that the earlier Partition over the same log does not know."""
    log, scheduler = load(tmp_path)
    partition = lead(log)
    later = []
    partition.log = Hesitant(log, lambda: later.append(lead(log, 1, replicas=(0, 1))))
    append_to(partition, [batch()])
    assert (log.log_end_offset, log.high_watermark) == (1, 0)
    append_to(later[0], [batch()])
    follower_at(later[0], 1, 1)
    assert log.high_watermark == 1
    partition.advance()
    assert log.high_watermark == 1
    log.close()
    scheduler.stop()


def test_a_leader_that_becomes_a_follower_does_not_move_the_high_watermark(tmp_path):
    log, scheduler = load(tmp_path)
    partition = lead(log)
    partition.log = Hesitant(log, lambda: log.fence(1))
    append_to(partition, [batch()])
    assert (log.log_end_offset, log.high_watermark) == (1, 0)
    log.close()
    scheduler.stop()


class SlowToSync(Files):
    """Files whose syncs of records wait until the test lets them end."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def sync(self, file):
        if str(file.path).endswith(".log"):
            self.begun.release()
            assert self.may_end.acquire(timeout=10)
        super().sync(file)


def test_with_flush_messages_producers_and_readers_wait_for_the_sync(tmp_path):
    scheduler, pool, files = Scheduler(), DiskPool(2), SlowToSync()
    env = Environment(str(tmp_path), files, SYSTEM_CLOCK, scheduler)
    log = PartitionLog.load(env, str(tmp_path / "t-0"), "t", 0, LogConfig({"flush.messages": 1}))
    log.assign_leader_epoch(0)
    stall = StallMonitor(0.5)
    seen = threading.Semaphore(0)
    partition = Partition(
        log, broker_id=0, leader_epoch=0, append_pool=pool, stall=stall, on_change=lambda _: seen.release()
    )
    answers = []
    assert partition.append([batch()], answers.append) is None
    assert files.begun.acquire(timeout=10)
    assert partition.append([batch()], answers.append) is None
    while log.log_end_offset < 2:  # the second record is written during the first one's sync
        pass
    assert (answers, log.high_watermark, log.recovery_point) == ([], 0, 0)
    files.may_end.release()
    assert seen.acquire(timeout=10)
    assert log.high_watermark == log.recovery_point == 1  # not 2: the second record is not synced
    assert files.begun.acquire(timeout=10)
    files.may_end.release()
    pool.stop()
    assert [[one.base_offset for one in each] for each in answers] == [[0], [1]]
    assert log.high_watermark == log.recovery_point == 2
    files.may_end.release(3)
    log.close()
    scheduler.stop()


@pytest.mark.parametrize("number", [1, 2])
def test_with_flush_messages_readers_do_not_see_records_appended_after_a_flush_began(tmp_path, number):
    """Records are appended after another thread has flushed and before that thread raises the high watermark.

    With flush.messages=1 the append waits for a flush of its own; with 2 it does not.
    """
    log, scheduler = load(tmp_path, flush_messages=number)
    partition = lead(log)
    log.append([batch()], 0)
    log.flush()

    class FlushedMeanwhile(Hesitant):
        @property
        def is_flush_due(self):
            log.flush()
            due = log.is_flush_due
            log.append([batch()] * number, 0, flush=False)
            return due

    partition.log = FlushedMeanwhile(log)
    (verdict,) = append_to(partition, [batch()])
    assert verdict.base_offset == 1
    assert log.log_end_offset == 2 + number
    assert log.high_watermark == log.recovery_point == 2
    log.close()
    scheduler.stop()


def test_converting_is_no_stall_of_the_disk(tmp_path):
    """Otherwise an old producer's conversions would move all appends of the directory to the pool."""
    scheduler, pool, long_pool = Scheduler(), DiskPool(1), DiskPool(1)
    env = Environment(str(tmp_path), Files(), SYSTEM_CLOCK, scheduler)
    log = PartitionLog.load(env, str(tmp_path / "t-0"), "t", 0, LogConfig({}))
    stall = StallMonitor(-1.0)  # every write counts as a stall
    partition = Partition(
        log,
        broker_id=0,
        leader_epoch=0,
        append_pool=pool,
        conversion_pool=long_pool,
        stall=stall,
        on_change=lambda _: None,
    )
    answers = []
    old = memoryview(bytearray(build_set([(1_600_000_000_000, None, b"old")] * 3, 1, GZIP)))
    assert partition.append([old], answers.append) is None
    long_pool.stop()
    assert (stall.stalls, pool.threads, long_pool.threads) == (0, 0, 1)
    (verdict,) = partition.append([batch()], answers.append)
    assert (stall.stalls, verdict.base_offset) == (1, 3)
    assert [[one.base_offset for one in each] for each in answers] == [[0]]
    pool.stop()
    log.close()
    scheduler.stop()


def test_old_sets_are_not_converted_after_the_partition_refused_them(tmp_path):
    """Otherwise a stop would take long: each of a thousand sets may take a second to convert."""
    scheduler = Scheduler()
    env = Environment(str(tmp_path), Files(), SYSTEM_CLOCK, scheduler)
    log = PartitionLog.load(env, str(tmp_path / "t-0"), "t", 0, LogConfig({}))
    partition = Partition(
        log, broker_id=0, leader_epoch=0, append_pool=AtOnce(), stall=StallMonitor(1.0), on_change=lambda _: None
    )
    refusal = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
    partition.log = hesitant = Hesitant(log)
    appended = []

    def append(sets, *arguments, blocking=True, **options):
        if blocking:
            appended.append(len(sets))
        if len(appended) == 2:
            partition.ending = refusal
        return log.append(sets, *arguments, blocking=blocking, **options)

    hesitant.append = append
    old = [memoryview(bytearray(build_set([(-1, None, b"old")] * 2, 0))) for _ in range(3 * CONVERTED_AT_ONCE)]
    verdicts = append_to(partition, old)
    done = 2 * CONVERTED_AT_ONCE
    assert appended == [CONVERTED_AT_ONCE] * 2
    assert [one.base_offset for one in verdicts[:done]] == [2 * at for at in range(done)]
    assert verdicts[done:] == [refusal] * CONVERTED_AT_ONCE
    (verdict,) = append_to(partition, [batch()])  # sets that need no conversion are still written
    assert verdict.base_offset == log.high_watermark - 1 == 2 * done
    log.close()
    scheduler.stop()
