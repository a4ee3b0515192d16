"""Work on a log during a cleaning: flushes, changes of the high watermark, and reads of committed records."""

from types import SimpleNamespace

import pytest

from kafkapy.errors import Errors
from kafkapy.log.partition_log import PartitionLog
from kafkapy.record.batch import build
from kafkapy.replica.fetch import FetchPlan
from kafkapy.replica.hosted_partition import READ_COMMITTED
from kafkapy.replica.partition import Partition
from kafkapy.replica.stall import StallMonitor
from tests.harness.appends import AtOnce, append_to

from .support import NOW, CleanerBench, UnsyncedFiles


class DuringSync(UnsyncedFiles):
    """Files that call `happening` during the next sync of records."""

    happening = None

    def sync(self, file):
        happening = self.happening
        if happening is not None and file.path.endswith(".log"):
            self.happening = None
            happening()


def filled(tmp_path, **settings):
    bench = CleanerBench(tmp_path, **settings)
    for number in range(10):
        bench.append(("key", f"value {number}"))
    bench.log.roll()
    return bench


def partition_of(log):
    return Partition(
        log, broker_id=0, leader_epoch=0, append_pool=AtOnce(), stall=StallMonitor(1.0), on_change=lambda _: None
    )


def test_a_flush_moves_the_recovery_point_though_segments_are_swapped_meanwhile(tmp_path):
    """Otherwise consumers would not see acknowledged records until the next append."""
    files = DuringSync()
    bench = filled(tmp_path, files=files, flush_messages=1)
    log, before = bench.log, bench.log.segments
    files.happening = bench.clean
    append_to(partition_of(log), [memoryview(bytearray(build([(NOW, b"other", b"x", [])])))])
    assert log.segments.items[0] is not before.items[0]
    assert log.recovery_point == log.high_watermark == log.log_end_offset


class AlwaysMoving(PartitionLog):
    """A log whose high watermark advances whenever it is read without the log's lock."""

    looks = 0
    _high_watermark = 0

    @property
    def high_watermark(self):
        value = self._high_watermark
        if not self._high_watermark_lock.locked():
            self._high_watermark += 1
            self.looks += 1
        return value

    @high_watermark.setter
    def high_watermark(self, offset):
        self._high_watermark = offset


@pytest.mark.parametrize("change", [CleanerBench.clean, lambda bench: bench.log.delete_old_segments()])
def test_the_high_watermark_that_moves_up_meanwhile_stays_up(tmp_path, change):
    """The high watermark has its own lock, so it may advance while the log's lock is held."""
    bench = filled(tmp_path, cleanup_policy=["compact", "delete"], retention_bytes=10)
    log = bench.log
    bench.append(*[("key", "last")] * 100)
    log.__class__ = AlwaysMoving
    log.high_watermark = 10
    before = log.segments
    change(bench)
    assert log.segments is not before
    assert log._high_watermark == 10 + log.looks


def test_a_read_committed_fetch_returns_the_aborted_transactions_or_offset_out_of_range(tmp_path):
    """Retention deletes segments between the read and the lookup of its aborted transactions."""
    bench = CleanerBench(tmp_path, cleanup_policy=["compact", "delete"], retention_bytes=1)
    bench.append(("aborted", "1"), producer=8, transactional=True)
    bench.end_transaction(8, commit=False)
    bench.log.roll()
    bench.append(("key", "2"))
    log = bench.log
    read = log.read
    happenings = [lambda: None, log.delete_old_segments]

    def read_then(*args, **options):
        result = read(*args, **options)
        happenings.pop()()
        return result

    log.read = read_then
    asked = SimpleNamespace(current_leader_epoch=-1, last_fetched_epoch=-1, fetch_offset=0, max_bytes=1 << 20)
    plan = FetchPlan([(partition_of(log), asked)], min_bytes=1, max_bytes=1 << 20, isolation=READ_COMMITTED)
    (found,), _, _ = plan.read(blocking=True)
    assert log.log_start_offset == 2
    assert found.error_code == Errors.OFFSET_OUT_OF_RANGE
