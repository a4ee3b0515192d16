"""After any history and any cleanings, a compacted log has the records of the model at their original offsets."""

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkapy._ext.keymap import ENTRY_BYTES
from tests.harness.examples import examples

from .model import Model
from .support import CleanerBench, data_records, stored

RETENTION_MS = 1000
PRODUCERS = (None, 7, 8, 9)
TRANSACTIONAL = (8, 9)

keys = st.sampled_from([None, "", "a", "b", "c", "d", "e", "key of some length"]).filter(lambda key: key is not None)
values = st.one_of(st.none(), st.sampled_from(["", "x", "value"]), st.text("yz", max_size=40))
headers = st.sampled_from([[], [], [("h", b"1")], [("h", None), ("h", b"")]])
records = st.lists(st.tuples(keys, values, st.integers(-5000, 5000), headers), min_size=1, max_size=6)


class CompactedLog(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.model = Model(RETENTION_MS)
        self.epochs = dict.fromkeys(PRODUCERS, 0)

    @initialize(
        segment_bytes=st.integers(700, 3000),
        interval=st.sampled_from([0, 200, 4096]),
        append_time=st.booleans(),
    )
    def open(self, segment_bytes, interval, append_time):
        self.append_time = append_time
        self.bench = CleanerBench(
            self.directory,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            delete_retention_ms=RETENTION_MS,
            message_timestamp_type="LogAppendTime" if append_time else "CreateTime",
        )

    def teardown(self):
        self.bench.log.abandon()
        shutil.rmtree(self.directory)

    @rule(rows=records, producer=st.sampled_from(PRODUCERS), transactional=st.booleans(), codec=st.integers(0, 4))
    def append(self, rows, producer, transactional, codec):
        # A producer with an open transaction writes only in that transaction.
        transactional = producer in TRANSACTIONAL and (transactional or producer in self.model.open)
        now = self.bench.clock.time_ms()
        base = self.bench.append(
            *((key, value, now + shift, row_headers) for key, value, shift, row_headers in rows),
            producer=producer,
            epoch=self.epochs[producer],
            transactional=transactional,
            codec=codec,
        )
        written = [
            (
                now if self.append_time else now + shift,
                key.encode(),
                None if value is None else value.encode(),
                tuple(row_headers),
            )
            for key, value, shift, row_headers in rows
        ]
        self.model.append(base, written, producer, self.epochs[producer], transactional)

    @rule(producer=st.sampled_from(TRANSACTIONAL), commit=st.booleans())
    def end_transaction(self, producer, commit):
        offset = self.bench.end_transaction(producer, commit=commit, epoch=self.epochs[producer])
        self.model.end_transaction(offset, producer, self.epochs[producer], commit)

    @rule()
    def roll(self):
        self.bench.log.roll()

    @rule(seconds=st.sampled_from([0.3, 1.0, 5.0]))
    def pass_time(self, seconds):
        self.bench.clock.advance(seconds)

    @rule()
    def delete_files(self):
        self.bench.scheduler.run_all()

    @rule(known=st.sets(st.sampled_from(PRODUCERS[1:])))
    def forget_producers(self, known):
        """Forget all other producers without an open transaction, as if they had expired."""
        for producer in list(self.bench.log.producers.producers):
            if producer not in known and producer not in self.model.open:
                self._forget(producer)

    def _forget(self, producer):
        """Forget the producer. It continues in a new epoch, in which its sequence numbers must begin at 0."""
        del self.bench.log.producers.producers[producer]
        self.epochs[producer] += 1

    @rule(
        slots=st.sampled_from([2, 4, 100000]),
        io_buffer=st.sampled_from([1, 16384]),
        roll=st.booleans(),
    )
    def clean(self, slots, io_buffer, roll):
        bench = self.bench
        if roll:
            bench.log.roll()
        chosen = bench.candidate()
        assert chosen.first_uncleanable <= max(bench.log.last_stable_offset, chosen.first_dirty)
        assert chosen.first_uncleanable <= bench.log.segments.active.base_offset
        segments = bench.log.segments
        producers = {
            one.producer_id: (one.epoch, one.batches[-1].last_offset if one.batches else -1)
            for one in bench.log.producers.producers.values()
        }
        end, _ = bench.clean(dedupe_buffer=slots * ENTRY_BYTES, load_factor=0.9, io_buffer=io_buffer)
        dirty = segments.between(chosen.first_dirty, chosen.first_uncleanable)
        assert chosen.first_dirty + bool(dirty) <= end <= chosen.first_uncleanable
        if slots > 10:
            assert end == chosen.first_uncleanable
        gone_through = segments.between(0, end)
        if gone_through:
            behind = segments.after(gone_through[-1]).base_offset
            self.model.clean(chosen.first_dirty, end - 1, behind, bench.clock.time_ms(), producers)

    @rule(clean=st.booleans())
    def restart(self, clean):
        """Restart, and check that each producer's last sequence is known again, even if all its records are removed."""
        before, known = self._sequences(), set(self.bench.log.producers.producers)
        self.bench.restart(clean=clean)
        after, producers = self._sequences(), self.bench.log.producers.producers
        assert {producer: after.get(producer) for producer in before} == before
        for forgotten in producers.keys() - known:
            self._forget(forgotten)

    def _sequences(self):
        # As in Kafka, a producer that has only markers may be forgotten when their batches are empty.
        producers = self.bench.log.producers.producers.values()
        return {one.producer_id: (one.epoch, one.last_sequence) for one in producers if one.last_sequence >= 0}

    @invariant()
    def the_log_holds_what_the_model_says(self):
        if not hasattr(self, "bench"):
            return
        assert data_records(self.bench.log) == self.model.data()
        found = [
            (header.base_offset, header.last_offset, header.delete_horizon_ms, len(content))
            for header, content in stored(self.bench.log)
        ]
        assert found == self.model.shape()


TestCompactedLog = CompactedLog.TestCase
TestCompactedLog.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
