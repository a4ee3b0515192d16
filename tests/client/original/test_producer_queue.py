"""The bounded queue, and the thread that sends its messages."""

import threading

from kafkapy.client.original.producing.producer_hooks import CallbackHandler
from kafkapy.client.original.producing.producer_messages import KeyedMessage
from kafkapy.client.original.producing.producer_queue import BoundedQueue, SendThread

FOREVER = 3600.0


def test_put_takes_messages_in_order_while_there_is_room_and_returns_their_number():
    queue = BoundedQueue(3)
    assert queue.put([1, 2], 0.0) == 2
    assert queue.put([3, 4, 5], 0.0) == 1
    assert queue.put([6], 0.001) == 0
    assert queue.take(2, 0.0) == [1, 2]
    assert queue.put([6, 7], 0.0) == 2
    assert queue.take(10, 0.0) == [3, 6, 7]
    assert queue.take(10, 0.0) == []


def test_many_threads_wait_for_room_and_nothing_is_lost_or_reordered():
    queue = BoundedQueue(2)
    threads = [
        threading.Thread(target=queue.put, args=([(who, number) for number in range(200)], None)) for who in range(4)
    ]
    for thread in threads:
        thread.start()
    taken = []
    while len(taken) < 800:
        taken += queue.take(7, 10.0)
    for thread in threads:
        thread.join(10)
    for who in range(4):
        assert [number for one, number in taken if one == who] == list(range(200))
    assert len(queue) == 0


def test_closing_ends_waiting_puts_and_keeps_the_queued_messages():
    queue = BoundedQueue(1)
    done = []
    thread = threading.Thread(target=lambda: done.append(queue.put([1, 2], None)))
    thread.start()
    while not len(queue):
        pass
    queue.close()
    thread.join(10)
    assert done == [1]
    assert queue.put([3], None) == 0
    assert queue.take(5, None) == [1]
    assert queue.take(5, None) == []


def messages(count, start=0):
    return [KeyedMessage("t", b"%d" % number) for number in range(start, start + count)]


def run(queue, hooks=None, *, batch_size=3, queue_time_s=FOREVER):
    batches = []
    thread = SendThread(queue, batches.append, hooks, batch_size=batch_size, queue_time_s=queue_time_s)
    thread.start()
    return thread, batches


def test_batches_have_their_size_and_the_last_one_goes_at_the_end():
    queue = BoundedQueue(100)
    queue.put(messages(8), None)
    queue.close()
    thread, batches = run(queue)
    thread.join(10)
    assert [len(batch) for batch in batches] == [3, 3, 2]
    assert [message for batch in batches for message in batch] == messages(8)


def test_a_batch_that_does_not_fill_goes_when_its_time_is_up():
    queue = BoundedQueue(100)
    gone = threading.Event()
    thread = SendThread(queue, lambda _: gone.set(), None, batch_size=100, queue_time_s=0.01)
    thread.start()
    queue.put(messages(1), None)
    assert gone.wait(10)
    queue.close()
    thread.join(10)


class LateQueue(BoundedQueue):
    """A queue that, just after it was found empty, gets a message and is closed."""

    def take(self, most, timeout_s):
        taken = super().take(most, timeout_s)
        if not taken and not self.closed:
            self.put(messages(1, start=7), 0.0)
            self.close()
        return taken


def test_messages_queued_just_before_the_closing_are_sent():
    queue = LateQueue(10)
    queue.put(messages(1), 0.0)
    thread, batches = run(queue, queue_time_s=0.01)
    thread.join(10)
    assert [message for batch in batches for message in batch] == messages(1) + messages(1, start=7)
    assert len(queue) == 0


class Marks(CallbackHandler):
    """A callback handler that doubles each message, and adds one when the time is up and one at the end."""

    def after_dequeuing(self, message):
        return [KeyedMessage("t", b"expired")] if message is None else [message, message]

    def last_batch_before_close(self):
        return [KeyedMessage("t", b"last")]


def test_hooks_change_what_a_batch_has():
    queue = BoundedQueue(100)
    queue.put(messages(1), None)
    queue.close()
    thread, batches = run(queue, Marks(), batch_size=100)
    thread.join(10)
    assert [message.message for message in batches[0]] == [b"0", b"0", b"last"]


def test_the_hook_of_expiry_adds_to_the_batch_that_is_about_to_go():
    queue = BoundedQueue(100)
    queue.put(messages(1), None)
    thread, batches = run(queue, Marks(), batch_size=100, queue_time_s=0.01)
    while not batches:
        pass
    queue.close()
    thread.join(10)
    assert [message.message for message in batches[0]] == [b"0", b"0", b"expired"]


def test_a_hook_that_fails_changes_nothing(caplog):
    class Broken(CallbackHandler):
        def after_dequeuing(self, message):
            raise RuntimeError("no")

        def last_batch_before_close(self):
            raise RuntimeError("no")

    queue = BoundedQueue(100)
    queue.put(messages(2), None)
    queue.close()
    thread, batches = run(queue, Broken())
    thread.join(10)
    assert batches == [messages(2)]
    assert "failed in after_dequeuing" in caplog.text


def test_a_hook_that_returns_none_changes_nothing():
    class Silent(CallbackHandler):
        def after_dequeuing(self, message):
            pass

        def last_batch_before_close(self):
            pass

    queue = BoundedQueue(100)
    queue.put(messages(2), None)
    queue.close()
    thread, batches = run(queue, Silent(), queue_time_s=0.0)  # calls each of the hooks
    thread.join(10)
    assert batches == [messages(2)]
