"""kafkapy's group consumer and transactional producer continue when their broker is killed and starts again."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.client import (
    Admin,
    ConnectionFailed,
    Consumer,
    GroupConsumer,
    GroupMetadata,
    TransactionAborted,
    TransactionalProducer,
)
from tests.faults.rounds import rounds
from tests.harness.brokers import KafkapyBroker, free_port

pytestmark = pytest.mark.not_quick

ROUNDS = rounds(2)
TRANSACTIONS = 8  # between two kills
PATIENCE_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


class Writing:
    """A thread that writes transactions of ten records one after the other, and aborts every third."""

    def __init__(self, servers: str) -> None:
        self.committed: list[int] = []
        self.ended = 0
        self.failure: BaseException | None = None
        self._producer = TransactionalProducer(servers, "writer")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            first = 0
            while not self._stop.is_set():
                values = range(first, first + 10)
                self._transaction(values, commit=first % 30 != 0)
                first += 10
                self.ended += 1
        except BaseException as error:
            self.failure = error

    def _transaction(self, values: range, *, commit: bool) -> None:
        """Repeat the transaction until it is committed or, without `commit`, aborted."""
        while True:
            try:
                self._producer.begin()
                for value in values:
                    self._producer.send("t", b"%d" % value, partition=value % 2)
                self._producer.send_offsets({("t", 0): values.start}, "somebody")
                self._producer.flush()
                self._end(commit=commit)
            except TransactionAborted:
                self._end(commit=False)
            else:
                if commit:
                    self.committed += values
                return

    def _end(self, *, commit: bool) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._producer.commit() if commit else self._producer.abort()
            except ConnectionFailed:
                assert time.monotonic() < deadline

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()


class Reading:
    """A thread that polls as the only member of a group."""

    def __init__(self, servers: str) -> None:
        self.values: list[int] = []
        self.failure: BaseException | None = None
        self._consumer = GroupConsumer(
            servers, "readers", auto_offset_reset="earliest", isolation="read_committed", heartbeat_interval_s=0.2
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._consumer.subscribe(["t"])
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.values += [int(record.value or b"") for record in self._consumer.poll(0.1)]
            self._consumer.close()
        except BaseException as error:
            self.failure = error

    @property
    def member(self) -> GroupMetadata:
        return self._consumer.group_metadata()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, port: int) -> Iterator[list[KafkapyBroker]]:
    """Yield the running broker in a list, so that a test can replace it."""
    running = [KafkapyBroker(tmp_path, SETTINGS, port=port)]
    yield running
    running[0].stop()


def test_both_clients_continue_after_the_broker_was_killed(
    broker: list[KafkapyBroker], tmp_path: Path, port: int
) -> None:
    servers = broker[0].bootstrap
    with Admin(servers) as admin:
        admin.create_topic("t", 2)
    reading, writing = Reading(servers), Writing(servers)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not reading.member.member_id:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for number in range(ROUNDS):
            deadline = time.monotonic() + PATIENCE_S
            while writing.ended < (number + 1) * TRANSACTIONS:
                assert writing.failure is reading.failure is None
                assert time.monotonic() < deadline, f"{writing.ended} transactions"
                time.sleep(0.01)
            broker[0].kill()
            broker[0] = KafkapyBroker(tmp_path, SETTINGS, port=port)
    finally:
        writing.stop()
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(reading.values) < len(writing.committed):
            assert reading.failure is None
            assert time.monotonic() < deadline, f"{len(reading.values)} of {len(writing.committed)} records read"
            time.sleep(0.01)
    finally:
        reading.stop()
    assert writing.failure is reading.failure is None
    assert sorted(reading.values) == writing.committed
    with Consumer(servers, isolation="read_committed") as consumer:
        consumer.assign_topic("t")
        assert sorted(int(record.value or b"") for record in consumer.records()) == writing.committed
