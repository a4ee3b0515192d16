"""An append that fails for lack of memory at any point leaves the log unchanged: no record, and no gap."""

import pytest

from kafkapy.errors import Errors
from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.indexes.offset_index import OffsetIndex
from kafkapy.log.indexes.time_index import TimeIndex
from kafkapy.log.indexes.txn_index import TxnIndex
from kafkapy.log.partition_log import AppendResult
from kafkapy.log.producers.producer_updates import ProducerUpdates
from kafkapy.log.segments.segment import Segment
from kafkapy.log.segments.segment_list import SegmentList
from kafkapy.log.storage.files import Files
from kafkapy.record.control import marker_batch

from .support import NOW, Bench, batch, idempotent, values_of

SETTINGS = {"index_interval_bytes": 0, "segment_ms": 1 << 40}


class NoMemory:
    """Patches a function so that its n-th call raises MemoryError after it has run."""

    def __init__(self, patch, of, name, call=1):
        self.left = call
        real = getattr(of, name)

        def counted(*arguments, **options):
            answer = real(*arguments, **options)
            self.left -= 1
            if not self.left:
                raise MemoryError(f"made to fail after {name}")
            return answer

        patch.setattr(of, name, counted)

    @property
    def is_over(self):
        return self.left <= 0


PLACES = {
    "the write": (Files, "pwritev", 1),
    "the first batch": (Segment, "appended", 1),
    "the last batch": (Segment, "appended", 3),
    "an entry of the offset index": (OffsetIndex, "append", 2),
    "an entry of the time index": (TimeIndex, "maybe_append", 1),
    "the producers": (ProducerUpdates, "apply", 1),
    "the place of the records": (SegmentList, "remember", 1),
}


def refused(verdicts):
    return [verdict.code for verdict in verdicts] == [Errors.KAFKA_STORAGE_ERROR] * len(verdicts)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_an_append_that_runs_out_of_memory_leaves_no_trace(tmp_path, monkeypatch, place):
    bench = Bench(tmp_path, **SETTINGS)
    log = bench.load()
    log.append([idempotent("a"), batch("b", timestamp=NOW + 5)], 0)
    before = log.active_producers()
    with monkeypatch.context() as patch:
        failing = NoMemory(patch, *place)
        sets = [idempotent("no", sequence=1, timestamp=NOW + 10), batch("no", timestamp=NOW + 20)]
        assert refused(log.append([*sets, batch("not this one", timestamp=NOW + 30)], 0))
        assert failing.is_over
    assert values_of(log) == [(0, b"a"), (1, b"b")]
    assert log.active_producers() == before
    assert log.segments.active.max_timestamp == (NOW + 5, 1)

    first, second = log.append([idempotent("c", sequence=1), batch("d", timestamp=NOW + 6)], 0)
    assert isinstance(first, AppendResult), first
    assert (first.base_offset, second.base_offset, first.duplicate) == (2, 3, False)
    assert log.append([idempotent("c", sequence=1)], 0)[0].duplicate
    expected = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert values_of(log) == expected
    assert log.offset_for_timestamp(NOW + 6).offset == 3
    assert [values_of(log, offset)[0] for offset in range(4)] == expected
    assert values_of(Bench(tmp_path, **SETTINGS).load(clean=False)) == expected
    assert bench.failures == []


@pytest.mark.parametrize("place", [(TxnIndex, "append", 1), (ProducerUpdates, "apply", 1)])
def test_a_marker_that_runs_out_of_memory_leaves_the_transaction_open(tmp_path, monkeypatch, place):
    log = Bench(tmp_path, **SETTINGS).load()
    log.append([idempotent("a", transactional=True)], 0)
    log.set_high_watermark(1)

    def mark():
        return log.append([OwnBatch(marker_batch(7, 0, commit=False, coordinator_epoch=0, timestamp=NOW))], 0)

    with monkeypatch.context() as patch:
        NoMemory(patch, *place)
        assert refused(mark())
    assert log.last_stable_offset == 0
    assert [entry for segment in log.segments for entry in segment.txn_index.entries] == []
    assert mark()[0].base_offset == 1
    log.set_high_watermark(2)
    assert log.last_stable_offset == 2
    assert [entry[:3] for entry in log.segments.active.txn_index.entries] == [(7, 0, 1)]


def test_a_coordinators_append_that_runs_out_of_memory_leaves_no_trace(tmp_path, monkeypatch):
    log = Bench(tmp_path, **SETTINGS).load()
    log.assign_leader_epoch(0)
    for value in "ab":
        log.append([OwnBatch(batch(value))], 0)
    with monkeypatch.context() as patch:
        NoMemory(patch, Segment, "appended")
        assert refused(log.append([OwnBatch(batch("no"))], 0, blocking=False))
    assert log.append([OwnBatch(batch("c"))], 0, blocking=False)[0].base_offset == 2
    assert values_of(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_roll_that_runs_out_of_memory_leaves_the_old_segment_active(tmp_path, monkeypatch):
    log = Bench(tmp_path, segment_bytes=len(batch("a")) + 10).load()
    log.append([batch("a")], 0)
    with monkeypatch.context() as patch:
        NoMemory(patch, Segment, "seal")
        assert refused(log.append([batch("b")], 0))
    assert log.segments.base_offsets == [0]
    assert log.append([batch("b")], 0)[0].base_offset == 1
    assert log.segments.base_offsets == [0, 1]
    assert values_of(log) == [(0, b"a"), (1, b"b")]


def test_an_append_that_cannot_be_undone_takes_the_directory_offline(tmp_path, monkeypatch):
    bench = Bench(tmp_path, **SETTINGS)
    log = bench.load()
    log.append([batch("a")], 0)

    def no_memory(*arguments):
        raise MemoryError("made to fail")

    with monkeypatch.context() as patch:
        NoMemory(patch, Files, "pwritev")
        patch.setattr(Files, "truncate", no_memory)
        with pytest.raises(LogDirFailure):
            log.append([batch("no")], 0)
    assert len(bench.failures) == 1
    assert values_of(Bench(tmp_path, **SETTINGS).load(clean=False))[:1] == [(0, b"a")]


def test_batches_written_before_memory_ran_out_are_not_refused(tmp_path, monkeypatch):
    log = Bench(tmp_path, segment_bytes=len(batch("a")) + 10).load()
    with monkeypatch.context() as patch:
        NoMemory(patch, Segment, "appended", 2)
        first, *others = log.append([batch("a"), batch("b"), batch("c")], 0)
    assert first.base_offset == 0
    assert refused(others)
    assert values_of(log) == [(0, b"a")]
    assert log.append([batch("b")], 0)[0].base_offset == 1


def test_after_an_append_for_which_memory_runs_out_the_producer_state_ends_where_the_log_ends(tmp_path, monkeypatch):
    log = Bench(tmp_path, **SETTINGS).load()
    log.append([batch("a")], 0)
    with monkeypatch.context() as patch:
        NoMemory(patch, SegmentList, "remember")
        assert refused(log.append([batch("no")], 0))
    assert log.producers.end_offset == log.log_end_offset == 1
