"""Helpers of the cleaner's tests: a log that can be written, cleaned, and read back batch by batch."""

import os
from typing import NamedTuple

from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.cleaner.candidates import candidate
from kafkapy.log.cleaner.cleaning import clean
from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.log.storage.files import Files
from kafkapy.record.batch import build, records_of
from kafkapy.record.control import marker_batch
from kafkapy.record.legacy import iter_entries
from tests.log.support import NOW, Bench


class Stored(NamedTuple):
    """An entry of a log: its header and its records."""

    header: object
    records: list


class UnsyncedFiles(Files):
    """Files without fsync. These tests crash processes, never the machine, so written data is not lost."""

    def sync(self, file):
        pass

    def sync_dir(self, path):
        pass


class CleanerBench(Bench):
    """A compacted log, `log`, with a manual clock and methods that write and clean it."""

    def __init__(self, directory, *, files=None, **settings):
        super().__init__(
            directory,
            files=files if files is not None else UnsyncedFiles(),
            **{"cleanup_policy": ["compact"], "delete_retention_ms": 1000, "segment_index_bytes": 65536, **settings},
        )
        self.log = self.load()
        self.sequences = {}

    def append(self, *records, producer=None, epoch=0, transactional=False, codec=0, timestamp=None):
        """Append a batch of (key, value) or (key, value, timestamp) records, bytes or str. Return its base offset."""
        stamp = self.clock.time_ms() if timestamp is None else timestamp
        rows = [
            (row[2] if len(row) > 2 else stamp, _bytes(row[0]), _bytes(row[1]), row[3] if len(row) > 3 else [])
            for row in records
        ]
        options = {}
        if producer is not None:
            sequence = self.sequences.get((producer, epoch), 0)
            self.sequences[producer, epoch] = sequence + len(rows)
            options = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        data = memoryview(bytearray(build(rows, codec=codec, transactional=transactional, **options)))
        (verdict,) = self.log.append([data], 0)
        if isinstance(verdict, Exception):
            raise verdict
        self.log.set_high_watermark(self.log.log_end_offset)
        return verdict.base_offset

    def end_transaction(self, producer, *, commit, epoch=0):
        """Append the coordinator's marker. Return its offset."""
        marker = marker_batch(producer, epoch, commit=commit, coordinator_epoch=0, timestamp=self.clock.time_ms())
        (verdict,) = self.log.append([OwnBatch(marker)], 0)
        if isinstance(verdict, Exception):
            raise verdict
        self.log.set_high_watermark(self.log.log_end_offset)
        return verdict.base_offset

    def candidate(self):
        return candidate(self.log, self.env.cleaner_offsets.get(("t", 0)), self.clock.time_ms())

    def clean(self, **settings):
        """Clean all cleanable segments, due or not. Return (first dirty offset afterwards, statistics)."""
        end, stats = cleaned(self.log, self.env.cleaner_offsets.get(("t", 0)), **settings)
        self.env.cleaner_offsets.put(("t", 0), end)
        return end, stats

    def roll_and_clean(self, **settings):
        self.log.roll()
        return self.clean(**settings)

    def restart(self, *, clean=False):
        """Load the log again, as after a crash or, with `clean`, after a clean stop."""
        if clean:
            self.log.close()
        else:
            self.log.abandon()
        self.scheduler.tasks.clear()
        start, high_watermark = self.log.log_start_offset, self.log.high_watermark
        self.log = self.load(clean=clean, log_start_offset=start)
        self.log.set_high_watermark(high_watermark)

    def forget_snapshots(self):
        """Remove the producer snapshots, so that a load rebuilds the producer state from the log."""
        for path in (self.directory / "t-0").glob("*.snapshot"):
            os.unlink(path)


def cleaned(log, first_dirty=None, **settings):
    """Clean all cleanable segments of a log. Return (first dirty offset afterwards, statistics)."""
    assert log.upkeep.try_begin()
    try:
        chosen = candidate(log, first_dirty, log.clock.time_ms())
        return clean(chosen, CleanerSettings(**settings), lambda size: None)
    finally:
        log.upkeep.end()


def _bytes(value):
    return value.encode() if isinstance(value, str) else value


def stored_in(segment):
    data = segment.files.pread(segment.handle(), segment.size, 0)
    return [Stored(header, records_of(data, header)) for header in iter_entries(data)]


def stored(log):
    """Return every entry of the log, segment after segment."""
    return [entry for segment in log.segments for entry in stored_in(segment)]


def data_records(log):
    """Return (offset, timestamp, key, value, headers) of every record that is not a marker."""
    return [tuple(record[:5]) for header, records in stored(log) if not header.is_control for record in records]


def pairs(log):
    """Apply every record as a reader does. Return the resulting {key: value}, and the offsets that were read."""
    table, offsets = {}, []
    for offset, _, key, value, _ in data_records(log):
        table[key] = value
        offsets.append(offset)
    return table, offsets


__all__ = ["NOW", "CleanerBench", "Stored", "UnsyncedFiles", "cleaned", "data_records", "pairs", "stored", "stored_in"]
