"""The original producer: its queue, its callbacks, and that every lost message is reported."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kafkapy.client import Consumer
from kafkapy.client.original.encoders import StringEncoder
from kafkapy.client.original.partitioners import DefaultPartitioner
from kafkapy.client.original.producing.producer import Producer
from kafkapy.client.original.producing.producer_hooks import CallbackHandler
from kafkapy.client.original.producing.producer_messages import (
    FailedToSendMessage,
    KeyedMessage,
    ProducerClosed,
    ProducerData,
    QueueFull,
)

NOWHERE = {"metadata.broker.list": "127.0.0.1:1", "retry.backoff.ms": "0"}
ASYNC = {**NOWHERE, "producer.type": "async"}


class Gate:
    """An event handler that keeps its batches, and waits while it is closed."""

    def __init__(self):
        self.batches = []
        self.open = threading.Event()
        self.entered = threading.Event()
        self.closed = False

    def handle(self, messages):
        self.entered.set()
        assert self.open.wait(30)
        self.batches.append(list(messages))

    def close(self):
        self.closed = True

    @property
    def values(self):
        return [message.message for batch in self.batches for message in batch]


class Diary(CallbackHandler):
    """A callback handler that records each stage."""

    def __init__(self, properties=None):
        self.lines = []
        self.gone = []

    def before_enqueue(self, message):
        self.lines.append(("before_enqueue", message.message))
        return message._replace(message=message.message + b"!")

    def after_enqueue(self, message, added):
        self.lines.append(("after_enqueue", message.message, added))

    def after_dequeuing(self, message):
        self.lines.append(("after_dequeuing", message and message.message))
        return [message] if message else []

    def before_sending(self, messages):
        self.lines.append(("before_sending", len(messages)))
        return messages

    def last_batch_before_close(self):
        self.lines.append(("last_batch_before_close",))
        return []

    def lost(self, messages, reason):
        self.gone += messages
        self.lines.append(("lost", len(messages), type(reason).__name__))

    def close(self):
        self.lines.append(("close",))


def message(value, topic="t"):
    return KeyedMessage(topic, value)


def test_each_stage_has_its_hook_in_order():
    gate, diary = Gate(), Diary()
    gate.open.set()
    producer = Producer(ASYNC, event_handler=gate, callback_handler=diary)
    producer.send(message(b"a"))
    producer.close()
    order = ["before_enqueue", "after_enqueue", "after_dequeuing", "last_batch_before_close", "before_sending", "close"]
    assert sorted(line[0] for line in diary.lines) == sorted(order)
    by_thread = [line[0] for line in diary.lines if line[0] != "after_enqueue"]
    assert by_thread == [name for name in order if name != "after_enqueue"]
    assert gate.values == [b"a!"]
    assert gate.closed


def test_messages_are_taken_one_by_one_in_lists_and_in_the_form_of_0_7():
    gate = Gate()
    gate.open.set()
    with Producer(NOWHERE, event_handler=gate) as producer:
        producer.send(message(b"a"), [message(b"b"), message(b"c")], ProducerData("t", "key", [b"d", b"e"]))
    assert gate.values == [b"a", b"b", b"c", b"d", b"e"]
    assert gate.batches[0][-1] == KeyedMessage("t", b"e", None, "key")
    for wrong in ("text", b"bytes", ("t", b"v"), 5):
        with pytest.raises(TypeError, match="neither a KeyedMessage nor a list"):
            Producer(NOWHERE, event_handler=gate).send(wrong)


@pytest.mark.parametrize("timeout_ms", ["0", "5"])
def test_a_full_queue_drops_further_messages_and_reports_them(timeout_ms):
    gate, diary = Gate(), Diary()
    properties = {**ASYNC, "queue.size": "2", "batch.size": "1", "queue.enqueueTimeout.ms": timeout_ms}
    producer = Producer(properties, event_handler=gate, callback_handler=diary)
    producer.send(message(b"0"))
    assert gate.entered.wait(10)
    with pytest.raises(QueueFull, match="full with 2 messages; it did not take 2 messages for t") as full:
        producer.send([message(b"%d" % number) for number in range(1, 5)])
    assert [one.message for one in full.value.messages] == [b"3!", b"4!"] == [one.message for one in diary.gone]
    assert [line[2] for line in diary.lines if line[0] == "after_enqueue"] == [True] * 3 + [False] * 2
    gate.open.set()
    producer.close()
    assert gate.values == [b"0!", b"1!", b"2!"]
    assert producer.stats == {"messages": 5, "dropped": 2}


def test_a_full_queue_is_waited_for_and_nothing_is_dropped():
    gate = Gate()
    producer = Producer({**ASYNC, "queue.size": "2", "batch.size": "1"}, event_handler=gate)
    sender = threading.Thread(target=producer.send, args=([message(b"%d" % number) for number in range(20)],))
    sender.start()
    assert gate.entered.wait(10)
    gate.open.set()
    sender.join(10)
    producer.close()
    assert gate.values == [b"%d" % number for number in range(20)]
    assert producer.stats == {"messages": 20}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_after_close_a_message_is_refused_and_counted(kind):
    gate, diary = Gate(), Diary()
    producer = Producer({**NOWHERE, "producer.type": kind}, event_handler=gate, callback_handler=diary)
    producer.close()
    producer.close()
    with pytest.raises(ProducerClosed, match="did not take 1 message for t"):
        producer.send(message(b"late"))
    assert producer.stats["dropped"] == len(diary.gone) == 1
    assert diary.lines.count(("close",)) == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_messages_that_cannot_be_sent_are_counted_and_passed_to_the_callback(kind):
    diary = Diary()
    producer = Producer({**NOWHERE, "producer.type": kind, "batch.size": "10"}, callback_handler=diary)
    if kind == "sync":
        with pytest.raises(FailedToSendMessage, match="Is a broker listening there"):
            producer.send([message(b"a"), message(b"b")])
    else:
        producer.send([message(b"a"), message(b"b")])
    producer.close()
    assert producer.stats["failed"] == len(diary.gone) == 2
    assert producer.stats["resends"] == 3


class DeadLetters(CallbackHandler):
    """Sends lost messages to another topic, through the same producer."""

    def lost(self, messages, reason):
        if messages[0].topic != "dead":
            self.producer.send([one._replace(topic="dead") for one in messages])


class Refusing(Gate):
    """An event handler that refuses all batches except those for the topic `dead`."""

    def handle(self, messages):
        super().handle(messages)
        if messages[0].topic != "dead":
            raise FailedToSendMessage("no", messages)


def test_the_callback_can_send_lost_messages_of_a_sync_producer_to_another_topic():
    handler, hooks = Refusing(), DeadLetters()
    handler.open.set()
    hooks.producer = producer = Producer(NOWHERE, event_handler=handler, callback_handler=hooks)

    def send():
        with pytest.raises(FailedToSendMessage):
            producer.send(message(b"a"))

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sender.join(10)
    assert handler.batches == [[message(b"a")], [message(b"a", "dead")]]
    producer.close()


def test_a_hook_that_sends_does_not_wait_for_the_thread_that_it_is_in():
    handler, hooks = Refusing(), DeadLetters()
    properties = {**ASYNC, "queue.size": "1", "batch.size": "1"}
    hooks.producer = producer = Producer(properties, event_handler=handler, callback_handler=hooks)
    producer.send(message(b"a"))
    assert handler.entered.wait(10)
    producer.send(message(b"b", "dead"))
    handler.open.set()
    producer.send(message(b"c", "dead"))
    producer.close()
    assert handler.values == [b"a", b"b", b"c"]
    assert producer.stats == {"messages": 4, "failed": 1, "dropped": 1}


def test_an_event_handler_that_fails_is_survived_and_its_batch_counted():
    class Fails(Gate):
        def handle(self, messages):
            if not self.batches:
                self.batches.append([])
                raise RuntimeError("no")
            super().handle(messages)

    handler, diary = Fails(), Diary()
    handler.open.set()
    producer = Producer({**ASYNC, "batch.size": "2"}, event_handler=handler, callback_handler=diary)
    producer.send([message(b"%d" % number) for number in range(4)])
    producer.close()
    assert [one.message for one in diary.gone] == [b"0!", b"1!"]
    assert handler.values == [b"2!", b"3!"]


def test_many_threads_send_through_one_producer(kafkapy_broker, kafkapy_topic):
    properties = {"metadata.broker.list": kafkapy_broker.bootstrap_servers, "producer.type": "async", "queue.time": 20}
    with Producer({**properties, "batch.size": 50}) as producer:

        def send(who):
            for number in range(500):
                producer.send(KeyedMessage(kafkapy_topic, b"%d" % number, b"%d" % who))

        threads = [threading.Thread(target=send, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    seen = {}
    for record in read(kafkapy_broker, kafkapy_topic):
        seen.setdefault(record.key, []).append(int(record.value))
    assert seen == {b"%d" % who: list(range(500)) for who in range(4)}
    assert producer.stats == {"messages": 2000}


def read(broker, topic):
    with Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign_topic(topic)
        return list(consumer.records())


@pytest.mark.parametrize("more", [{}, {"enable.idempotence": "true"}, {"compression.codec": "2"}])
def test_send_of_a_sync_producer_returns_after_the_messages_are_stored(kafkapy_broker, kafkapy_topic, more):
    properties = {"metadata.broker.list": kafkapy_broker.bootstrap_servers, **more}
    with Producer({**properties, "serializer.class": "kafka.serializer.StringEncoder"}) as producer:
        producer.send([KeyedMessage(kafkapy_topic, f"v{number}", "ü") for number in range(3)])
        producer.send(KeyedMessage(kafkapy_topic, None, "ü"))
        found = [(record.key, record.value) for record in read(kafkapy_broker, kafkapy_topic)]
    assert found == [("ü".encode(), b"v0"), ("ü".encode(), b"v1"), ("ü".encode(), b"v2"), ("ü".encode(), None)]


def test_encoders_and_the_partitioner_can_be_given(kafkapy_broker, kafkapy_topic):
    class Last(DefaultPartitioner):
        def partition(self, key, partitions):
            assert key == "k"
            return partitions - 1

    properties = {"metadata.broker.list": kafkapy_broker.bootstrap_servers}
    with Producer(properties, encoder=StringEncoder(), partitioner=Last()) as producer:
        producer.send(KeyedMessage(kafkapy_topic, "v", "k"))
    assert [(record.key, record.value) for record in read(kafkapy_broker, kafkapy_topic)] == [(b"k", b"v")]


FORGETFUL = """
import sys
from kafkapy.client.original.producing.producer import KeyedMessage, Producer
producer = Producer({"metadata.broker.list": sys.argv[1], "producer.type": "async", "queue.time": "3600000"})
producer.send([KeyedMessage(sys.argv[2], b"v")] * 3)
"""


def test_a_program_that_forgets_to_close_still_sends_the_queued_messages(kafkapy_broker, kafkapy_topic):
    command = [sys.executable, "-c", FORGETFUL, kafkapy_broker.bootstrap_servers, kafkapy_topic]
    subprocess.run(command, check=True, timeout=60, cwd=Path(__file__).parents[3])
    assert len(read(kafkapy_broker, kafkapy_topic)) == 3
