"""Reads of committed records on a network thread: those that would wait for the disk are left to the disk pool."""

import errno
from types import SimpleNamespace

import pytest

from kafkapy.log.append.rules import OwnBatch
from kafkapy.record.control import marker_batch
from kafkapy.replica.fetch import DelayedFetch, FetchPlan
from kafkapy.replica.hosted_partition import READ_COMMITTED
from kafkapy.replica.partition import Partition
from kafkapy.replica.stall import StallMonitor
from kafkapy.server.fetching.session import FetchPartition
from tests.coordinator.partitions import lead_log
from tests.harness.appends import AtOnce, append_to
from tests.log.support import NOW, Bench, Files, idempotent


class Disk(Files):
    """Files that record all reads. While `cold` is True, searches that must not wait fail with EAGAIN."""

    def __init__(self):
        self.cold = False
        self.reads = []

    def ceiling_position(self, file, count, position, nowait=False):
        if nowait and self.cold:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        self.reads.append(("search", nowait))
        return super().ceiling_position(file, count, position, nowait)

    def pread(self, file, size, position):
        self.reads.append(("pread", str(file.path)))
        return super().pread(file, size, position)

    def read(self, path):
        self.reads.append(("read", path))
        return super().read(path)


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def partition(tmp_path, disk):
    """Return a partition with three sealed segments of aborted transactions, whose indexes are only in files."""
    bench = Bench(tmp_path, files=disk, segment_bytes=1000, index_interval_bytes=1, segment_ms=1 << 40)
    log = bench.load()
    partition = Partition(
        log, broker_id=0, leader_epoch=0, append_pool=AtOnce(), stall=StallMonitor(9.0), on_change=lambda _: None
    )
    for number in range(20):
        data = idempotent("x" * 50, producer_id=number, transactional=True)
        append_to(partition, [data])
        marker = marker_batch(number, 0, commit=False, coordinator_epoch=0, timestamp=NOW)
        append_to(partition, [OwnBatch(marker)])
    bench.scheduler.run_all()
    assert len(list(log.segments)) > 3
    yield partition
    log.close()


def plan(partition, offset, max_bytes):
    asked = SimpleNamespace(fetch_offset=offset, max_bytes=max_bytes, current_leader_epoch=-1, last_fetched_epoch=-1)
    return FetchPlan([(partition, asked)], min_bytes=1, max_bytes=1 << 20, isolation=READ_COMMITTED)


def aborted(outcome):
    """Return the aborted transactions of a read. Its region ends 4 bytes into the third batch, where a transaction
    begins."""
    reads, _, _ = outcome
    return reads[0].aborted


def test_records_in_memory_are_read_without_blocking(partition, disk):
    plan(partition, 0, 200).read(blocking=True)  # so that the files are open
    disk.reads.clear()
    assert aborted(plan(partition, 0, 200).read(blocking=False)) == [(0, 0), (1, 2)]
    assert disk.reads == [("search", True)]


def test_records_on_disk_are_left_to_the_disk_pool(partition, disk):
    disk.cold = True
    disk.reads.clear()
    one = plan(partition, 0, 200)
    assert one.read(blocking=False) is None
    assert not disk.reads
    assert aborted(one.read(blocking=True)) == [(0, 0), (1, 2)]


def test_a_fetch_that_is_woken_answers_empty_rather_than_wait(partition, disk):
    disk.cold = True
    ((read,), total, _) = plan(partition, 0, 200).read(blocking=False, busy_is_empty=True)
    assert (read.records, total, read.last_stable_offset) == (None, 0, 40)


def test_a_follower_whose_records_were_not_in_memory_has_more_to_get(tmp_path, disk):
    """Otherwise the follower's session would read the partition again only after the next append."""
    bench = Bench(tmp_path, files=disk, segment_bytes=1000, index_interval_bytes=1)
    log = bench.load()
    for number in range(20):
        log.append([idempotent("x" * 100, producer_id=number)], 0)
    log.close()
    log = bench.load()  # the loaded log knows no position yet
    partition = lead_log(log, 0, replicas=(0, 1), isr=(0, 1))
    asked = FetchPartition("t", bytes(16), 0, 9, 200, log_start_offset=0)
    disk.cold = True
    fetch = FetchPlan([(partition, asked)], min_bytes=1, max_bytes=1 << 20, isolation=READ_COMMITTED, follower=1)
    ((read,), _, _) = fetch.read(blocking=False, busy_is_empty=True)
    assert (read.records, read.log_end_offset) == (None, 20)
    assert not asked.has_nothing_to_send(read, fetch.isolation)
    log.close()


def test_at_the_tail_the_index_is_in_memory(partition, disk):
    disk.cold = True
    disk.reads.clear()
    assert aborted(plan(partition, 38, 1 << 20).read(blocking=False)) == [(19, 38)]
    assert not disk.reads


def test_a_reader_beyond_an_open_transaction_waits_and_one_beyond_the_end_does_not(partition):
    """A consumer gets beyond an open transaction if it, or its group, has read without read_committed before."""
    append_to(partition, [idempotent("open", producer_id=99, transactional=True)])
    append_to(partition, [idempotent("behind", producer_id=98)])
    assert (partition.log.last_stable_offset, partition.log.log_end_offset) == (40, 42)
    for offset, is_over in ((39, True), (40, False), (41, False), (42, False), (43, True)):
        waiting = DelayedFetch(plan(partition, offset, 1 << 20), SimpleNamespace(cancelled=False))
        assert waiting.try_complete() == is_over, offset
    marker = marker_batch(99, 0, commit=True, coordinator_epoch=0, timestamp=NOW)
    append_to(partition, [OwnBatch(marker)])
    assert DelayedFetch(plan(partition, 41, 1 << 20), SimpleNamespace(cancelled=False)).try_complete()
