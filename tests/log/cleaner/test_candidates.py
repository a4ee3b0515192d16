"""Which part of a log may be cleaned, and when a log is due (as in Kafka's LogCleanerManager)."""

from types import SimpleNamespace

import pytest

from kafkapy.log.cleaner.candidates import candidate
from kafkapy.log.cleaner.cleaning import group_segments
from kafkapy.log.config import LogConfig

from .support import CleanerBench


@pytest.fixture
def bench(tmp_path):
    return CleanerBench(tmp_path, segment_bytes=100_000)


def segments_of(bench, *sizes):
    """Write closed segments with these numbers of records, and an active segment with one record."""
    for size in sizes:
        bench.append(*((f"key {number}", "x" * 50) for number in range(size)))
        bench.log.roll()
        bench.clock.advance(10)
    bench.append(("active", "x"))


def test_all_before_the_active_segment_is_dirty_at_first(bench):
    segments_of(bench, 3, 4)
    chosen = bench.candidate()
    assert (chosen.first_dirty, chosen.first_uncleanable) == (0, 7)
    assert chosen.cleanable_bytes == sum(segment.size for segment in bench.log.segments.items[:2])
    assert chosen.clean_bytes == 0
    assert chosen.dirty_ratio == 1.0
    assert chosen.is_due


def test_cleaned_segments_count_as_clean(bench):
    segments_of(bench, 30)
    assert bench.clean()[0] == 30
    bench.log.roll()
    chosen = bench.candidate()
    assert (chosen.first_dirty, chosen.first_uncleanable) == (30, 31)
    assert 0 < chosen.dirty_ratio < 0.5
    assert not chosen.is_due


def test_a_log_is_due_only_above_the_dirty_ratio(tmp_path):
    bench = CleanerBench(tmp_path, min_cleanable_dirty_ratio=1.0)
    segments_of(bench, 3)
    assert bench.candidate().dirty_ratio == 1.0
    assert not bench.candidate().is_due


def test_cleaning_never_goes_beyond_the_high_watermark(bench):
    segments_of(bench, 3, 4)
    bench.log.set_high_watermark(5)
    assert bench.candidate().first_uncleanable == 3
    bench.log.set_high_watermark(2)
    assert bench.candidate().first_uncleanable == 0
    assert not bench.candidate().is_due


def test_cleaning_never_goes_beyond_an_open_transaction(bench):
    segments_of(bench, 3)
    bench.append(("in", "x"), producer=8, transactional=True)
    segments_of(bench, 4)
    assert bench.log.last_stable_offset == 4
    assert bench.candidate().first_uncleanable == 3
    bench.end_transaction(8, commit=True)
    assert bench.candidate().first_uncleanable == 9


def test_segments_with_young_records_wait(tmp_path):
    bench = CleanerBench(tmp_path, min_compaction_lag_ms=15_000)
    segments_of(bench, 3, 4, 5)  # then 30, 20 and 10 seconds old
    assert bench.candidate().first_uncleanable == 7
    bench.clock.advance(10)
    assert bench.candidate().first_uncleanable == 12


def test_a_log_is_due_after_max_compaction_lag_with_any_dirty_ratio(tmp_path):
    bench = CleanerBench(tmp_path, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000)
    segments_of(bench, 3)
    assert bench.candidate().delay_ms == 0
    assert not bench.candidate().is_due
    bench.clock.advance(100)
    assert bench.candidate().delay_ms == 50_000
    assert bench.candidate().is_due


@pytest.mark.parametrize("offset", [-5, 1, 100])
def test_an_impossible_checkpoint_is_ignored_and_logged(bench, offset, caplog):
    segments_of(bench, 3)
    bench.log.delete_records(2)
    chosen = candidate(bench.log, offset, bench.clock.time_ms())
    assert chosen.first_dirty == 2
    assert f"cleaned up to {offset}" in caplog.text


def test_retention_beyond_the_checkpoint_is_not_logged(tmp_path, caplog):
    bench = CleanerBench(tmp_path, cleanup_policy=["compact", "delete"])
    segments_of(bench, 3)
    bench.log.delete_records(2)
    assert candidate(bench.log, 1, bench.clock.time_ms()).first_dirty == 2
    assert "cleaned up to" not in caplog.text


# --- groups


def groups_of(bench, **settings):
    config = LogConfig({name.replace("_", "."): value for name, value in settings.items()})
    closed = bench.log.segments.items[:-1]
    groups = group_segments(closed, config, bench.log.segments.active.base_offset)
    return [[segment.base_offset for segment in group] for group in groups]


def test_neighbours_become_one_segment_up_to_its_size(bench):
    segments_of(bench, 1, 1, 1, 1)
    size = bench.log.segments.items[0].size
    assert groups_of(bench, segment_bytes=size * 4) == [[0, 1, 2, 3]]
    assert groups_of(bench, segment_bytes=size * 2) == [[0, 1], [2, 3]]
    assert groups_of(bench, segment_bytes=size) == [[0], [1], [2], [3]]


def test_neighbours_become_one_segment_up_to_its_indexes(bench):
    segments_of(bench, 1, 1, 1)
    times = [segment.time_index.count for segment in bench.log.segments.items[:-1]]
    assert times == [1, 1, 1]
    assert groups_of(bench, segment_index_bytes=24) == [[0, 1], [2]]


def test_offsets_of_a_group_fit_into_its_indexes():
    far = 1 << 31
    assert grouped((0, 10), (5, 10), (far, 10)) == [[0, 5], [far]]
    assert grouped((0, 10), (5, 10), (far, 0)) == [[0, 5, far]]  # an empty segment has no offsets
    assert grouped((0, 10), (5, 10), end=far) == [[0, 5]]
    assert grouped((0, 10), (5, 10), end=far + 1) == [[0], [5]]


def grouped(*segments, end=1 << 33):
    """Group segments, given as (base offset, size). Return lists of base offsets."""
    index = SimpleNamespace(count=0, width=8)
    candidates = [
        SimpleNamespace(base_offset=base, size=size, offset_index=index, time_index=index) for base, size in segments
    ]
    return [[segment.base_offset for segment in group] for group in group_segments(candidates, LogConfig(), end)]
