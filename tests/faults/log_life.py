"""A random life of a few logs: appends, rolls, flushes, checkpoints, deletions, truncations, restarts.

It runs on a disk that records every change (harness.power_cut), and updates a model of the logs (log_model).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kafkapy._ext.batch import check
from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.log.partition_log import AppendResult, PartitionLog
from kafkapy.log.storage.files import Files
from kafkapy.record.batch import build, records_of
from kafkapy.record.control import control_record_of, marker_batch
from kafkapy.runtime.clock import ManualClock
from tests.faults.log_model import Topic
from tests.harness.batches import iter_batches
from tests.harness.markers import encode_marker
from tests.harness.power_cut import Platter, RecordingFiles
from tests.log.support import ManualScheduler

BEGIN_MS = 1_700_000_000_000
PRODUCERS = (11, 12)
TRANSACTIONAL = (21, 22)
CODECS = (0, 0, 0, 1, 3)
NEVER = (1 << 63) - 1

Action = Callable[[Topic, PartitionLog], str]


class Stored(NamedTuple):
    """A batch of a log; its records are (offset, value, timestamp)."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    marker: int | None  # COMMIT or ABORT
    records: list[tuple[int, bytes, int]]


class Life:
    """A random life: `act` does a random action, and `description` lists the actions with the moments of begin and end.

    If `is_later` is True, the life began with a recovery, which ended at the moment `began`.
    """

    is_later = False

    def __init__(self, directory: Path, rng: random.Random, files: RecordingFiles | None = None) -> None:
        self._begin(directory, rng, [Topic(f"t{number}", _config(rng)) for number in range(3)], files)
        for topic in self.topics:
            topic.found(None, {}, 0, 0)

    def _begin(self, directory: Path, rng: random.Random, topics: list[Topic], files: RecordingFiles | None) -> None:
        self.directory = directory
        self.rng = rng
        self.topics = topics
        self.files = files or RecordingFiles(directory)
        self.history: list[str] = []
        self._clock = ManualClock(BEGIN_MS)
        self._number = 0
        self._open()
        self.began = self.moment

    @classmethod
    def after(cls, before: Life, moment: int, directory: Path, killed: Platter | None) -> Life:
        """Return a life that begins with the recovery of the files that a cut left in `directory`.

        `killed` is the disk if only the process died, None after a power cut.
        """
        life = cls.__new__(cls)
        topics = [topic.after(moment) for topic in before.topics]
        life.is_later = True
        life._begin(directory, before.rng, topics, type(before.files)(directory, killed))
        life._number = before._number
        life._clock.advance((before._clock.time_ms() - BEGIN_MS) / 1000)
        for topic in topics:
            life._find(topic, killed=killed is not None)
        return life

    def _open(self) -> None:
        self._scheduler = ManualScheduler()
        self.manager = open_manager(self.directory, self.files, self._clock, self._scheduler, self.topics)

    def _find(self, topic: Topic, *, killed: bool) -> None:
        log = self.manager.get(topic.name, 0)
        if log is None:
            topic.found(None, {}, 0, 0)
            return
        records = {offset: value for batch in stored(log) for offset, value, _ in batch.records}
        if killed:
            topic.found_after_kill(log.topic_id, records, log.log_end_offset)
        else:
            topic.found(log.topic_id, records, log.log_start_offset, log.log_end_offset)
        topic.sequences = {one.producer_id: one.last_sequence + 1 for one in log.active_producers()}
        if log.topic_id is None:  # the topic was being created or deleted at the cut
            log.assign_topic_id(self.rng.randbytes(16))
            topic.topic_id = log.topic_id
        log.set_high_watermark(log.log_end_offset)
        topic.epoch = max(topic.epoch, log.leader_epochs.latest_epoch) + 1
        log.assign_leader_epoch(topic.epoch)
        topic.claim(self.moment, self.moment, log.log_start_offset, log.recovery_point, log.log_end_offset)

    def end(self) -> None:
        """Close all descriptors, as the end of the process does."""
        self.manager.dirs.unlock()

    @property
    def moment(self) -> int:
        return len(self.files.journal)

    def act(self) -> None:
        """Do a random action, and update the model with the records that it added and removed."""
        topic = self.rng.choice(self.topics)
        log = self.manager.get(topic.name, 0)
        began = self.moment
        if log is None:
            description = self._make(topic)
        else:
            actions: dict[Action, int] = {
                self._append: 30,
                self._end_transaction: 8,
                self._flush: 5,
                self._roll: 3,
                self._background: 5,
                self._checkpoint: 4,
                self._delete_records: 3,
                self._retention: 2,
                self._truncate: 3,
                self._new_epoch: 2,
                self._delete_topic: 1,
                self._restart: 1,
            }
            (chosen,) = self.rng.choices(list(actions), list(actions.values()))
            description = chosen(topic, log)
        self.history.append(f"{began} to {self.moment}: {topic.name}: {description}")
        for each in self.topics:
            found = self.manager.get(each.name, 0)
            if found is not None:
                each.claim(began, self.moment, found.log_start_offset, found.recovery_point, found.log_end_offset)
            elif each.claims[-1].topic_id is not None:
                each.gone(began, self.moment)

    # --- actions: each returns its description

    def _make(self, topic: Topic) -> str:
        topic.topic_id = self.rng.randbytes(16)
        topic.records, topic.sequences, topic.epoch = {}, {}, 0
        log = self.manager.create(topic.name, 0, topic.topic_id, topic.config, is_new=True)
        log.assign_leader_epoch(0)
        return "is made"

    def _append(self, topic: Topic, log: PartitionLog) -> str:
        began = self.moment
        values = [
            [self._value() for _ in range(self.rng.choice((1, 1, 3)))] for _ in range(self.rng.choice((1, 1, 2, 5)))
        ]
        verdicts = log.append([self._batch(topic, each) for each in values], topic.epoch)
        assert isinstance(verdicts, list)
        first = verdicts[0]
        assert isinstance(first, AppendResult), first
        assert all(isinstance(each, AppendResult) for each in verdicts), verdicts
        topic.append(first.base_offset, [value for each in values for value in each], began)
        log.set_high_watermark(log.log_end_offset)
        return f"append {first.base_offset} to {log.log_end_offset - 1}"

    def _value(self) -> bytes:
        self._number += 1
        return b"%d " % self._number + self.rng.randbytes(self.rng.choice((0, 20, 300)))

    def _batch(self, topic: Topic, values: list[bytes]) -> memoryview:
        records: list[tuple[int, None, bytes, list[tuple[str, bytes]]]] = []
        for value in values:
            self._clock.advance(0.001)
            records.append((self._clock.time_ms(), None, value, []))
        producer = self.rng.choice((*PRODUCERS, *TRANSACTIONAL, -1))
        if producer < 0:
            return produced(records, codec=self.rng.choice(CODECS))
        # The log may have lost the producer's records and state, so continue with a sequence that was never used.
        sequence = topic.sequences.get(producer, self._number)
        topic.sequences[producer] = sequence + len(values)
        return produced(
            records,
            codec=self.rng.choice(CODECS),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=producer in TRANSACTIONAL,
        )

    def _end_transaction(self, topic: Topic, log: PartitionLog) -> str:
        is_open = [one.producer_id for one in log.active_producers() if one.current_txn_start_offset >= 0]
        if not is_open:
            return "no transaction to end"
        began, producer, commit = self.moment, self.rng.choice(is_open), self.rng.random() < 0.4
        self._number += 1  # used as the coordinator epoch, so that all markers differ
        self._clock.advance(0.001)
        marker = marker_batch(
            producer, 0, commit=commit, coordinator_epoch=self._number, timestamp=self._clock.time_ms()
        )
        (verdict,) = log.append([OwnBatch(marker)], topic.epoch) or ()
        assert isinstance(verdict, AppendResult), verdict
        topic.append(verdict.base_offset, [encode_marker(self._number)], began)
        log.set_high_watermark(log.log_end_offset)
        return f"{'commit' if commit else 'abort'} of producer {producer} at {verdict.base_offset}"

    def _flush(self, topic: Topic, log: PartitionLog) -> str:
        log.flush()
        assert log.recovery_point == log.log_end_offset
        return f"flush up to {log.recovery_point}"

    def _roll(self, topic: Topic, log: PartitionLog) -> str:
        log.roll()
        return f"roll at {log.log_end_offset}"

    def _background(self, topic: Topic, log: PartitionLog) -> str:
        self._scheduler.run_all()
        return "what waits in the background"

    def _checkpoint(self, topic: Topic, log: PartitionLog) -> str:
        self.manager.checkpoint()
        return "checkpoints"

    def _delete_records(self, topic: Topic, log: PartitionLog) -> str:
        offset = self.rng.randint(log.log_start_offset, log.high_watermark)
        log.delete_records(offset)
        log.delete_old_segments()
        return f"delete records before {offset}"

    def _retention(self, topic: Topic, log: PartitionLog) -> str:
        log.delete_old_segments()
        return f"retention, which leaves {log.log_start_offset} on"

    def _truncate(self, topic: Topic, log: PartitionLog) -> str:
        """Truncate like a follower whose leader has other records."""
        last = [batch.base_offset for batch in stored(log)[-4:] if batch.base_offset >= log.log_start_offset]
        if not last:
            return "nothing to truncate"
        self.manager.truncate_to(log, self.rng.choice(last))
        topic.truncate(log.log_end_offset)
        topic.sequences |= {one.producer_id: one.last_sequence + 1 for one in log.active_producers()}
        return f"truncate to {log.log_end_offset}"

    def _new_epoch(self, topic: Topic, log: PartitionLog) -> str:
        topic.epoch += self.rng.choice((1, 2))
        log.assign_leader_epoch(topic.epoch)
        return f"leader epoch {topic.epoch} from {log.log_end_offset} on"

    def _delete_topic(self, topic: Topic, log: PartitionLog) -> str:
        self.manager.delete(topic.name, 0)
        topic.delete()
        return "is deleted"

    def _restart(self, topic: Topic, log: PartitionLog) -> str:
        self.manager.close()
        self._open()
        for log in self.manager:
            log.set_high_watermark(log.log_end_offset)
        return "clean stop and start"


def _config(rng: random.Random) -> LogConfig:
    return LogConfig(
        {
            "segment.bytes": rng.choice((1200, 2000, 4000)),
            "index.interval.bytes": rng.choice((0, 200, 1000)),
            "segment.index.bytes": rng.choice((240, 2400)),
            "flush.messages": rng.choice((1, 5, NEVER, NEVER)),
            "retention.bytes": rng.choice((-1, 5000)),
            "retention.ms": -1,
            "preallocate": rng.random() < 0.2,
        }
    )


def open_manager(
    directory: Path, files: Files, clock: ManualClock, scheduler: ManualScheduler, topics: list[Topic]
) -> LogManager:
    """Return the log manager of a directory, with all logs loaded."""
    defaults = LogConfig()
    configs = {topic.name: topic.config for topic in topics}
    manager = LogManager([directory / "data"], defaults, clock=clock, scheduler=scheduler, files=files)
    manager.load(lambda topic: configs.get(topic, defaults))
    return manager


def produced(records: list[tuple[int, None, bytes, list[tuple[str, bytes]]]], **options: int) -> memoryview:
    """Return a batch like one from the network."""
    return memoryview(bytearray(build(records, **options)))


def stored(log: PartitionLog, start: int | None = None) -> list[Stored]:
    """Return the log's batches from its start (or `start`) on, read like a consumer does. Check each batch's CRC."""
    batches = []
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset:
        region = log.read(offset, 1 << 20, min_one=True, max_offset=log.log_end_offset).region
        if region is None:
            break
        data = region.read()
        for header in iter_batches(data):
            check(data, header.position)
            marker = control_record_of(data, header) if header.is_control else None
            records = [(one.offset, one.value, one.timestamp) for one in records_of(data, header)]
            batches.append(
                Stored(
                    header.base_offset,
                    header.leader_epoch,
                    header.producer_id,
                    header.base_sequence,
                    header.last_sequence,
                    header.is_transactional,
                    marker.type if marker is not None else None,
                    [one for one in records if one[0] >= offset],
                )
            )
            offset = header.last_offset + 1
    return batches
