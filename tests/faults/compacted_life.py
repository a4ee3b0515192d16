"""A random life of one compacted log that is cleaned repeatedly, on a disk whose power may be cut.

The model has all records that were ever appended, and for each key the last flushed record. After a cut, that record
or a later one of its key must be there. A tombstone may be missing, but only together with the records that it deletes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from kafkapy.log.cleaner.candidates import candidate
from kafkapy.log.cleaner.cleaning import clean
from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.log.partition_log import AppendResult, PartitionLog
from kafkapy.log.storage.files import Files
from kafkapy.record.batch import build, records_of
from kafkapy.record.legacy import check, iter_entries
from kafkapy.runtime.clock import ManualClock
from tests.faults.log_checks import expect
from tests.harness.power_cut import Platter, RecordingFiles, UnsyncedFiles
from tests.log.support import ManualScheduler

BEGIN_MS = 1_700_000_000_000
KEYS = [b"k%d" % number for number in range(8)]
TOPIC, TOPIC_ID = "compacted", bytes(range(16))


class Event(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


class Flushed(NamedTuple):
    """The last flushed record of each key, from the moment `since` on."""

    since: int
    last: dict[bytes, Event]


class CompactedLife:
    """A random life. If `is_later` is True, it began with a recovery, which ended at the moment `began`."""

    is_later = False

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.rng = rng
        self.files = RecordingFiles(directory)
        self.history: list[str] = []
        self.events: dict[int, tuple[Event, int]] = {}  # by offset, with the moment from which they may be found
        self.flushed = [Flushed(0, {})]
        self.config = LogConfig(
            {
                "cleanup.policy": ["compact"],
                "segment.bytes": rng.choice((700, 1500)),
                "index.interval.bytes": 200,
                "segment.index.bytes": 2400,
                "delete.retention.ms": rng.choice((0, 1000)),
                "flush.messages": rng.choice((1, 4, 1 << 62)),
            }
        )
        self._clock = ManualClock(BEGIN_MS)
        self._number = 0
        self._killed = False
        self._open(directory)

    @classmethod
    def after(cls, before: CompactedLife, moment: int, directory: Path, killed: Platter) -> CompactedLife:
        """Return a life that begins with the recovery of the files that a killed process left in `directory`."""
        life = cls.__new__(cls)
        life.is_later = True
        life.rng, life.config, life.history = before.rng, before.config, []
        life.files = RecordingFiles(directory, killed)
        life.events = {at: (event, since) for at, (event, since) in before.events.items() if since <= moment}
        life.flushed = [one for one in before.flushed if one.since <= moment]
        life._clock, life._number, life._killed = before._clock, before._number, True
        life._open(directory)
        return life

    def _open(self, directory: Path) -> None:
        self._scheduler = ManualScheduler()
        self._manager = open_manager(directory, self.files, self._clock, self._scheduler, self.config)
        self.began = self.moment
        self.log = self._manager.create(TOPIC, 0, TOPIC_ID, self.config, is_new=True)
        self.log.set_high_watermark(self.log.log_end_offset)
        self.log.assign_leader_epoch(self.log.leader_epochs.latest_epoch + 1)

    @property
    def moment(self) -> int:
        return len(self.files.journal)

    def end(self) -> None:
        self._manager.dirs.unlock()

    def act(self) -> None:
        actions = {
            self._append: 12,
            self._clean: 4,
            self._flush: 2,
            self._roll: 2,
            self._background: 2,
            self._checkpoint: 2,
        }
        (chosen,) = self.rng.choices(list(actions), list(actions.values()))
        began = self.moment
        chosen()
        self.history.append(f"{began} to {self.moment}: {chosen.__name__}, then {self.log}")
        last = dict(self.flushed[-1].last)
        for event, _ in self.events.values():
            if event.offset < self.log.recovery_point and event.offset > last.get(event.key, event).offset - 1:
                last[event.key] = event
        self.flushed.append(Flushed(self.moment, last))

    def _append(self) -> None:
        began = self.moment
        rows = []
        for _ in range(self.rng.choice((1, 3, 6))):
            self._number += 1
            self._clock.advance(0.1)
            value = (
                None
                if self.rng.random() < 0.2
                else b"%d " % self._number + self.rng.randbytes(self.rng.choice((0, 80)))
            )
            rows.append((self._clock.time_ms(), self.rng.choice(KEYS), value, []))
        data = memoryview(bytearray(build(rows, codec=self.rng.choice((0, 0, 3)))))
        verdicts = self.log.append([data], self.log.leader_epochs.latest_epoch)
        assert isinstance(verdicts, list)
        assert isinstance(verdicts[0], AppendResult), verdicts[0]
        for offset, (_, key, value, _) in enumerate(rows, verdicts[0].base_offset):
            self.events[offset] = (Event(offset, key, value), began)
        self.log.set_high_watermark(self.log.log_end_offset)

    def _clean(self) -> None:
        offsets = self.log.env.cleaner_offsets
        key = (TOPIC, 0)
        assert self.log.upkeep.try_begin()
        try:
            chosen = candidate(self.log, offsets.get(key), self._clock.time_ms())
            if chosen.cleanable_bytes:
                end, _ = clean(chosen, CleanerSettings(), lambda size: None)
                offsets.put(key, end)
        finally:
            self.log.upkeep.end()

    def _flush(self) -> None:
        self.log.flush()

    def _roll(self) -> None:
        self.log.roll()

    def _background(self) -> None:
        self._scheduler.run_all()

    def _checkpoint(self) -> None:
        self._manager.checkpoint()

    # --- after a cut

    def check(self, directory: Path, moment: int) -> int:
        """Open the files that a cut left, and check them. Return the number of records. Raise Violation."""
        scheduler = ManualScheduler()
        manager = open_manager(directory, UnsyncedFiles(), ManualClock(BEGIN_MS + 60_000), scheduler, self.config)
        try:
            for path, failure in manager.directories():
                expect(failure is None, f"{path} is offline: {failure}")
            log = manager.get(TOPIC, 0)
            flushed = next(one.last for one in reversed(self.flushed) if one.since <= moment)
            found = _stored(log) if log is not None else []
            self._compare(found, flushed, moment)
            scheduler.run_all()
        finally:
            manager.close()
        return len(found)

    def _compare(self, found: list[Event], flushed: dict[bytes, Event], moment: int) -> None:
        offsets = [event.offset for event in found]
        expect(offsets == sorted(set(offsets)), f"offsets are not in order: {offsets}")
        for event in found:
            known, since = self.events.get(event.offset, (None, moment + 1))
            expect(event == known and since <= moment, f"{event} was never appended")
        by_key: dict[bytes, list[Event]] = {}
        for event in found:
            by_key.setdefault(event.key, []).append(event)
        for key, last in flushed.items():
            mine = by_key.get(key, [])
            latest = mine[-1].offset if mine else -1
            if last.value is None:
                expect(not mine or latest >= last.offset, f"{key!r} was deleted at {last.offset} and is back: {mine}")
            else:
                # After a kill during a cleaning, the model does not know how far the cleaning had flushed the log.
                # It may have flushed a later tombstone.
                deleted = self._killed and any(
                    event.key == key and event.value is None and event.offset > last.offset and since <= moment
                    for event, since in self.events.values()
                )
                expect(
                    latest >= last.offset or (deleted and not mine),
                    f"{key!r} was flushed at {last.offset}, its last record is {mine[-1:]}",
                )


def _stored(log: PartitionLog) -> list[Event]:
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        region = log.read(offset, 1 << 20, min_one=True, max_offset=log.log_end_offset).region
        if region is None:
            break
        data = region.read()
        for header in iter_entries(data):
            found += [Event(one.offset, one.key or b"", one.value) for one in records_of(data, check(data, header))]
            offset = max(offset, header.last_offset + 1)
    return found


def open_manager(
    directory: Path, files: Files, clock: ManualClock, scheduler: ManualScheduler, config: LogConfig
) -> LogManager:
    manager = LogManager([directory / "data"], config, clock=clock, scheduler=scheduler, files=files)
    manager.load(lambda topic: config)
    return manager
