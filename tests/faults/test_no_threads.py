"""If the system starts no more threads, a pool with some threads continues, and a pool without any can be retried."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

import pytest

from kafkapy.coordinator.shard_loader import LoadQueue
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.cleaner.compaction import Compaction
from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.metadata import paths
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.record.batch import build
from kafkapy.runtime.clock import SYSTEM_CLOCK, ManualClock
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.runtime.threads import NoThread, run_all
from kafkapy.runtime.timer import Timer
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.leaving import DirectoryFailures
from tests.coordinator.partitions import lead
from tests.harness.thread_limit import thread_limit
from tests.harness.waiting import eventually
from tests.log.support import ManualScheduler
from tests.log.test_loading import Loading, filled

WAIT_S = 60


class Gate:
    """A function for a pool that blocks until the test opens the gate."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self) -> None:
        self.begun.release()
        assert self.may_end.wait(WAIT_S)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=WAIT_S)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


# --- pools, the scheduler, the timer


def test_a_pool_without_a_thread_refuses_the_call_and_takes_the_next() -> None:
    pool, ran = DiskPool(2), []
    with (
        thread_limit(),
        pytest.raises(NoThread, match=r"kafkapy-disk-0 cannot be started; .*can't start new thread.*ulimit"),
    ):
        pool.submit(ran.append, "refused")
    assert (pool.depth, pool.threads) == (0, 0)
    pool.submit(ran.append, "taken")
    pool.stop()
    assert ran == ["taken"]


def test_a_pool_without_memory_for_a_thread_or_a_call_refuses_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> NoReturn:
        raise MemoryError

    class Queue(SimpleQueue[object]):
        full = False

        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
            if self.full:
                no_memory()
            super().put(item)

    pool, ran, queue = DiskPool(1), [], Queue()
    monkeypatch.setattr(pool, "_queue", queue)
    with monkeypatch.context() as patched:
        patched.setattr("kafkapy.runtime.threads.Thread", no_memory)
        with pytest.raises(NoThread, match="out of memory"):
            pool.submit(ran.append, "refused")
    queue.full = True
    with pytest.raises(NoThread, match="out of memory"):
        pool.submit(ran.append, "refused")
    queue.full = False
    assert pool.depth == 0
    pool.submit(ran.append, "taken")
    pool.stop()
    assert (ran, pool.depth) == (["taken"], 0)


def test_a_pool_that_never_had_a_thread_can_be_stopped() -> None:
    pool = DiskPool(2)
    with thread_limit():
        with pytest.raises(NoThread):
            pool.submit(print)
        pool.stop()


def test_a_pool_continues_with_the_threads_that_it_has(caplog: pytest.LogCaptureFixture) -> None:
    pool, gate, ran = DiskPool(3), Gate(), []
    pool.submit(gate)
    with thread_limit():
        for number in range(3):
            pool.submit(ran.append, number)
    assert pool.threads == 1
    (warning,) = warnings(caplog)
    assert warning.startswith("only 1 of 3 disk threads run: ")
    pool.submit(gate)  # runs on the second thread, after the others
    gate.wait_for(2)
    gate.may_end.set()
    pool.stop()
    assert ran == [0, 1, 2]
    assert pool.threads == 2


def test_a_scheduler_without_a_thread_refuses_the_task_and_takes_the_next() -> None:
    scheduler, ran = Scheduler(ManualClock()), threading.Event()
    with thread_limit(), pytest.raises(NoThread):
        scheduler.schedule("refused", lambda: 1 // 0)
    assert scheduler.pending == 0
    scheduler.schedule("taken", ran.set)
    assert ran.wait(WAIT_S)
    scheduler.stop()


def test_a_scheduler_continues_with_the_threads_that_it_has(caplog: pytest.LogCaptureFixture) -> None:
    scheduler, gate, ran = Scheduler(ManualClock(), threads=2), Gate(), threading.Event()
    scheduler.schedule("first", gate)
    gate.wait_for(1)
    with thread_limit():
        scheduler.schedule("second", ran.set)
    (warning,) = warnings(caplog)
    assert warning.startswith("only 1 of 2 scheduler threads run: ")
    gate.may_end.set()
    assert ran.wait(WAIT_S)
    scheduler.stop()


def test_a_timer_that_could_not_be_started_can_be_stopped() -> None:
    timer = Timer()
    with thread_limit(), pytest.raises(NoThread):
        timer.start()
    timer.stop()


# --- appends


@pytest.mark.parametrize("flushed", [False, True])
def test_an_append_that_has_to_wait_is_refused_so_that_its_producer_tries_again(tmp_path: Path, flushed: bool) -> None:
    pool = DiskPool(1, "append")
    partition = lead(tmp_path, pool=pool, **({"flush_messages": 1} if flushed else {}))
    if not flushed:
        partition._stall = Stalled()
    answers: list[object] = []
    batch = memoryview(bytearray(build([(1, b"k", b"v", ())])))
    with thread_limit():
        verdicts = partition.append([batch], answers.append)
    assert verdicts is not None
    (refusal,) = verdicts
    assert isinstance(refusal, KafkaError)
    assert refusal.code == Errors.KAFKA_STORAGE_ERROR
    assert "kafkapy-append-0 cannot be started" in refusal.message
    assert partition.append([batch], answers.append) is None
    pool.stop()
    assert len(answers) == 1


class Stalled:
    """A stall monitor that always reports a stall, so that appends go to the pool."""

    stalled = True

    def lasts(self) -> bool:
        return True

    def observe(self, seconds: float, size: int) -> None:
        pass


# --- coordinators


def test_coordinators_are_loaded_when_a_client_asks_again(caplog: pytest.LogCaptureFixture) -> None:
    queue, loaded = LoadQueue(), []
    with thread_limit():
        for key in "ab":
            queue.put(key, lambda key=key: loaded.append(key))  # type: ignore[misc]
        queue.prioritize("b")
    (warning,) = warnings(caplog)
    assert warning.startswith("coordinators are loaded by 0 of 2 threads: ")
    queue.prioritize("b")
    with queue._changed:
        assert queue._changed.wait_for(lambda: len(loaded) == 2, WAIT_S)
    queue.stop()
    assert loaded == ["b", "a"]


def test_a_stop_does_not_wait_for_loads_that_no_thread_runs() -> None:
    queue = LoadQueue()
    with thread_limit():
        queue.put("a", lambda: 1 // 0)
        queue.stop()


# --- logs


def test_jobs_run_on_the_threads_that_could_be_started(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    with thread_limit(1):
        run_all([lambda number=number: done.append(number) for number in range(10)], 4, "closing")  # type: ignore[misc]
    assert sorted(done) == list(range(10))
    (warning,) = warnings(caplog)
    assert warning.startswith("closing continues with 2 of 4 threads: ")


def test_logs_are_loaded_by_the_threads_that_could_be_started(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topics = ("a", "b", "c", "d")
    filled(tmp_path, topics=topics)
    broker = Loading(tmp_path, recovery_threads_per_dir=3)
    with thread_limit(1):
        broker.start()
        broker.finish()
    assert sorted(broker.left) == list(topics)
    assert any(warning.startswith(f"{tmp_path} is loaded with 1 of 3 threads: ") for warning in warnings(caplog))
    broker.manager.close()


def test_a_start_fails_if_no_thread_can_load_the_logs(tmp_path: Path) -> None:
    filled(tmp_path)
    broker = Loading(tmp_path)
    with thread_limit(), pytest.raises(NoThread, match="recovery-0-"):
        broker.start()
    broker.manager.close()
    again = Loading(tmp_path)
    again.start()
    again.finish()
    assert len(again.left) == 3
    again.manager.close()


def test_a_cleaner_starts_its_missing_threads_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = lead(tmp_path, cleanup_policy=["compact"]).log
    scheduler = ManualScheduler()
    compaction = Compaction([log], scheduler, SYSTEM_CLOCK)
    compaction.configure(CleanerSettings(threads=3))
    compaction.start()
    with thread_limit(1):
        for _ in range(3):
            scheduler.run_all()
    cleaner = compaction.cleaner
    assert cleaner is not None
    assert len(cleaner.threads) == 1
    (warning,) = warnings(caplog)
    assert warning.startswith("logs are compacted by 1 of 3 threads: ")
    scheduler.run_all()
    assert len(cleaner.threads) == 3
    with thread_limit():
        compaction.configure(CleanerSettings(threads=2))
    assert cleaner.threads == []
    scheduler.run_all()
    assert len(cleaner.threads) == 2
    compaction.stop()


# --- the broker


def test_the_metadata_are_closed_when_their_thread_cannot_be_started(tmp_path: Path) -> None:
    with thread_limit(), pytest.raises(NoThread, match="metadata"):
        LocalTree(tmp_path / FILE_NAME)
    LocalTree(tmp_path / FILE_NAME).close()


def test_a_failed_directory_is_reported_when_there_is_a_thread_again(tmp_path: Path) -> None:
    tree = LocalTree(tmp_path / FILE_NAME)
    tree.ensure(paths.LOG_DIR_EVENTS)
    waiting: list[Callable[[], object]] = []

    def later(delay_s: float, call: Callable[[], object]) -> None:
        waiting.append(call)

    failures = DirectoryFailures(tree, 7, later)
    try:
        with thread_limit():
            failures.report()
        assert tree.children(paths.LOG_DIR_EVENTS) == []
        waiting.pop()()
        eventually(lambda: len(tree.children(paths.LOG_DIR_EVENTS)) == 1)
        assert waiting == []
    finally:
        failures.stop()
        tree.close()


def test_a_broker_starts_or_says_which_thread_it_lacks_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The system allows no thread, then one, then two, ... until the broker starts."""
    before = set(threading.enumerate())
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "num.network.threads": "2",
        "kafkapy.metrics.listen": "127.0.0.1:0",
    }
    for room in range(100):
        broker = BrokerServer(BrokerConfig({"log.dirs": str(tmp_path), **settings}))
        with thread_limit(room) as limit:
            try:
                broker.start()
            except NoThread:
                assert limit.refused
                assert set(threading.enumerate()) <= before
                continue
            broker.stop()
            break
    assert room > 5
    assert set(threading.enumerate()) <= before
