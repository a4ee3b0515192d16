"""Pooled appends: order, gathering, and an answer for everyone."""

from kafkapy.errors import Errors, KafkaError
from kafkapy.replica.append_queue import AppendQueue


class Pool:
    """Runs nothing until told."""

    def __init__(self):
        self.jobs = []

    def submit(self, fn, *args):
        self.jobs.append((fn, args))

    def run(self):
        while self.jobs:
            fn, args = self.jobs.pop(0)
            fn(*args)


def test_what_gathered_is_appended_at_once_and_in_order():
    pool, appended, answers = Pool(), [], {}
    queue = AppendQueue(pool, lambda sets: appended.append(list(sets)) or [f"did {one}" for one in sets])
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
    queue = AppendQueue(pool, lambda sets: appended.append(list(sets)) or list(sets))
    queue.put(["a"], lambda results: queue.put(["b"], answers.append))
    pool.run()
    assert appended == [["a"], ["b"]]
    assert answers == [["b"]]
    assert not queue.busy


def test_a_failing_append_answers_every_waiting_producer():
    def broken(sets):
        raise OSError("disk on fire")

    pool, answers = Pool(), []
    queue = AppendQueue(pool, broken)
    queue.put(["a"], answers.append)
    queue.put(["b", "c"], answers.append)
    pool.run()
    assert [len(one) for one in answers] == [1, 2]
    verdicts = [verdict for results in answers for verdict in results]
    assert all(isinstance(one, KafkaError) and one.code == Errors.UNKNOWN_SERVER_ERROR for one in verdicts)


def test_an_answer_that_fails_takes_nothing_from_the_others():
    pool, answers = Pool(), []
    queue = AppendQueue(pool, list)
    queue.put(["a"], lambda results: 1 // 0)
    queue.put(["b"], answers.append)
    pool.run()
    assert answers == [["b"]]
    assert not queue.busy
