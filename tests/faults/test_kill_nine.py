"""The broker is killed by SIGKILL while producers write: what was acknowledged is there after the next start."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harness.brokers import KafkapyBroker
from harness.clients.confluent import Confluent
from harness.clients.kafka_python import KafkaPython
from harness.clients.remote import Java3
from harness.kafka_tools import complaints, kafka_dump

PARTITIONS = 3
ROUNDS = 4
PER_ROUND = 8_000  # acknowledged records of each writer between two kills
# Small segments, so that a kill also hits rolls; nothing is ever flushed, so that recovery has everything to read.
SETTINGS = {"log.segment.bytes": "262144", "log.index.interval.bytes": "1024"}


class Writer(threading.Thread):
    """Sends numbered records until told to stop; notes what was acknowledged. It lives through all kills."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.acknowledged: list[tuple[int, int, int]] = []  # partition, offset, number
        self.failed: list[str] = []
        self._stop_sending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 100,
                "queue.buffering.max.messages": 2_000,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
                **settings,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stop_sending.is_set():
            try:
                value = b"%d %s" % (number, b"x" * (number % 150))
                self._producer.produce(self.topic, value, partition=number % PARTITIONS, on_delivery=self._note(number))
                number += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.05)
        left = self._producer.flush(60)
        if left:
            self.failed.append(f"{left} records were never answered")

    def _note(self, number: int) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.append((message.partition(), message.offset(), number))
            else:
                self.failed.append(error.str())

        return delivered

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {count} acknowledged: {self.failed[:3]}"
            time.sleep(0.005)

    def finish(self) -> None:
        self._stop_sending.set()
        self.join(90)
        assert not self.is_alive()


@contextmanager
def killed_and_restarted(
    directory: Path, writers: dict[str, dict[str, Any]]
) -> Iterator[tuple[KafkapyBroker, list[Writer]]]:
    """Runs the writers over several kills; gives the broker after the last restart, when all has been answered."""
    broker = KafkapyBroker(directory, SETTINGS)
    running: list[Writer] = []
    try:
        admin = Confluent(broker.bootstrap)
        for topic, settings in writers.items():
            admin.create_topic(topic, PARTITIONS)
            running.append(Writer(broker.bootstrap, topic, **settings))
        for writer in running:
            writer.start()
        for round_ in range(ROUNDS):
            for writer in running:
                writer.wait_for(PER_ROUND * (round_ + 1))
            broker.kill()
            broker = KafkapyBroker(directory, SETTINGS, port=broker.port)  # producers come back to the same address
        for writer in running:
            writer.finish()
        yield broker, running
        if broker.process.child.poll() is None:
            broker.stop()
    finally:
        if broker.process.child.poll() is None:
            broker.kill()


def stored(broker: KafkapyBroker, topic: str) -> dict[int, list[int]]:
    """The numbers in each partition, by offset; offsets must be without gaps."""
    client = Confluent(broker.bootstrap)
    end = {p: high for p, (_, high) in client.watermarks(topic, range(PARTITIONS)).items()}
    got = client.fetch(topic, dict.fromkeys(end, 0), end)
    for p, records in got.items():
        assert [r.offset for r in records] == list(range(end[p]))
    return {p: [int((r.value or b"").split()[0]) for r in records] for p, records in got.items()}


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkapyBroker, dict[str, Writer]]]:
    writers = {
        "idempotent": {"enable.idempotence": True},
        "idempotent-lz4": {"enable.idempotence": True, "compression.type": "lz4"},
        "plain": {"enable.idempotence": False, "max.in.flight": 5},
        "plain-zstd": {"enable.idempotence": False, "compression.type": "zstd"},
    }
    with killed_and_restarted(tmp_path_factory.mktemp("kill-nine"), writers) as (broker, running):
        yield broker, {writer.topic: writer for writer in running}


@pytest.mark.parametrize("topic", ["idempotent", "idempotent-lz4", "plain", "plain-zstd"])
def test_every_acknowledged_record_is_there(survived: tuple[KafkapyBroker, dict[str, Writer]], topic: str) -> None:
    broker, writers = survived
    numbers = {p: set(each) for p, each in stored(broker, topic).items()}
    assert len(writers[topic].acknowledged) >= ROUNDS * PER_ROUND
    missing = [each for each in writers[topic].acknowledged if each[2] not in numbers[each[0]]]
    assert not missing, f"{len(missing)} acknowledged records are not there, the first is {missing[0]}"


@pytest.mark.parametrize("topic", ["idempotent", "idempotent-lz4"])
def test_records_of_idempotent_producers_are_there_once_and_in_order(
    survived: tuple[KafkapyBroker, dict[str, Writer]], topic: str
) -> None:
    broker, writers = survived
    assert writers[topic].failed == []
    by_place = stored(broker, topic)
    for partition, numbers in by_place.items():
        twice = [number for number, times in Counter(numbers).items() if times > 1]
        assert not twice, f"partition {partition}: {len(twice)} records are there more than once, such as {twice[:3]}"
        assert numbers == sorted(numbers), f"partition {partition} is out of order"
    # An acknowledgement also named the place: nothing may have moved.
    wrong = [each for each in writers[topic].acknowledged if each[1] >= 0 and by_place[each[0]][each[1]] != each[2]]
    assert not wrong, f"{len(wrong)} records are not at the offset that was acknowledged, the first is {wrong[0]}"


def test_other_clients_read_what_survived(survived: tuple[KafkapyBroker, dict[str, Writer]]) -> None:
    broker, _ = survived
    everything = stored(broker, "idempotent-lz4")
    end = {p: len(numbers) for p, numbers in everything.items()}
    start = {p: max(0, offset - 4_000) for p, offset in end.items()}
    expected = {p: numbers[start[p] :] for p, numbers in everything.items()}
    for kind in (KafkaPython, Java3):
        client = kind(broker.bootstrap)
        try:
            got = client.fetch("idempotent-lz4", start, end)
        finally:
            client.close()
        assert {p: [int((r.value or b"").split()[0]) for r in records] for p, records in got.items()} == expected


def test_kafkas_tool_accepts_the_files_that_survived(survived: tuple[KafkapyBroker, dict[str, Writer]]) -> None:
    broker, writers = survived
    broker.stop()  # the last test of this module: indexes of active segments are complete in their files after a stop
    files = sorted(path.relative_to(broker.data) for topic in writers for path in broker.data.glob(f"{topic}-[0-9]/*"))
    logs = [path for path in files if path.suffix == ".log"]
    assert len(logs) > len(writers) * PARTITIONS  # some have been rolled
    said = kafka_dump(broker.data, logs, "--deep-iteration")
    said += kafka_dump(broker.data, [p for p in files if p.suffix in (".index", ".timeindex")], "--verify-index-only")
    said += kafka_dump(broker.data, [path for path in files if path.suffix == ".snapshot"])
    assert complaints(said) == ""
