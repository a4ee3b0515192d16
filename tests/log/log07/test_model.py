"""A log of Kafka 0.7 equals a string of bytes after any appends, flushes, rolls, deletions, crashes and reads."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkapy.log.log07.log import EARLIEST, LATEST, OffsetOutOfRange

from .bench import Bench, put, stored


class LogMachine(RuleBasedStateMachine):
    """A log and its model: all bytes that were appended, how many of them are flushed, and the start of the log."""

    @initialize(segment_bytes=strategies.integers(1, 200), flush_messages=strategies.integers(1, 10))
    def begin(self, segment_bytes, flush_messages):
        self.root = Path(tempfile.mkdtemp())
        self.bench = Bench(self.root / "d", segment_bytes=segment_bytes, flush_messages=flush_messages)
        self.appended = b""
        self.flushed = 0
        self.unflushed_messages = 0
        self.log = self.bench.log()

    def teardown(self):
        shutil.rmtree(self.root)

    @rule(payloads=strategies.lists(strategies.binary(max_size=60), max_size=5), blocking=strategies.booleans())
    def append(self, payloads, blocking):
        segments = len(self.log.segments)
        before = len(stored(self.root / "d" / "t-0"))
        data = put(self.log, *payloads, blocking=blocking)
        if len(self.log.segments) > segments:
            self.note_flush()
        if len(stored(self.root / "d" / "t-0")) == before:  # not appended, since it would have to wait
            assert not blocking or not data
            return
        self.appended += data
        self.unflushed_messages += len(payloads)
        if self.unflushed_messages >= self.log.settings.flush_messages:
            self.note_flush()

    def note_flush(self):
        self.flushed = len(self.appended)
        self.unflushed_messages = 0

    @rule()
    def flush(self):
        self.log.flush()
        self.note_flush()

    @rule()
    def roll(self):
        if self.log.segments[-1].size:
            with self.log.flushing, self.log.lock:
                self.log.roll_locked()
            self.note_flush()

    @rule(count=strategies.integers(1, 3))
    def delete(self, count):
        for segment in self.log.segments[:count]:
            os.utime(segment.path, (0, 0))
        everything = count >= len(self.log.segments)
        self.bench.directory.delete_old()
        if everything and self.log.segments[-1].start == len(self.appended):
            self.note_flush()

    @rule(torn=strategies.binary(max_size=30))
    def crash(self, torn):
        """Kill the process, perhaps during a write. Complete messages in the file are served afterwards."""
        with open(self.log.segments[-1].path, "ab") as file:
            file.write(b"\0\0\1\0" + torn)
        self.bench.crash()
        self.log = self.bench.log()
        self.note_flush()

    @rule()
    def restart(self):
        self.bench.restart()
        self.log = self.bench.log()
        self.note_flush()

    @rule(data=strategies.data(), size=strategies.integers(1, 300))
    def read(self, data, size):
        offset = data.draw(strategies.integers(-1, self.flushed + 1))
        start = self.log.start
        if not start <= offset <= self.flushed:
            try:
                self.log.read(offset, size)
            except OffsetOutOfRange:
                return
            raise AssertionError(f"offset {offset} was read, the log has {start} to {self.flushed}")
        region = self.log.read(offset, size)
        if offset == self.flushed:
            assert region is None
        else:
            found = region.read()
            assert 0 < len(found) <= size
            assert found == self.appended[offset : offset + len(found)]

    @invariant()
    def shows_what_is_flushed(self):
        if not hasattr(self, "log"):
            return
        assert self.log.end == self.flushed
        starts = [segment.start for segment in self.log.segments]
        ends = [segment.start + segment.size for segment in self.log.segments]
        assert ends[:-1] == starts[1:]
        assert ends[-1] == len(self.appended)
        assert stored(self.root / "d" / "t-0") == self.appended[starts[0] :]
        assert self.log.offsets_before(EARLIEST, 1) == starts[:1]
        assert self.log.offsets_before(LATEST, 1) == [self.flushed if self.log.segments[-1].flushed else starts[-1]]


LogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestLog = LogMachine.TestCase
