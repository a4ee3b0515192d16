"""Appends on a pool keep their order, are gathered, and answer every producer."""

import re
import threading

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.replica.append_queue import AppendQueue
from kafkapy.runtime.disk_pool import DiskPool, PoolStopped
from kafkapy.runtime.threads import NoThread


class Pool:
    """A pool without threads: `run` calls the submitted functions."""

    def __init__(self):
        self.jobs = []

    def submit(self, fn, *args):
        self.jobs.append((fn, args))

    def run(self):
        while self.jobs:
            fn, args = self.jobs.pop(0)
            fn(*args)


def queue_of(pool, write):
    """Return a queue of appends that need no flush."""
    return AppendQueue(pool, lambda sets, long: (write(sets), False), never)


def never():
    raise AssertionError("nothing has asked for a flush")


def test_gathered_sets_are_appended_at_once_and_in_order():
    pool, appended, answers = Pool(), [], {}
    queue = queue_of(pool, lambda sets: appended.append(list(sets)) or [f"did {one}" for one in sets])
    queue.put(["a", "b"], lambda results: answers.update(first=results))
    queue.put(["c"], lambda results: answers.update(second=results))
    assert queue.busy
    assert len(pool.jobs) == 1
    pool.run()
    assert appended == [["a", "b", "c"]]
    assert answers == {"first": ["did a", "did b"], "second": ["did c"]}
    assert not queue.busy


def test_an_append_put_while_draining_is_drained_too():
    pool, appended, answers = Pool(), [], []
    queue = queue_of(pool, lambda sets: appended.append(list(sets)) or list(sets))
    queue.put(["a"], lambda results: queue.put(["b"], answers.append))
    pool.run()
    assert appended == [["a"], ["b"]]
    assert answers == [["b"]]
    assert not queue.busy


def test_a_failing_append_answers_every_waiting_producer():
    def broken(sets):
        raise OSError("disk on fire")

    pool, answers = Pool(), []
    queue = queue_of(pool, broken)
    queue.put(["a"], answers.append)
    queue.put(["b", "c"], answers.append)
    pool.run()
    assert [len(one) for one in answers] == [1, 2]
    verdicts = [verdict for results in answers for verdict in results]
    assert all(isinstance(one, KafkaError) and one.code == Errors.UNKNOWN_SERVER_ERROR for one in verdicts)


def test_an_answer_that_fails_takes_nothing_from_the_others():
    pool, answers = Pool(), []
    queue = queue_of(pool, list)
    queue.put(["a"], lambda results: 1 // 0)
    queue.put(["b"], answers.append)
    pool.run()
    assert answers == [["b"]]
    assert not queue.busy


class Disk:
    """Records the written sets, and how many of them each flush covered. A flush waits until the test lets it end."""

    def __init__(self):
        self.written = []
        self.flushed = []
        self.news = threading.Condition()
        self.begun = 0
        self.may_end = threading.Semaphore(0)

    def write(self, sets, long):
        with self.news:
            self.written += sets
            self.news.notify_all()
        return list(sets), True

    def flush(self):
        with self.news:
            covered = len(self.written)
            self.begun += 1
            self.news.notify_all()
        assert self.may_end.acquire(timeout=10)
        self.flushed.append(covered)

    def wait_for(self, condition):
        with self.news:
            assert self.news.wait_for(condition, 10)


@pytest.fixture
def threads():
    pool = DiskPool(3)
    yield pool
    pool.stop()


def test_sets_that_arrive_during_a_flush_are_written_and_share_the_next_flush(threads):
    disk, answers = Disk(), {}
    queue = AppendQueue(threads, disk.write, disk.flush)
    queue.put(["a"], lambda results: answers.update(a=list(disk.flushed)))
    disk.wait_for(lambda: disk.begun == 1)
    for name in "bcd":
        queue.put([name], lambda results, name=name: answers.update({name: list(disk.flushed)}))
    disk.wait_for(lambda: len(disk.written) == 4)  # written during the first flush
    assert not answers
    disk.may_end.release()
    disk.wait_for(lambda: disk.begun == 2)
    disk.may_end.release()
    threads.stop()
    assert answers == {"a": [1]} | {name: [1, 4] for name in "bcd"}


def test_a_flush_does_not_wait_until_no_more_writes_come(threads):
    """A producer that sends all the time must not delay the flush of earlier writes."""
    disk, answered = Disk(), threading.Semaphore(0)
    numbers = iter(range(1000))

    def write(sets, long):
        if disk.begun == 0:  # until the first flush, each write brings another append
            queue.put([next(numbers)], lambda results: answered.release())
        return disk.write(sets, long)

    queue = AppendQueue(threads, write, disk.flush)
    queue.put([next(numbers)], lambda results: answered.release())
    disk.wait_for(lambda: disk.begun == 1)
    for _ in range(1000):
        disk.may_end.release()
    assert answered.acquire(timeout=10)


class Afterwards:
    """A lock that calls a function after its n-th release."""

    def __init__(self, releases, happening):
        self.lock = threading.Lock()
        self.left, self.happening = releases, happening

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        self.left -= 1
        if self.left == 0:
            self.happening()


@pytest.mark.parametrize("releases", range(1, 10))
def test_never_do_two_threads_write(releases):
    """Another append may come at any moment, even when the writing thread is just beginning to flush."""
    pool = Pool()
    queue = AppendQueue(pool, lambda sets, long: (list(sets), True), lambda: None)
    answers = []
    queue._lock = Afterwards(releases + 1, lambda: queue.put(["b"], answers.append))
    queue.put(["a"], answers.append)
    while pool.jobs:
        assert len([fn for fn, _ in pool.jobs if fn == queue._run]) <= 1
        fn, args = pool.jobs.pop(0)
        fn(*args)
    assert sorted(answers) == ([["a"], ["b"]] if queue._lock.left <= 0 else [["a"]])


def test_a_failed_flush_answers_every_waiting_append_with_the_error():
    def flush():
        raise KafkaError(Errors.KAFKA_STORAGE_ERROR, "the disk is gone")

    pool, answers = Pool(), []
    queue = AppendQueue(pool, lambda sets, long: (list(sets), True), flush)
    queue.put(["a"], answers.append)
    queue.put(["b", "c"], answers.append)
    pool.run()
    assert [[one.code for one in each] for each in answers] == [[56], [56, 56]]
    queue.put(["d"], answers.append)
    pool.run()
    assert len(answers) == 3


def test_sets_written_outside_of_the_queue_are_answered_after_a_flush():
    pool, answers, flushes = Pool(), [], []
    queue = AppendQueue(pool, never, lambda: flushes.append(1))
    queue.put_written(["a"], ["done"], answers.append)
    assert not answers
    pool.run()
    assert (answers, flushes) == ([["done"]], [1])


def test_after_the_end_every_set_is_refused():
    pool, answers = Pool(), []
    queue = AppendQueue(pool, never, lambda: None)
    queue.end(KafkaError(Errors.KAFKA_STORAGE_ERROR, "the disk is gone"))
    queue.put(["a"], answers.append)
    queue.put_written(["b"], ["done"], answers.append)
    pool.run()
    assert [[one.code for one in each] for each in answers] == [[56], [56]]


def test_long_work_has_a_pool_of_its_own_and_the_order_stays():
    pool, long_pool, appended, answers = Pool(), Pool(), [], []

    def write(sets, long):
        appended.append(("long" if running is long_pool else "short", list(sets)))
        return list(sets), False

    queue = AppendQueue(pool, write, never, long_pool)
    for name in "abCDeFg":
        queue.put([name], answers.append, long=name.isupper())
    while pool.jobs or long_pool.jobs:
        assert queue.busy
        running = pool if pool.jobs else long_pool
        fn, args = running.jobs.pop(0)
        assert len(pool.jobs) + len(long_pool.jobs) == 0
        fn(*args)
    assert appended == [
        ("short", ["a", "b"]),
        ("long", ["C", "D"]),
        ("short", ["e"]),
        ("long", ["F"]),
        ("short", ["g"]),
    ]
    assert answers == [[name] for name in "abCDeFg"]
    assert not queue.busy


NO_POOL_THREAD = [PoolStopped("stopped"), NoThread("kafkapy-append-0", "can't start new thread")]


@pytest.mark.parametrize("why", NO_POOL_THREAD, ids=repr)
@pytest.mark.parametrize("stopped", ["pool", "long_pool"])
@pytest.mark.parametrize("flushed", [False, True])
def test_waiting_sets_are_still_appended_when_a_pool_has_no_thread(stopped, flushed, why):
    class Stopped(Pool):
        def submit(self, fn, *args):
            raise why

    pools = {"pool": Pool(), "long_pool": Pool()} | {stopped: Stopped()}
    appended, answers = [], []

    def write(sets, long):
        appended.extend(sets)
        return list(sets), flushed

    queue = AppendQueue(pools["pool"], write, lambda: None, pools["long_pool"])
    first = stopped == "pool"
    for at, name in enumerate("abc"):
        queue.put([name], answers.append, long=first if at != 1 else not first)
    for pool in (pools["long_pool"], pools["pool"]):
        pool.run()
    assert appended == list("abc")
    assert sorted(answers) == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize(
    ("why", "code"), list(zip(NO_POOL_THREAD, [Errors.NOT_LEADER_OR_FOLLOWER, Errors.KAFKA_STORAGE_ERROR], strict=True))
)
def test_an_append_that_no_pool_thread_takes_is_refused_with_the_later_ones(why, code):
    answers = []

    class Stopped(Pool):
        def submit(self, fn, *args):
            if not answers:  # meanwhile another producer's append is queued behind
                queue.put(["behind", "it"], answers.append)
            raise why

    queue = queue_of(Stopped(), list)
    for _ in range(2):
        with pytest.raises(KafkaError, match=re.escape(str(why))) as refused:
            queue.put(["late"], lambda results: 1 // 0)
        assert refused.value.code == code
        assert [[error.code for error in results] for results in answers] == [[code] * 2]
        assert not queue.busy


@pytest.mark.parametrize("why", NO_POOL_THREAD, ids=repr)
def test_a_written_set_is_refused_once_when_no_pool_thread_can_flush_it(why):
    pool, answers, flushes = Pool(), [], []
    queue = AppendQueue(pool, never, lambda: flushes.append(1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pool, "submit", raising(why))
        with pytest.raises(KafkaError, match=re.escape(str(why))):
            queue.put_written(["a"], ["done"], lambda results: 1 // 0)
    queue.put_written(["b"], ["done"], answers.append)
    pool.run()
    assert (answers, flushes) == ([["done"]], [1])


@pytest.mark.parametrize("why", NO_POOL_THREAD, ids=repr)
def test_a_set_written_while_another_thread_flushes_needs_no_pool_thread(why):
    pool, answers, flushes = Pool(), [], []

    def flush():
        if not flushes:
            queue.put_written(["b"], ["b done"], answers.append)
        flushes.append(1)

    queue = AppendQueue(pool, never, flush)
    queue.put_written(["a"], ["a done"], answers.append)
    ((fn, args),) = pool.jobs
    pool.submit = raising(why)
    fn(*args)
    assert (answers, flushes) == ([["a done"], ["b done"]], [1, 1])


def raising(why):
    def submit(*_):
        raise why

    return submit


def test_the_queue_answers_with_an_error_and_still_works_after_a_lack_of_memory(monkeypatch):
    pool, appended, answers = Pool(), [], []
    queue = queue_of(pool, lambda sets: appended.append(list(sets)) or list(sets))
    for name in "ab":
        queue.put([name], answers.append)
    with monkeypatch.context() as short:
        short.setattr(AppendQueue, "_take", out_of_memory)
        with pytest.raises(MemoryError):
            pool.run()
    assert [[error.code for error in results] for results in answers] == 2 * [[Errors.KAFKA_STORAGE_ERROR]]
    assert not queue.busy
    queue.put(["c"], answers.append)
    pool.run()
    assert (appended, answers[2:]) == ([["c"]], [["c"]])


def out_of_memory(*_):
    raise MemoryError
