"""Load that survives kills of the broker: producers, deletions of records, and topics created and deleted."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, Producer

from tests.harness.raw import Connection, array, string, values

DELETE_TOPICS, DELETE_RECORDS = 20, 21
UNANSWERED = 300  # most unacknowledged records of a writer, so that all writers can send
PATIENCE = 60.0  # most seconds without progress


class Writer(threading.Thread):
    """A thread that sends numbered records until it is stopped, and keeps a list of the acknowledged ones."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.acknowledged: list[tuple[int, int, int]] = []  # partition, offset (-1: unknown), number
        self.failed: list[str] = []
        self._partitions = partitions
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 100,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
                **settings,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            if len(self._producer) >= UNANSWERED:
                self._producer.poll(0.005)
                continue
            value = b"%d %s" % (number, b"x" * (number % 150))
            place = number % self._partitions
            try:
                self._producer.produce(self.topic, value, partition=place, on_delivery=self._note(number))
            except KafkaException as error:  # the broker has lost or refused records
                self.failed.append(str(error))
                return
            number += 1
        left = self._producer.flush(PATIENCE)
        if left:
            self.failed.append(f"{left} records were never answered")

    def _note(self, number: int) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offset = message.offset()
                self.acknowledged.append((message.partition(), -1 if offset is None else offset, number))
            else:
                self.failed.append(error.str())

        return delivered

    def end(self) -> None:
        self._ended.set()
        self.join(PATIENCE + 30)
        assert not self.is_alive()


class Administrator(threading.Thread):
    """A thread that repeats an action over its own connection. If that breaks, the action may have been done or not."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.rng = random.Random(seed)
        self._address = f"127.0.0.1:{port}"
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                with Connection(self._address) as connection:
                    while not self._ended.is_set():
                        self.act(connection)
                        self._ended.wait(0.02)
            except (OSError, AssertionError):  # the broker was killed, perhaps within a response, or is not back yet
                self._ended.wait(0.02)

    def act(self, connection: Connection) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self._ended.set()
        self.join(PATIENCE)
        assert not self.is_alive()


class Trimmer(Administrator):
    """Deletes records below acknowledged offsets. `asked` has the last requested offset by partition, done or not."""

    def __init__(self, port: int, seed: int, writer: Writer) -> None:
        super().__init__(port, seed)
        self.asked: dict[int, int] = {}
        self.done = 0
        self._writer = writer

    def act(self, connection: Connection) -> None:
        if not self._writer.acknowledged:
            return
        partition, offset, _ = self.rng.choice(self._writer.acknowledged[-1000:])
        before = self.asked.get(partition, 0)
        if offset <= before:
            return
        self.asked[partition] = offset
        one = string(self._writer.topic) + array([struct.pack(">iq", partition, offset)])
        answer = connection.ask(DELETE_RECORDS, 0, array([one]) + struct.pack(">i", 10_000))
        low, code = struct.unpack(">qh", answer[-10:])
        if code == 0 and low == offset:
            self.done += 1
        else:
            self.asked[partition] = before


class Churner(Administrator):
    """Creates topics with one record each and deletes them again."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(port, seed)
        self.created: set[str] = set()  # topics whose record was acknowledged
        self.deleted: set[str] = set()
        self.deleting: set[str] = set()  # topics whose deletion was requested
        self._number = 0

    def act(self, connection: Connection) -> None:
        if len(self.created) > 10 or (self.created and self.rng.random() < 0.3):
            name = self.rng.choice(sorted(self.created))
            self.created.discard(name)
            self.deleting.add(name)
            answer = connection.ask(DELETE_TOPICS, 1, array([string(name)]) + struct.pack(">i", 10_000))
            if struct.unpack(">h", answer[-2:]) == (0,):
                self.deleted.add(name)
            return
        self._number += 1
        name = f"churned-{self._number}"
        if connection.create_topic(name) == 0 and connection.produce(name, 0, values(name.encode())) == (0, 0):
            self.created.add(name)


class Traffic:
    """All writers and administrators. The argument `writers` has the settings of each writer by its topic."""

    def __init__(self, bootstrap: str, partitions: int, writers: dict[str, dict[str, Any]], trimmed: str, seed: int):
        port = int(bootstrap.rpartition(":")[2])
        self.writers = {topic: Writer(bootstrap, topic, partitions, **one) for topic, one in writers.items()}
        self.trimmer = Trimmer(port, seed, self.writers[trimmed])
        self.churner = Churner(port, seed + 1)

    def begin(self) -> None:
        for thread in (*self.writers.values(), self.trimmer, self.churner):
            thread.start()

    def wait_for(self, topic: str, more: int) -> None:
        """Wait until `more` further records of the topic's writer have been acknowledged."""
        writer = self.writers[topic]
        count = len(writer.acknowledged) + more
        deadline = time.monotonic() + PATIENCE
        while len(writer.acknowledged) < count:
            in_time = writer.is_alive() and time.monotonic() < deadline
            assert in_time, f"{topic}: no {more} acknowledgements more; failed: {writer.failed[-1:]}"
            time.sleep(0.001)

    def end(self) -> None:
        """Stop all threads, and return when all sent records are acknowledged or refused."""
        for thread in (self.trimmer, self.churner, *self.writers.values()):
            thread.end()
