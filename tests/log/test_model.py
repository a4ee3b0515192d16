"""A log under random operations behaves like a plain list."""

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkapy.log.partition_log import AppendResult
from tests.harness.examples import examples

from .support import Bench, batch, idempotent, values_of


class LogModel(RuleBasedStateMachine):
    """A log and its model: `records` is [(offset, value)], of which readers get those from `start` on."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.records = []
        self.start = self.end = self.number = self.sequence = 0

    @initialize(
        segment_bytes=st.integers(150, 2000),
        interval=st.integers(0, 500),
        index_bytes=st.sampled_from([24, 100, 10000]),
    )
    def open(self, segment_bytes, interval, index_bytes):
        self.bench = Bench(
            self.directory,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
        )
        self.log = self.bench.load()

    def teardown(self):
        shutil.rmtree(self.directory)

    @rule(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=12), known=st.booleans())
    def append(self, sizes, known):
        sets, values = [], []
        for size in sizes:
            own = [f"{self.number + at}" for at in range(size)]
            self.number += size
            values.append(own)
            sets.append(idempotent(*own, sequence=self.sequence) if known else batch(*own))
            self.sequence += size if known else 0
        for own, verdict in zip(values, self.log.append(sets, 0), strict=True):
            assert isinstance(verdict, AppendResult)
            assert verdict.base_offset == self.end
            self.records += [(self.end + at, value.encode()) for at, value in enumerate(own)]
            self.end += len(own)
        self.log.set_high_watermark(self.end)

    @rule()
    def roll(self):
        self.log.roll()

    @rule()
    def flush(self):
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def run_background(self):
        self.bench.scheduler.run_all()

    @rule(clean=st.booleans())
    def restart(self, clean):
        if clean:
            self.log.close()
        else:
            self.log.abandon()
        self.bench.scheduler.tasks.clear()
        self.log = self.bench.load(
            clean=clean, recovery_point=self.log.recovery_point, log_start_offset=self.log.log_start_offset
        )
        # A truncation inside a batch leaves the end above the last record. As in Kafka, a restart forgets that end.
        last = self.records[-1][0] + 1 if self.records else self.start
        assert last <= self.log.log_end_offset <= self.end
        self.end = self.log.log_end_offset
        self.log.set_high_watermark(self.end)
        # A truncation to the log start forgets a producer whose batches are all before it. A recovery reads them again.
        if not clean and not self.sequence:
            self.sequence = self.log_sequence()

    @rule(back=st.integers(0, 40))
    def truncate(self, back):
        """Truncate. A batch that is cut through is removed as a whole; the model takes the rest from the log."""
        offset = max(self.end - back, self.start)
        self.log.truncate_to(offset)
        kept = [record for record in self.records if record[0] < offset]
        left = values_of(self.log)
        assert left == [record for record in kept if record[0] >= self.start][: len(left)]
        assert len(kept) - len([record for record in kept if record[0] < self.start]) - len(left) < 3
        gone = left[-1][0] + 1 if left else self.start
        self.records = [record for record in kept if record[0] < gone]
        self.end = offset
        self.sequence = self.log_sequence()

    def log_sequence(self):
        producers = self.log.active_producers()
        return producers[0].last_sequence + 1 if producers else 0

    @rule(part=st.floats(0, 1))
    def delete_records(self, part):
        self.start = max(self.start, self.start + int((self.end - self.start) * part))
        self.log.delete_records(self.start)
        self.log.delete_old_segments()

    @rule(part=st.floats(0, 1), max_bytes=st.integers(1, 1000))
    def read(self, part, max_bytes):
        offset = self.start + int((self.end - self.start) * part)
        expected = [record for record in self.records if record[0] >= offset]
        assert values_of(self.log, offset, max_bytes) == expected

    @invariant()
    def same_ends(self):
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
            assert self.log.size == sum(segment.size for segment in self.log.segments)


LogModel.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
TestLogModel = LogModel.TestCase
