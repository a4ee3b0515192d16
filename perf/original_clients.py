"""One client in its own process, for the measurements original_consumer and original_producer.

    python -m perf.original_clients consume CLIENT ADDRESS TOPIC COUNT SKIPPED
    python -m perf.original_clients produce CLIENT ADDRESS TOPIC COUNT SIZE

ADDRESS is the address of a broker; for kafkapy's ConsumerConnector it is zookeeper.connect. The program prints the wall
and the CPU seconds. For consumers they are those of COUNT records after the first SKIPPED ones, because librdkafka has
already fetched some 100,000 records when it returns the first. For producers they are from the first record to the last
acknowledgement.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from perf.machine import ROOT

KAFKAPY, CONFLUENT, CONFLUENT_LISTS, KAFKA_PYTHON = "kafkapy", "confluent", "confluent-lists", "kafka-python"
LIST = 500  # records per call of confluent-kafka's consume
KEYS = 1000
_TIMEOUT_S = 600.0


class Took(NamedTuple):
    """A client's records per second, and its CPU seconds per record."""

    rate: float
    cpu: float


def measured(*words: str, count: int) -> Took:
    """Run this program with the arguments `words` and return its figures for `count` records."""
    command = [sys.executable, "-m", "perf.original_clients", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    seconds, cpu = map(float, done.stdout.split())
    return Took(count / seconds, cpu / count)


def _kafkapy(connect: str, topic: str) -> Iterator[object]:
    from kafkapy.client.original.consuming.connector import ConsumerConnector

    with ConsumerConnector({"zookeeper.connect": connect, "group.id": "perf", "auto.offset.reset": "smallest"}) as own:
        yield from own.create_message_streams({topic: 1})[topic][0]


def _confluent(address: str, topic: str) -> Iterator[object]:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": address, "group.id": "one", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(1)
        if message is not None:
            yield message


def _confluent_lists(address: str, topic: str) -> Iterator[object]:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": address, "group.id": "lists", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while True:
        yield from consumer.consume(LIST, 1)


def _kafka_python(address: str, topic: str) -> Iterator[object]:
    from kafka import KafkaConsumer

    yield from KafkaConsumer(topic, bootstrap_servers=address, group_id="python", auto_offset_reset="earliest")


_CONSUMERS: dict[str, Callable[[str, str], Iterator[object]]] = {
    KAFKAPY: _kafkapy,
    CONFLUENT: _confluent,
    CONFLUENT_LISTS: _confluent_lists,
    KAFKA_PYTHON: _kafka_python,
}


def consume(client: str, address: str, topic: str, count: str, skipped: str) -> None:
    records = _CONSUMERS[client](address, topic)
    for _ in islice(records, int(skipped)):
        pass
    began, cpu = time.perf_counter(), time.process_time()
    for _ in islice(records, int(count)):
        pass
    print(time.perf_counter() - began, time.process_time() - cpu)


def produce(client: str, address: str, topic: str, count: str, size: str) -> None:
    """Send records with a key, one by one, with acks=1; the client collects them for 5 ms."""
    value, keys = bytes(int(size)), [b"key-%d" % number for number in range(KEYS)]
    work = _produce_kafkapy if client == KAFKAPY else _produce_kafka_python
    began, cpu = time.perf_counter(), time.process_time()
    work(address, topic, value, keys, int(count))
    print(time.perf_counter() - began, time.process_time() - cpu)


def _produce_kafkapy(address: str, topic: str, value: bytes, keys: list[bytes], count: int) -> None:
    from kafkapy.client.original.producing.producer import Producer
    from kafkapy.client.original.producing.producer_messages import KeyedMessage

    settings = {"metadata.broker.list": address, "producer.type": "async", "queue.buffering.max.ms": "5"}
    with Producer(settings) as producer:
        for number in range(count):
            producer.send(KeyedMessage(topic, value, keys[number % KEYS]))
    if producer.stats["failed"] or producer.stats["dropped"]:
        raise SystemExit(f"records were lost: {producer.stats}")


def _produce_kafka_python(address: str, topic: str, value: bytes, keys: list[bytes], count: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, acks=1, linger_ms=5)
    for number in range(count):
        producer.send(topic, value, keys[number % KEYS])
    producer.flush()
    producer.close()


if __name__ == "__main__":
    {"consume": consume, "produce": produce}[sys.argv[1]](*sys.argv[2:])
