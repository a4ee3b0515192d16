"""A table arrives complete, each row once, although the broker is killed or stopped during the write."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import kafkapy.arrow
from kafkapy.client import Admin, Consumer
from kafkapy.client.administration.admin import LATEST
from tests.faults.rounds import rounds
from tests.harness.brokers import KafkapyBroker, free_port

pytestmark = pytest.mark.not_quick

ROUNDS = rounds(2)
ROWS = 500  # in an Arrow record batch
BATCHES = 30  # fewest batches between two stops of the broker
PATIENCE_S = 60.0
PARTITIONS = 3
SETTINGS = {"transaction.state.log.num.partitions": "3"}


class Writing:
    """A thread that writes until it is stopped. `taken` counts the rows that the writer accepted."""

    def __init__(self, servers: str, transactional_id: str | None) -> None:
        self.taken = 0
        self.enough = False
        self.failure: BaseException | None = None
        self.written: kafkapy.arrow.Written | None = None
        self._servers = servers
        self._transactional_id = transactional_id
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while not self.enough:
            numbers = range(self.taken * ROWS, (self.taken + 1) * ROWS)
            yield pa.record_batch(
                {"value": [b"%0100d" % number for number in numbers], "key": [str(number % 50) for number in numbers]}
            )
            self.taken += 1

    def _run(self) -> None:
        schema = pa.schema([("value", pa.binary()), ("key", pa.string())])
        try:
            self.written = kafkapy.arrow.write(
                "t",
                pa.RecordBatchReader.from_batches(schema, self._batches()),
                bootstrap_servers=self._servers,
                transactional_id=self._transactional_id,
                transaction_timeout_s=300,
                batch_bytes=4000,
                timeout_s=PATIENCE_S,
            )
        except BaseException as error:
            self.failure = error

    def wait_for(self, batches: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.taken < batches:
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, f"{self.taken} batches"
            time.sleep(0.001)

    def stop(self) -> None:
        self.enough = True
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("transactional_id", [None, "writer"])
def test_a_write_continues_after_its_broker_restarts(tmp_path: Path, transactional_id: str | None) -> None:
    port = free_port()
    broker = KafkapyBroker(tmp_path, SETTINGS, port=port)
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("t", PARTITIONS)
    writing = Writing(broker.bootstrap, transactional_id)
    try:
        for number in range(ROUNDS):
            writing.wait_for(writing.taken + BATCHES)
            if number % 2:
                broker.stop()  # the broker then knows only the last batch of each producer
            else:
                broker.kill()
            broker = KafkapyBroker(tmp_path, SETTINGS, port=port)
        writing.wait_for(writing.taken + 1)
    finally:
        writing.stop()
    assert writing.failure is None
    with Admin(broker.bootstrap) as admin:  # a commit returns before its markers are written
        deadline = time.monotonic() + PATIENCE_S
        ends = {("t", index): LATEST for index in range(PARTITIONS)}
        while admin.offsets(ends, isolation=0) != admin.offsets(ends, isolation=1):
            assert time.monotonic() < deadline, "the transaction does not end"
            time.sleep(0.005)
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    with Consumer(broker.bootstrap, isolation="read_committed") as consumer:
        consumer.assign_topic("t")
        for record in consumer.records():
            found[record.partition].append(int(record.value or b""))
    broker.stop()
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(writing.taken * ROWS))
    assert writing.written is not None
    assert writing.written.rows == writing.taken * ROWS
