"""A long-running client leaves no reference cycles: see tests/server/test_no_reference_cycles.py.

The broker is in the same process, so its side of each loop is checked, too.
"""

import contextlib

import pytest

from kafkapy.client import (
    Consumer,
    GroupConsumer,
    KeyedMessage,
    Producer,
    RecordProducer,
    SimpleConsumer,
    TransactionalProducer,
)
from tests.harness.reference_cycles import objects_left_in_cycles

TIMES = 20


def record_producer(bootstrap, admin, topic, closing):
    producer = RecordProducer(admin.cluster)

    def step():
        for number in range(10):
            producer.send(topic, b"value", b"%d" % number)
        producer.flush()

    return step


def consumer(bootstrap, admin, topic, closing):
    produce, reader = record_producer(bootstrap, admin, topic, closing), Consumer(admin.cluster)
    reader.assign_topic(topic)

    def step():
        produce()
        assert reader.poll()
        reader.end_offsets()

    return step


def group_consumer(bootstrap, admin, topic, closing):
    produce = record_producer(bootstrap, admin, topic, closing)
    reader = closing.enter_context(GroupConsumer(bootstrap, topic))
    reader.subscribe([topic])

    def step():
        produce()
        reader.poll(0.01)
        reader.commit()
        reader.commit_async(callback=lambda *_: None)
        reader.poll(0)

    return step


def transactional_producer(bootstrap, admin, topic, closing):
    producer = TransactionalProducer(admin.cluster, topic)
    producer.init()

    def step():
        with producer.transaction():
            producer.send(topic, b"value")
            producer.send_offsets({(topic, 0): 1}, topic)

    return step


def original_producer(bootstrap, admin, topic, closing):
    producer = closing.enter_context(Producer({"metadata.broker.list": bootstrap}))
    return lambda: producer.send(KeyedMessage(topic, b"value", b"key"))


def simple_consumer(bootstrap, admin, topic, closing):
    produce = record_producer(bootstrap, admin, topic, closing)
    host, port = bootstrap.rsplit(":", 1)
    reader = closing.enter_context(SimpleConsumer(host, int(port)))

    def step():
        produce()
        assert list(reader.fetch(topic, 0, 0, 1 << 20))

    return step


@pytest.mark.parametrize(
    "loop",
    [record_producer, consumer, group_consumer, transactional_producer, original_producer, simple_consumer],
    ids=lambda loop: loop.__name__,
)
def test_nothing_is_left_behind(kafkapy_broker, admin, kafkapy_topic, loop):
    with contextlib.ExitStack() as closing:
        left = objects_left_in_cycles(loop(kafkapy_broker.bootstrap_servers, admin, kafkapy_topic, closing), TIMES)
    assert left.total() < TIMES, f"{TIMES} times {loop.__name__} left reference cycles of {dict(left.most_common(12))}"
