"""Exactly once: jobs copy records in transactions while they and their broker are repeatedly killed by SIGKILL.

`KAFKAPY_FAULT_ROUNDS=100 python -m pytest tests/faults/test_transactional_copy.py -s` runs the full length, with 100
kills of the broker. In two of three rounds the broker dies at a random write between the preparation of a transaction
and its completion (dying_broker.py), otherwise at a random moment. In one of three rounds a job is killed, too, and a
job may die by itself when its offsets are in a transaction that is not ended. The seed is printed, and
KAFKAPY_FAULT_SEED repeats the choices of a run.
"""

import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.faults.rounds import rounds
from tests.faults.traffic import PATIENCE
from tests.harness.brokers import KafkapyBroker, StartFailed
from tests.harness.clients.confluent import Confluent
from tests.harness.toolchain import go_program

HERE = Path(__file__).parent
ROUNDS = rounds(4)
SOURCE, SINK, GROUP = "source", "sink", "copiers"
SOURCE_PARTITIONS, SINK_PARTITIONS = 3, 5
JOBS = 2
MOST_COMMITS = 150  # commits between two kills
AHEAD = 3_000  # records that wait to be copied
SETTINGS = {
    "log.segment.bytes": "131072",
    "log.index.interval.bytes": "1024",
    "log.initial.task.delay.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


# The copy job is written in Go.
pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(max(300, 15 * ROUNDS))]


class Job:
    """A copy job that is restarted whenever it ends."""

    def __init__(self, bootstrap: str, name: str, seed: int) -> None:
        self.committed = 0  # transactions, and records in them
        self.records = 0
        self.aborted = 0
        self.starts = 0
        self.last_words: list[str] = []
        self._arguments = [bootstrap, SOURCE, SINK, str(SINK_PARTITIONS), GROUP, name]
        self._rng = random.Random(seed)
        self._ended = False
        self._child = self._start()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _start(self) -> Popen[str]:
        self.starts += 1
        command = [str(go_program(HERE / "copyjob")), *self._arguments, str(self._rng.randrange(1 << 32))]
        return Popen(command, stdin=DEVNULL, stdout=PIPE, text=True)

    def _watch(self) -> None:
        while True:
            assert self._child.stdout is not None
            for line in self._child.stdout:
                word, _, rest = line.partition(" ")
                if word == "committed":
                    self.committed += 1
                    self.records += int(rest)
                elif word == "aborted":
                    self.aborted += 1
                else:
                    self.last_words.append(line.strip())
            self._child.wait()
            if self._ended:
                return
            time.sleep(0.1)  # without a broker, the job ends at once
            self._child = self._start()

    def kill(self) -> None:
        self._child.kill()

    def end(self) -> None:
        self._ended = True
        self._child.kill()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


class Source(threading.Thread):
    """Writes numbered records, enough for the jobs to have records to copy at any time."""

    def __init__(self, bootstrap: str, jobs: list[Job]) -> None:
        super().__init__(daemon=True)
        self.failed: list[str] = []
        self._jobs = jobs
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            if number >= sum(job.records for job in self._jobs) + AHEAD:
                self._producer.poll(0.01)
                continue
            value = b"%d %s" % (number, b"x" * (number % 150))
            self._producer.produce(SOURCE, value, partition=number % SOURCE_PARTITIONS, on_delivery=self._note)
            number += 1
        if self._producer.flush(PATIENCE):
            self.failed.append("not all was answered")

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error.str())

    def end(self) -> None:
        self._ended.set()
        self.join(PATIENCE + 10)
        assert not self.is_alive()
        assert not self.failed


@dataclass
class Copied:
    broker: KafkapyBroker
    jobs: list[Job]
    kills: Counter[str]
    original: dict[str, bytes]
    """partition:offset -> value"""
    copies: list[tuple[str, bytes]]
    every_copy: list[tuple[str, bytes]]
    """Those of aborted transactions too."""


def _start(directory: Path, port: int, rng: random.Random, *, dying: bool) -> KafkapyBroker:
    """Start the broker. With `dying`, it may kill itself before it is ready, as it completes transactions at once."""
    prefix = [sys.executable, str(HERE / "dying_broker.py"), str(rng.randrange(1 << 32))] if dying else []
    while True:
        try:
            return KafkapyBroker(directory, SETTINGS, port=port, prefix=prefix)
        except StartFailed as failure:
            if not dying or failure.code != -9:
                raise


def _wait(what: str, until: Callable[[], bool], jobs: list[Job]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        words = [job.last_words[-1:] for job in jobs]
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE:.0f} s; the jobs said {words}"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    seed = int(os.environ.get("KAFKAPY_FAULT_SEED", random.randrange(1 << 32)))
    print(f"\ntransactional copy: seed {seed}")
    rng = random.Random(seed)
    directory = tmp_path_factory.mktemp("copy")
    broker = KafkapyBroker(directory, SETTINGS)
    port = broker.port
    admin = Confluent(broker.bootstrap)
    admin.create_topic(SOURCE, SOURCE_PARTITIONS)
    admin.create_topic(SINK, SINK_PARTITIONS)
    jobs = [Job(broker.bootstrap, f"copier-{n}", rng.randrange(1 << 32)) for n in range(JOBS)]
    source = Source(broker.bootstrap, jobs)
    kills: Counter[str] = Counter()
    began = time.monotonic()
    try:
        source.start()
        _wait("first commits", lambda: sum(job.committed for job in jobs) > 3, jobs)
        broker.kill()
        for number in range(ROUNDS):
            dying = number == 0 or rng.random() < 0.67  # even few rounds have a kill inside a completion
            broker = _start(directory, port, rng, dying=dying)
            kills.update(_live_and_die(broker, jobs, rng, dying))
        broker = _start(directory, port, rng, dying=False)
        source.end()
        all_of_it = _end_offsets(broker, [(SOURCE, p) for p in range(SOURCE_PARTITIONS)], "read_committed")
        _wait("end", lambda: _committed(broker.bootstrap) == all_of_it, jobs)
        for job in jobs:
            job.end()
        original = dict(_read(broker.bootstrap, SOURCE, SOURCE_PARTITIONS, "read_committed"))
        copies = _read(broker.bootstrap, SINK, SINK_PARTITIONS, "read_committed", by_key=True)
        every = _read(broker.bootstrap, SINK, SINK_PARTITIONS, "read_uncommitted", by_key=True)
        print(
            f"transactional copy: {dict(kills)} kills in {time.monotonic() - began:.0f} s; {len(original)} records, "
            f"{len(copies)} copies in {_count(jobs)} transactions, {len(every) - len(copies)} more that were aborted; "
            f"jobs aborted {sum(job.aborted for job in jobs)} and were started {sum(job.starts for job in jobs)} times"
        )
        survived = Copied(broker, jobs, kills, original, copies, every)
        yield survived
        broker = survived.broker
    finally:
        for job in jobs:
            job.end()
        if broker.process.child.poll() is None:
            broker.kill()


def _live_and_die(broker: KafkapyBroker, jobs: list[Job], rng: random.Random, dying: bool) -> Iterator[str]:
    """Run the broker until it is killed. Yield the kinds of the kills."""
    child = broker.process.child
    if rng.random() < 0.33:
        goal = _count(jobs) + rng.randint(0, 30)
        _wait("progress", lambda: _count(jobs) >= goal or child.poll() is not None, jobs)
        rng.choice(jobs).kill()
        yield "of a job"
    end = _count(jobs) + rng.choice((0, rng.randint(1, 20), rng.randint(1, MOST_COMMITS)))
    _wait("death", lambda: child.poll() is not None or (not dying and _count(jobs) >= end), jobs)
    yield "inside a completion" if child.poll() is not None else "at any moment"
    broker.kill()


def _count(jobs: list[Job]) -> int:
    return sum(job.committed for job in jobs)


def _consumer(bootstrap: str, isolation: str, group: str = "readers") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )


def _committed(bootstrap: str) -> dict[tuple[str, int], int]:
    """Return the group's committed offsets, {} while an open transaction has pending offsets."""
    consumer = _consumer(bootstrap, "read_committed", GROUP)
    try:
        found = consumer.committed([TopicPartition(SOURCE, p) for p in range(SOURCE_PARTITIONS)], 5)
        return {(one.topic, one.partition): one.offset for one in found}
    except KafkaException:
        return {}
    finally:
        consumer.close()


def _read(
    bootstrap: str, topic: str, partitions: int, isolation: str, *, by_key: bool = False
) -> list[tuple[str, bytes]]:
    """Return (key or partition:offset, value) of all records that this isolation level can read."""
    consumer = _consumer(bootstrap, isolation)
    found: list[tuple[str, bytes]] = []
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        open_partitions = set(range(partitions))
        deadline = time.monotonic() + PATIENCE
        while open_partitions:
            assert time.monotonic() < deadline, f"{topic} was not read in {PATIENCE:.0f} s"
            for one in consumer.consume(1000, 0.02):  # waits 0.02 s unless 1000 records arrive before
                if one.error() is not None:
                    open_partitions.discard(one.partition())
                    continue
                own = f"{one.partition()}:{one.offset()}"
                found.append(((one.key() or b"").decode() if by_key else own, one.value() or b""))
    finally:
        consumer.close()
    return found


def test_each_record_is_copied_exactly_once(copied: Copied) -> None:
    times = Counter(key for key, _ in copied.copies)
    missing = sorted(copied.original.keys() - times.keys())
    twice = sorted(key for key, count in times.items() if count > 1)
    assert not missing, f"{len(missing)} of {len(copied.original)} records have no copy, such as {missing[:5]}"
    assert not twice, f"{len(twice)} records have several copies, such as {twice[:5]}"
    assert dict(copied.copies) == copied.original


def test_kills_and_aborts_happened_during_the_copy(copied: Copied) -> None:
    assert sum(copied.kills[kind] for kind in ("inside a completion", "at any moment")) == ROUNDS
    assert copied.kills["inside a completion"] >= ROUNDS // 4
    assert len(copied.every_copy) > len(copied.copies) > 100


def test_no_transaction_hangs(copied: Copied) -> None:
    """The last stable offset is the end of each partition, even after another crash."""
    broker = copied.broker
    before = _ends(broker)
    assert before["read_committed"] == before["read_uncommitted"]
    broker.kill()
    copied.broker = KafkapyBroker(broker.data.parent, SETTINGS, port=broker.port)
    assert _ends(copied.broker) == before
    again = _read(copied.broker.bootstrap, SINK, SINK_PARTITIONS, "read_committed", by_key=True)
    assert sorted(again) == sorted(copied.copies)
    copied.broker.stop()


def _ends(broker: KafkapyBroker) -> dict[str, dict[tuple[str, int], int]]:
    """Return the end offsets that can be read, by isolation level, topic and partition."""
    partitions = [(SINK, index) for index in range(SINK_PARTITIONS)] + [("__consumer_offsets", n) for n in range(3)]
    return {one: _end_offsets(broker, partitions, one) for one in ("read_committed", "read_uncommitted")}


def _end_offsets(
    broker: KafkapyBroker, partitions: list[tuple[str, int]], isolation: str
) -> dict[tuple[str, int], int]:
    ends: dict[tuple[str, int], int] = {}
    deadline = time.monotonic() + PATIENCE
    while len(ends) < len(partitions):
        assert time.monotonic() < deadline
        consumer = _consumer(broker.bootstrap, isolation)
        try:
            for one in partitions[len(ends) :]:
                ends[one] = consumer.get_watermark_offsets(TopicPartition(*one), 20)[1]
        except KafkaException:  # the log was being loaded, which this consumer remembers
            time.sleep(0.05)
        finally:
            consumer.close()
    return ends
