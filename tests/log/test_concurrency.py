"""Readers take no lock, and see complete records in order during appends, rolls and deletions."""

import sys
import threading

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import AppendRules, OwnBatch
from kafkapy.log.partition_log import BUSY
from kafkapy.record.control import marker_batch
from kafkapy.runtime.scheduler import Scheduler
from tests.harness.batches import iter_batches

from .support import NOW, Bench, FailingFiles, batch, idempotent, values_of


@pytest.fixture
def fast_switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_readers_during_appends_rolls_and_retention(tmp_path, fast_switching):
    size = len(batch("0" * 10))
    bench = Bench(tmp_path, segment_bytes=40 * size, retention_bytes=400 * size, index_interval_bytes=5 * size)
    log = bench.load()
    log.env._scheduler = scheduler = Scheduler(threads=2)
    errors, done, total = [], threading.Event(), 3000

    def follow():
        offset = 0
        try:
            while offset < total:
                end = log.log_end_offset
                try:
                    result = log.read(offset, 7 * size, min_one=True, max_offset=end)
                except KafkaError as refused:
                    if refused.code != Errors.OFFSET_OUT_OF_RANGE or log.log_start_offset <= offset:
                        raise
                    offset = log.log_start_offset
                    continue
                if result.region is None:
                    assert offset == end
                    continue
                for header in iter_batches(result.region.read()):
                    assert header.base_offset == offset, (header.base_offset, offset)
                    offset = header.last_offset + 1
        except BaseException as error:
            errors.append(error)

    def retain():
        while not done.is_set():
            log.delete_old_segments()

    threads = [threading.Thread(target=follow) for _ in range(3)] + [threading.Thread(target=retain)]
    for thread in threads:
        thread.start()
    for start in range(0, total, 6):
        log.append([batch(f"{number:010d}") for number in range(start, start + 6)], 0)
        log.set_high_watermark(log.log_end_offset)
    for thread in threads[:-1]:
        thread.join(60)
    done.set()
    threads[-1].join()
    scheduler.stop()
    assert errors == []
    assert bench.failures == []
    assert log.log_start_offset > 0


def test_searches_by_time_during_appends_and_rolls(tmp_path, fast_switching):
    size = len(batch("0" * 10))
    log = Bench(tmp_path, segment_bytes=40 * size, index_interval_bytes=size).load()
    log.append([batch("0" * 10, timestamp=NOW)], 0)
    errors, done, total = [], threading.Event(), 2000

    def search():
        try:
            while not done.is_set():
                end = log.log_end_offset
                assert log.offset_of_max_timestamp(end) == (NOW + end - 1, end - 1, 0)
                assert log.offset_for_timestamp(NOW + end - 1) == (NOW + end - 1, end - 1, 0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, total):
        log.append([batch(f"{number:010d}", timestamp=NOW + number)], 0)
    done.set()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert len(log.segments) == total // 40


def test_appends_from_several_threads_are_all_there_once(tmp_path, fast_switching):
    log = Bench(tmp_path, segment_bytes=3000).load()
    log.assign_leader_epoch(0)
    given = {}

    def produce(name):
        for number in range(100):
            sets = [batch(f"{name}-{number}")]
            verdicts = BUSY
            if number % 2:
                verdicts = log.append(sets, 0, blocking=False)
            if verdicts is BUSY:
                verdicts = log.append(sets, 0)
            given[verdicts[0].base_offset] = f"{name}-{number}".encode()

    threads = [threading.Thread(target=produce, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert values_of(log) == sorted(given.items())
    assert len(given) == 400


def test_an_append_that_may_not_wait_does_not_though_the_lock_is_taken_while_it_validates(tmp_path):
    bench = Bench(tmp_path)
    log = bench.load()
    log.append([batch("a")], 0)
    sets = [batch("b"), batch("c")]
    rules = log.rules

    class TakenMeanwhile(AppendRules):
        def validate(self, *arguments):
            batches = super().validate(*arguments)
            log.lock.acquire()
            return batches

    log.rules = TakenMeanwhile(bench.config, bench.env.max_decompressed)
    assert log.append(sets, 0, blocking=False) is BUSY
    log.lock.release()
    log.rules = rules
    assert log.log_end_offset == 1
    bench.clock.advance(1)
    assert [verdict.base_offset for verdict in log.append(sets, 0)] == [1, 2]
    log.abandon()
    assert values_of(bench.load(clean=False)) == [(0, b"a"), (1, b"b"), (2, b"c")]  # the checksums are right


def test_the_high_watermark_moves_without_the_lock_though_a_transaction_is_open(tmp_path):
    log = Bench(tmp_path).load()
    log.append([batch("a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)], 0)
    assert log.producers.first_unstable_offset == 0
    with log.lock:
        moving = threading.Thread(target=log.set_high_watermark, args=(1,), daemon=True)
        moving.start()
        moving.join(60)
        assert not moving.is_alive()
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)


def test_a_transaction_becomes_stable_while_an_append_holds_the_lock(tmp_path):
    log = Bench(tmp_path).load()
    log.append([idempotent("a", transactional=True)], 0)
    log.append([OwnBatch(marker_batch(7, 0, commit=True, coordinator_epoch=0, timestamp=NOW))], 0)
    assert log.last_stable_offset == 0
    with log.lock:  # an append holds it while it writes
        moving = threading.Thread(target=log.advance_high_watermark, args=(2, 0), daemon=True)
        moving.start()
        moving.join(60)
        assert not moving.is_alive()
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)


def test_transactions_begin_and_end_while_another_thread_moves_the_high_watermark(tmp_path, fast_switching):
    """The last stable offset must never be above the first record of an open transaction."""
    log = Bench(tmp_path).load()
    errors, done, ended = [], threading.Event(), 0

    def move():
        while not done.is_set():
            log.advance_high_watermark(log.log_end_offset, 0)

    def read():
        try:
            while not done.is_set():
                stable = log.last_stable_offset  # read first: transactions may end meanwhile
                assert stable <= 3 * ended, stable  # each transaction has two records and a marker
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=move), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for number in range(500):
        log.append([idempotent("a", "b", sequence=2 * number, transactional=True)], 0)
        ended = number + 1
        log.append([OwnBatch(marker_batch(7, 0, commit=True, coordinator_epoch=0, timestamp=NOW))], 0)
    done.set()
    for thread in threads:
        thread.join(60)
    assert errors == []
    log.advance_high_watermark(log.log_end_offset, 0)
    assert (log.last_stable_offset, log.producers.open, log.producers.awaits_high_watermark) == (1500, {}, {})


def test_flushes_at_the_same_time_share_one_sync(tmp_path):
    """A flush that waits for another one finds its records flushed, since they were written before the sync began."""
    started, may_continue = threading.Event(), threading.Event()

    class Slow(FailingFiles):
        def sync(self, file):
            super().sync(file)
            started.set()
            may_continue.wait(10)

    may_continue.set()
    files = Slow(only={"sync"})
    log = Bench(tmp_path, files=files).load()
    log.append([batch("a")], 0)
    log.flush()
    log.append([batch("b")], 0)
    may_continue.clear()
    started.clear()
    files.count = 0
    first = threading.Thread(target=log.flush)
    first.start()
    assert started.wait(10)
    waiting = [threading.Thread(target=log.flush) for _ in range(5)]
    for thread in waiting:
        thread.start()
    may_continue.set()
    for thread in (first, *waiting):
        thread.join(10)
    assert log.recovery_point == 2
    assert files.count == 1  # only the records: indexes are synced by the checkpoint
