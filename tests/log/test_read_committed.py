"""A read_committed consumer gets the same records from a log, after any history, as from a plain list of records.

The history has concurrent transactions of several producers, committed, aborted and timed out; retention, deletions of
records, compaction; clean and unclean restarts. The reader uses only the content of Fetch responses.
"""

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.results import Busy
from kafkapy.record.batch import build, records_of
from kafkapy.record.control import ABORT, control_record_of, marker_batch
from tests.harness.batches import iter_batches
from tests.harness.examples import examples

from .cleaner.support import CleanerBench

PRODUCERS = st.integers(1, 4)
KEYS = st.sampled_from(["a", "b", "c", "d", "e"])


def committed(log, start, max_bytes):
    """Return (offset, value) of the committed records from `start` on, filtered like Java's CompletedFetch does."""
    found = []
    offset = start
    while True:
        end = log.last_stable_offset
        read = log.read(offset, max_bytes, min_one=True, max_offset=end, blocking=False)
        if isinstance(read, Busy):
            read = log.read(offset, max_bytes, min_one=True, max_offset=end)
        if read.region is None:
            return found
        listed = log.aborted_transactions(offset, read)
        assert listed == of_kafkas_loop(log, offset, read)
        waiting = sorted((first, producer_id) for producer_id, first in listed)
        aborted = set()
        before = offset
        data = read.region.read()
        for batch in iter_batches(data):
            while waiting and waiting[0][0] <= batch.last_offset:
                aborted.add(waiting.pop(0)[1])
            if batch.is_control:
                marker = control_record_of(data, batch)
                if marker is not None and marker.type == ABORT:
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                found += [(one.offset, one.value) for one in records_of(data, batch) if one.offset >= offset]
            before = batch.last_offset + 1
        assert before > offset
        offset = before


def of_kafkas_loop(log, offset, read):
    """Return the aborted transactions that Kafka's LocalLog.addAbortedTransactions finds."""
    segments = [segment for segment in log.segments if segment.base_offset >= read.segment_base]
    entries = list(index_entries(segments[0]))
    end = read.position + read.region.length
    if entries and entries[0][1] == end:  # OffsetIndex.fetchUpperBoundOffset never finds the first entry
        del entries[0]
    bound = next((at for at, position in entries if position >= end), None)
    if bound is None:
        bound = segments[1].base_offset if len(segments) > 1 else log.log_end_offset
    found = []
    for segment in segments:
        for one in segment.txn_index.entries:
            if one.last_offset >= offset and one.first_offset < bound:
                found.append((one.producer_id, one.first_offset))
            if one.last_stable_offset >= bound:
                return found
    return found


def index_entries(segment):
    index = segment.offset_index
    numbers = index._entries
    if numbers is None:
        data = index.files.pread(index.handle(), index.count * 8, 0)
        numbers = [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8)]
    for number in numbers:
        yield segment.base_offset + (number >> 32), number & 0xFFFFFFFF


class ReadCommitted(RuleBasedStateMachine):
    """A log and its model: `records` are (offset, key, value, transaction or None). `outcome` of a transaction is True
    if it is committed."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.records = []
        self.outcome = {}
        self.open = {}  # producer -> (transaction, first offset)
        self.epochs = {}
        self.sequences = {}
        self.number = 0

    @initialize(
        segment_bytes=st.integers(300, 2000),
        interval=st.sampled_from([0, 150, 4096]),
        compacted=st.booleans(),
    )
    def begin(self, segment_bytes, interval, compacted):
        self.compacted = compacted
        self.bench = CleanerBench(
            self.directory,
            cleanup_policy=["compact"] if compacted else ["delete"],
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_bytes=-1 if compacted else 4000,
            retention_ms=-1,
        )
        self.bench.log.verifies_transactions = True

    @property
    def log(self):
        return self.bench.log

    def teardown(self):
        if hasattr(self, "bench"):
            self.log.abandon()
        shutil.rmtree(self.directory)

    def append(self, records):
        (verdict,) = self.log.append([records], 0)
        assert not isinstance(verdict, Exception), verdict
        self.log.set_high_watermark(self.log.log_end_offset)
        return verdict.base_offset

    def note(self, base, rows, txn):
        self.records += [(base + at, key, value, txn) for at, (key, value) in enumerate(rows)]

    def rows(self, keys):
        self.number += 1
        return [(key, b"%d.%d" % (self.number, at)) for at, key in enumerate(keys)]

    def batch(self, rows, **options):
        now = self.bench.clock.time_ms()
        return memoryview(bytearray(build([(now, key.encode(), value, []) for key, value in rows], **options)))

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), codec=st.sampled_from([0, 1]))
    def plain(self, keys, codec):
        rows = self.rows(keys)
        self.note(self.append(self.batch(rows, codec=codec)), rows, None)

    @rule(producer=PRODUCERS, keys=st.lists(KEYS, min_size=1, max_size=4))
    def in_transaction(self, producer, keys):
        rows = self.rows(keys)
        epoch = self.epochs.setdefault(producer, 0)
        sequence = self.sequences.get(producer, 0)
        guard = self.log.begin_verification(producer, sequence, epoch)
        assert (guard == 0) == (producer in self.open)
        if guard:
            assert self.log.producers.verifications.succeeded(producer, guard)
        base = self.append(
            self.batch(rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        )
        self.sequences[producer] = sequence + len(rows)
        if producer not in self.open:
            self.open[producer] = (len(self.outcome), base)
            self.outcome[len(self.outcome)] = False
        self.note(base, rows, self.open[producer][0])

    @rule(producer=PRODUCERS, commit=st.booleans(), timed_out=st.booleans())
    def end(self, producer, commit, timed_out):
        """Write a marker, perhaps without a transaction. A time-out aborts with the next producer epoch."""
        epoch = self.epochs.setdefault(producer, 0)
        if timed_out:
            self.epochs[producer] = epoch = epoch + 1
            self.sequences[producer] = 0
        commit = commit and not timed_out
        now = self.bench.clock.time_ms()
        self.append(OwnBatch(marker_batch(producer, epoch, commit=commit, coordinator_epoch=0, timestamp=now)))
        if producer in self.open:
            self.outcome[self.open.pop(producer)[0]] = commit

    @rule()
    def roll(self):
        self.log.roll()

    @rule()
    def flush(self):
        self.log.flush()

    @rule(clean=st.booleans())
    def restart(self, clean):
        log = self.log
        log.close() if clean else log.abandon()
        self.bench.scheduler.tasks.clear()
        self.bench.log = self.bench.load(
            clean=clean, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset
        )
        self.log.verifies_transactions = True
        assert self.log.log_end_offset == log.log_end_offset
        self.log.set_high_watermark(self.log.log_end_offset)

    @precondition(lambda self: not self.compacted)
    @rule(part=st.floats(0, 1))
    def delete_records(self, part):
        start, end = self.log.log_start_offset, self.log.last_stable_offset
        self.log.delete_records(start + int((end - start) * part))

    @precondition(lambda self: not self.compacted)
    @rule()
    def retain(self):
        self.log.delete_old_segments()
        self.bench.scheduler.run_all()

    @precondition(lambda self: self.compacted)
    @rule(seconds=st.sampled_from([0, 0.5, 5.0]))
    def clean(self, seconds):
        self.bench.clock.advance(seconds)
        self.log.roll()
        self.bench.clean()

    def stable_end(self):
        begun = [first for _, first in self.open.values()]
        return max(min([*begun, self.log.log_end_offset]), self.log.log_start_offset)

    @invariant()
    def the_last_stable_offset_is_that_of_the_oldest_open_transaction(self):
        if hasattr(self, "bench"):
            assert self.log.last_stable_offset == self.stable_end()

    @rule(part=st.floats(0, 1), max_bytes=st.sampled_from([1, 300, 1 << 20]))
    def read(self, part, max_bytes):
        begin, end = self.log.log_start_offset, self.stable_end()
        start = begin + int((end - begin) * part)
        there = [
            (offset, key, value)
            for offset, key, value, txn in self.records
            if start <= offset < end and (txn is None or self.outcome[txn])
        ]
        got = committed(self.log, start, max_bytes)
        if not self.compacted:
            assert got == [(offset, value) for offset, _, value in there]
            return
        assert set(got) <= {(offset, value) for offset, _, value in there}
        assert got == sorted(got)
        latest = {key: (offset, value) for offset, key, value in there}
        assert set(latest.values()) <= set(got)


ReadCommitted.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestReadCommitted = ReadCommitted.TestCase
