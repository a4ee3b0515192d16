"""Producers that copy records in transactions, inside of a broker's process, and a check of each transaction."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kafkapy.coordinator.internal_topic_config import GROUPS, TRANSACTIONS
from kafkapy.coordinator.offsets.commits import Commit
from kafkapy.coordinator.shard import Producer
from kafkapy.errors import KafkaError
from kafkapy.log.storage.files import Files
from kafkapy.metadata.local.tree import FILE_NAME
from kafkapy.record.batch import BatchBuilder, records_of
from kafkapy.record.control import COMMIT, control_record_of
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from tests.harness.appends import append_to
from tests.harness.batches import iter_batches
from tests.harness.power_cut import Change, Platter, RecordingFiles

OUT, SOURCE, GROUP = "out", "source", "copiers"
PARTITIONS = 3
PATIENCE_S = 30

TopicPartition = tuple[str, int]


class Transaction(NamedTuple):
    """Transaction `number` of a worker: a record in each of `partitions`, and the number as the committed offset."""

    worker: int
    number: int
    partitions: frozenset[TopicPartition]
    commits: bool

    @property
    def value(self) -> bytes:
        return b"%d.%d" % (self.worker, self.number)


def start(directory: Path, files: Files | None = None) -> BrokerServer:
    """Start a broker that acknowledges only flushed records, with small segments, so that logs roll."""
    settings = {
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.flush.interval.messages": "1",
        "log.segment.bytes": "20000",
        "offsets.topic.num.partitions": "2",
        "offsets.topic.segment.bytes": "10000",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.segment.bytes": "10000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    server = BrokerServer(BrokerConfig(settings), files=files)
    server.start()
    server.wait_until_loaded()
    return server


def answer_of(ask: Callable[[Callable[..., None]], object]) -> Any:
    """Return the argument that `ask` passes to its callback, the last one if there are several."""
    answers: list[Any] = []
    answered = threading.Event()

    def answer(*what: Any) -> None:
        answers.append(what[-1])
        answered.set()

    ask(answer)
    assert answered.wait(PATIENCE_S)
    return answers[0]


class TransactionalLife:
    """A random life. `begun` has all transactions. `ended` has those whose end was acknowledged, each with the number
    of changes of the disk by then."""

    def __init__(self, directory: Path, seed: int) -> None:
        directory.mkdir()
        self.directory = directory
        self.files = RecordingFiles(directory)
        self.begun: list[Transaction] = []
        self.ended: list[tuple[Transaction, int]] = []
        self._rng = random.Random(seed)
        self._server = start(directory, self.files)
        self._services = self._server.services
        for topic in (GROUPS, TRANSACTIONS):
            assert answer_of(partial(self._services.coordinators.topics.ensure, topic)) is None
        for topic in (OUT, SOURCE):
            self._services.controller.create(topic, partitions=PARTITIONS, replication=1, overrides={})
        self.first_moment = len(self.files.journal)

    def live(self, workers: int, transactions: int) -> None:
        """Run `workers` threads at the same time, each with `transactions` transactions."""
        threads = [
            threading.Thread(target=self._work, args=(worker, transactions, random.Random(self._rng.random())))
            for worker in range(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.last_moment = len(self.files.journal)
        self._server.stop()

    def _work(self, worker: int, transactions: int, rng: random.Random) -> None:
        coordinator, name = self._services.transactions, f"copier-{worker}"
        producer = answer_of(lambda done: coordinator.init_producer_id(name, 1000, -1, -1, done))
        offsets = (GROUPS, self._services.coordinators.group_shards.partition_for(GROUP))
        sequences: Counter[TopicPartition] = Counter()
        for number in range(1, transactions + 1):
            chosen = rng.sample([(OUT, index) for index in range(PARTITIONS)], rng.randint(1, PARTITIONS))
            one = Transaction(worker, number, frozenset(chosen), rng.random() < 0.7)
            self.begun.append(one)
            self._until_done(partial(coordinator.add_partitions, name, *producer, [*chosen, offsets]))
            for at in chosen:
                self._produce(name, producer, at, sequences[at], one.value)
                sequences[at] += 1
            self._commit_offset(name, producer, offsets, one)
            self._until_done(partial(coordinator.end, name, *producer, one.commits))
            self.ended.append((one, len(self.files.journal)))

    def _until_done(self, ask: Callable[[Callable[..., None]], object]) -> None:
        """Repeat the request while it fails, since the previous transaction may still be completing."""
        deadline = time.monotonic() + PATIENCE_S
        while answer_of(ask):
            assert time.monotonic() < deadline

    def _verify(self, name: str, producer: Producer, at: TopicPartition, sequence: int) -> None:
        assert not answer_of(
            lambda done: self._services.verifier.verify(name, *producer, [(*at, sequence)], done, abortable=True)
        )

    def _produce(self, name: str, producer: Producer, at: TopicPartition, sequence: int, value: bytes) -> None:
        self._verify(name, producer, at, sequence)
        builder = BatchBuilder()
        builder.append(0, None, value)
        batch = bytearray(
            builder.build(
                producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=sequence, transactional=True
            )
        )
        (verdict,) = append_to(self._services.replicas.get(*at), [memoryview(batch)])
        assert not isinstance(verdict, KafkaError), verdict

    def _commit_offset(self, name: str, producer: Producer, at: TopicPartition, one: Transaction) -> None:
        self._verify(name, producer, at, -1)
        offsets = [(SOURCE, [(one.worker, one.number, -1, "", -1)])]
        commit = Commit(GROUP, "", None, -1, offsets, producer)
        assert answer_of(lambda done: self._services.offsets.commit(commit, done)) == [0]

    # --- after a kill or a power cut

    def recover(self, directory: Path, killed: Platter) -> Sequence[Change]:
        """Start a broker on the files that a killed broker left in `directory`. Wait until no transaction is open.

        Return all changes of the disk until then, from the beginning of the first life.
        """
        files = RecordingFiles(directory, killed)
        self._add_tree(directory)
        server = start(directory, files)
        try:
            _wait_until_nothing_is_open(server)
            end = len(files.journal)
        finally:
            server.stop()
        return files.journal[:end]

    def _add_tree(self, directory: Path) -> None:
        """Copy the metadata database, which survives a power cut because it syncs every change."""
        shutil.copy(self.directory / FILE_NAME, directory / FILE_NAME)

    def check(self, directory: Path, moment: int) -> int:
        """Check the files as they were after `moment` changes. Return the number of transactions committed by then."""
        self._add_tree(directory)
        server = start(directory)
        try:
            _wait_until_nothing_is_open(server)
            standings = _standings(server)
            offsets = {
                partition: committed.offset
                for _, partition, (_, committed) in server.services.offsets.fetch_all(GROUP, require_stable=False)
            }
        finally:
            server.stop()
        acknowledged = {one for one, known_at in self.ended if known_at <= moment}
        last: Counter[int] = Counter()
        for one in self.begun:
            found = standings.get(one.value, {})
            is_committed = True in found.values()
            assert set(found.values()) <= {is_committed}, f"{one} is committed in part: {found}"
            if is_committed:
                assert found.keys() == one.partitions, f"of {one} only {found} is there"
                last[one.worker] = max(last[one.worker], one.number)
            if one in acknowledged:
                assert is_committed == one.commits, f"{one} was acknowledged and is not so"
        assert offsets == dict(last), "offsets are not those of the last transactions"
        return sum(one.commits for one in acknowledged)


def _wait_until_nothing_is_open(server: BrokerServer) -> None:
    deadline = time.monotonic() + PATIENCE_S
    shards = server.services.coordinators
    while not all(
        (
            not shards.transaction_shards.is_loading,
            not shards.group_shards.is_loading,
            not any(partition.log.producers.open for partition in server.services.replicas),
            # A marker ends a transaction in the log when it is written, for readers only when it is flushed.
            all(partition.end_offset(1) == partition.log.log_end_offset for partition in server.services.replicas),
            not any(shard.machine.offsets.table.staged() for shard in shards.group_shards.active()),
        )
    ):
        assert time.monotonic() < deadline, "a transaction hangs"
        time.sleep(0.01)


def _standings(server: BrokerServer) -> dict[bytes, dict[TopicPartition, bool]]:
    """Return the partitions in which each value is, with True where it is committed."""
    found: dict[bytes, dict[TopicPartition, bool]] = defaultdict(dict)
    for index in range(PARTITIONS):
        partition = server.services.replicas.get(OUT, index)
        assert partition.end_offset(1) == partition.log.log_end_offset
        open_by_producer: dict[int, Sequence[bytes]] = defaultdict(list)
        offset = partition.log.log_start_offset
        while offset < partition.log.log_end_offset:
            read: Any = partition.read(offset, 1 << 20, 0, min_one=True, blocking=True)
            block = memoryview(read.region.read())
            for header in iter_batches(block):
                if header.is_control:
                    marker = control_record_of(block, header)
                    assert marker is not None
                    for value in open_by_producer.pop(header.producer_id, ()):
                        assert (OUT, index) not in found[value], f"{value!r} is there twice"
                        found[value][OUT, index] = marker.type == COMMIT
                else:
                    values = [bytes(record.value or b"") for record in records_of(block, header)]
                    open_by_producer[header.producer_id] = [*open_by_producer[header.producer_id], *values]
                offset = header.last_offset + 1
    return found
