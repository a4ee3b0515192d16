"""Retention, DeleteRecords and truncation."""

import shutil

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.storage.files import Files
from tests.harness.reference_cycles import objects_left_in_cycles

from .support import NOW, Bench, batch, idempotent, values_of
from .test_checkpoint_races import Meanwhile

HOUR = 3_600_000


def filled(bench, count=10, step_ms=HOUR):
    """Return a log with a segment for each record, by default each an hour younger than the previous one."""
    log = bench.load()
    for number in range(count):
        log.append([batch(number, timestamp=NOW - (count - 1 - number) * step_ms)], 0)
        if number < count - 1:
            log.roll()
    log.set_high_watermark(count)
    return log


def test_old_segments_are_deleted_by_the_largest_timestamp_of_their_records(tmp_path):
    bench = Bench(tmp_path, retention_ms=3 * HOUR)
    log = filled(bench)
    assert log.delete_old_segments() == 6
    assert log.log_start_offset == 6
    assert log.segments.base_offsets == [6, 7, 8, 9]
    bench.clock.advance(3600)
    assert log.delete_old_segments() == 1


def test_retention_may_delete_all_segments_and_appends_continue_at_the_end_offset(tmp_path):
    bench = Bench(tmp_path, retention_ms=HOUR)
    log = filled(bench, 3)
    bench.clock.advance(3 * 3600)
    assert log.delete_old_segments() == 3
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (3, 3, 1)
    assert log.append([batch("on", timestamp=bench.clock.time_ms())], 0)[0].base_offset == 3
    assert values_of(log) == [(3, b"on")]


def test_without_timestamps_the_modification_time_of_the_file_is_used(tmp_path):
    bench = Bench(tmp_path, retention_ms=HOUR, message_timestamp_before_max_ms=1 << 62)
    log = bench.load()
    log.append([batch("a", timestamp=-1)], 0)
    log.set_high_watermark(1)
    modified = log.segments.active.modified_ms()
    bench.clock.set_time_ms(modified + HOUR)
    assert log.delete_old_segments() == 0
    bench.clock.set_time_ms(modified + HOUR + 1)
    assert log.delete_old_segments() == 1


def test_segments_are_deleted_by_retention_bytes(tmp_path):
    size = len(batch("0"))
    log = filled(Bench(tmp_path, retention_ms=-1, retention_bytes=4 * size))
    assert log.delete_old_segments() == 6
    assert log.size == 4 * size


def test_no_segment_from_the_high_watermark_on_is_deleted(tmp_path):
    bench = Bench(tmp_path, retention_ms=HOUR)
    log = filled(bench)
    log.set_high_watermark(4)
    bench.clock.advance(1_000_000)
    assert log.delete_old_segments() == 4
    assert log.log_start_offset == 4


def test_a_compacted_topic_loses_only_records_below_its_log_start_offset(tmp_path):
    bench = Bench(tmp_path, retention_ms=HOUR, cleanup_policy=["compact"])
    log = bench.load()
    for number in range(3):
        log.append([batch(number)], 0)
        log.roll()
    bench.clock.advance(100_000)
    assert log.delete_old_segments() == 0


def test_delete_records_moves_the_log_start_offset_and_retention_deletes_the_segments_below(tmp_path):
    bench = Bench(tmp_path)
    log = filled(bench)
    log.delete_records(4)
    assert log.log_start_offset == 4
    assert log.segments.base_offsets[0] == 0
    assert log.delete_old_segments() == 4
    assert log.segments.base_offsets[0] == 4
    with pytest.raises(KafkaError) as refused:
        log.delete_records(11)
    assert refused.value.code == Errors.OFFSET_OUT_OF_RANGE
    log.delete_records(2)
    assert log.log_start_offset == 4
    log.delete_records(10)
    assert values_of(log) == []


def test_no_records_are_deleted_above_a_high_watermark_that_a_truncation_lowers_meanwhile(tmp_path):
    log = filled(Bench(tmp_path))
    log.lock = Meanwhile(lambda: log.truncate_to(5))
    with pytest.raises(KafkaError) as refused:
        log.delete_records(8)
    assert refused.value.code == Errors.OFFSET_OUT_OF_RANGE
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)


def test_deleted_files_stay_for_the_delay_under_another_name(tmp_path):
    bench = Bench(tmp_path, retention_ms=HOUR, file_delete_delay_ms=60_000)
    log = filled(bench, 4)
    log.append([idempotent("p")], 0)
    log.delete_old_segments()
    (task,) = [task for task in bench.scheduler.tasks if task.name.startswith("delete-segments")]
    assert task.delay_s == 60
    marked = [name for name in bench.names() if name.endswith(".deleted")]
    assert {name.split(".", 1)[1] for name in marked} == {
        "log.deleted",
        "index.deleted",
        "timeindex.deleted",
        "snapshot.deleted",
    }
    bench.scheduler.run_all()
    assert not [name for name in bench.names() if name.endswith(".deleted")]


def test_the_retention_policy_can_be_replaced(tmp_path):
    class KeepTwo:
        reason = "only two segments are kept"

        def rules(self, log, now_ms):
            yield self

        def breached(self, segment, next_base_offset):
            return segment.base_offset < 8

    log = filled(Bench(tmp_path))
    log.retention = KeepTwo()
    assert log.delete_old_segments() == 8
    assert log.segments.base_offsets == [8, 9]


def test_the_start_of_the_epochs_moves_with_the_log_start(tmp_path):
    log = Bench(tmp_path).load()
    for epoch in (1, 2, 3):
        log.append([batch("a"), batch("b")], epoch)
    log.set_high_watermark(6)
    log.delete_records(3)
    assert log.leader_epochs.entries == ((2, 3), (3, 4))


# --- truncation


@pytest.mark.parametrize("offset", range(0, 31, 3))
@pytest.mark.parametrize("reopened", [False, True])
def test_truncation_removes_every_batch_that_reaches_the_offset(tmp_path, offset, reopened):
    settings = {"segment_bytes": 400, "index_interval_bytes": 100}
    bench = Bench(tmp_path, **settings)
    log = bench.load()
    for number in range(0, 30, 2):
        log.append([idempotent(number, number + 1, sequence=number)], number // 10)
    if reopened:
        log.close()
        log = bench.load()
    kept = values_of(log, 0)
    assert log.truncate_to(offset) == (offset < 30)
    assert log.log_end_offset == min(offset, 30)
    assert values_of(log) == kept[: offset - offset % 2]
    assert all(entry.start_offset < max(offset, 1) for entry in log.leader_epochs.entries)
    (verdict,) = log.append([batch("on")], 3)
    assert verdict.base_offset == min(offset, 30)
    log.close()
    again = bench.load()
    assert values_of(again) == [*kept[: offset - offset % 2], (min(offset, 30), b"on")]


def test_regions_of_truncated_records_are_known_from_those_read_later(tmp_path):
    """Records that are appended after the truncation have the same positions in the file."""
    log = Bench(tmp_path).load()

    def region_at(offset, end):
        return log.read(offset, 1 << 20, max_offset=end).region

    for number in range(4):
        log.append([batch(number)], 0)
    kept, removed = region_at(0, 2), region_at(2, 4)
    log.env.files.open_files.shed()  # so that later regions have another descriptor
    also_removed = region_at(3, 4)
    assert also_removed.handle is not removed.handle
    log.truncate_to(2)
    log.append([batch("other"), batch("other")], 0)
    assert (kept.is_cut, removed.is_cut, also_removed.is_cut) == (False, True, True)
    assert not region_at(2, 4).is_cut


def test_a_region_read_before_two_truncations_is_known_to_be_cut_by_the_second(tmp_path):
    log = Bench(tmp_path).load()
    for number in range(6):
        log.append([batch(number)], 0)
    first, rest = (log.read(0, 1 << 20, max_offset=end).region for end in (2, 4))
    log.truncate_to(5)
    between = log.read(0, 1 << 20, max_offset=4).region
    assert not rest.is_cut
    log.truncate_to(2)
    log.append([batch("other") for _ in range(4)], 0)
    assert (first.is_cut, rest.is_cut, between.is_cut) == (False, True, True)
    assert not log.read(0, 1 << 20, max_offset=4).region.is_cut


def test_truncation_takes_the_producers_back(tmp_path):
    log = Bench(tmp_path).load()
    log.append([idempotent(number, sequence=number) for number in range(10)], 0)
    log.truncate_to(5)
    assert log.append([idempotent(9, sequence=9)], 0)[0].code == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append([idempotent(5, sequence=5)], 0)[0].base_offset == 5


@pytest.mark.parametrize("truncate", ["truncate_to", "truncate_fully"])
def test_a_truncation_right_before_the_high_watermark_moves_keeps_it_within_the_log(tmp_path, truncate):
    log = filled(Bench(tmp_path))

    class TruncatedMeanwhile:
        def __enter__(self):
            log._high_watermark_lock = lock
            getattr(log, truncate)(4)
            return lock.__enter__()

        def __exit__(self, *error):
            return lock.__exit__(*error)

    lock, log._high_watermark_lock = log._high_watermark_lock, TruncatedMeanwhile()
    log.advance_high_watermark(log.log_end_offset, 0)
    assert (log.log_end_offset, log.high_watermark) == (4, 4)
    log.append([batch("on")], 0)
    assert log.high_watermark == 4


def test_truncation_below_the_first_segment_empties_the_log(tmp_path):
    bench = Bench(tmp_path)
    log = filled(bench)
    log.delete_records(5)
    log.delete_old_segments()
    log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (2, 2, [2])
    assert log.append([batch("a")], 0)[0].base_offset == 2
    bench.scheduler.run_all()
    assert not [name for name in bench.names() if name.endswith(".deleted")]


def test_a_log_can_be_emptied_to_begin_at_the_offset_of_its_first_segment(tmp_path):
    bench = Bench(tmp_path)
    log = filled(bench, 2)
    log.truncate_fully(0)
    assert log.append([batch("a")], 0)[0].base_offset == 0
    bench.scheduler.run_all()
    assert values_of(log) == [(0, b"a")]
    log.close()
    assert values_of(bench.load()) == [(0, b"a")]


def test_the_files_of_an_emptied_log_are_removed_after_the_list_of_segments_is_replaced(tmp_path):
    """With file.delete.delay.ms=0 a pool thread may remove files at once, while others read and flush the log."""
    bench = Bench(tmp_path, file_delete_delay_ms=0)
    log = filled(bench, 3)
    listed_when_removed = []

    def run_at_once(name, fn, delay_s=0.0):
        if name.startswith("delete-segments"):
            listed_when_removed.append(log.segments.base_offsets)
        fn()

    bench.scheduler.schedule = run_at_once
    log.truncate_fully(20)
    assert listed_when_removed == [[20]]
    assert not [name for name in bench.names() if name.endswith(".deleted")]


def test_a_flush_in_progress_does_not_cover_records_appended_after_a_truncation(tmp_path):
    class TruncatesMeanwhile(Files):
        def sync(self, file):
            super().sync(file)
            if log is not None and log.log_end_offset == 5:
                log.truncate_to(2)
                log.append([batch(f"other {number}") for number in range(4)], 0)

    log = None
    bench = Bench(tmp_path, files=TruncatesMeanwhile())
    log = bench.load()
    log.append([batch(number) for number in range(5)], 0)
    log.flush()
    assert (log.log_end_offset, log.recovery_point) == (6, 0)
    log.flush()
    assert log.recovery_point == 6
    assert len(values_of(Bench(tmp_path).load(clean=False, recovery_point=6))) == 6


def test_a_truncation_removes_later_segments_before_it_cuts(tmp_path):
    class Order(Files):
        def __init__(self):
            self.done = []

        def rename(self, old, new):
            self.done.append("rename" if new.endswith(".deleted") else "other")
            super().rename(old, new)

        def truncate(self, file, size):
            self.done.append("cut" if file.path.endswith(".log") else "other")
            super().truncate(file, size)

    bench = Bench(tmp_path, files=Order(), segment_bytes=400)
    log = bench.load()
    log.append([batch(number) for number in range(30)], 0)
    bench.files.done.clear()
    log.truncate_to(2)
    assert bench.files.done.count("cut") == 1
    assert "rename" not in bench.files.done[bench.files.done.index("cut") :]


def test_deleted_segments_are_freed_without_the_garbage_collector(tmp_path):
    bench = Bench(tmp_path, retention_ms=HOUR)

    def segments_come_and_go():
        log = filled(bench)
        log.append([batch("late")], 0)
        assert log.delete_old_segments() == 8
        bench.scheduler.run_all()
        log.flush()
        log.abandon()
        shutil.rmtree(log.dir)

    assert objects_left_in_cycles(segments_come_and_go, 5) == {}


def test_a_crash_brings_no_leader_epoch_back_that_a_truncation_has_removed(tmp_path):
    bench = Bench(tmp_path)
    log = bench.load()
    log.assign_leader_epoch(0)
    log.append([batch("a", "b")], 0)
    log.assign_leader_epoch(1)
    log.truncate_to(1)
    follower_of_epoch_0 = batch("x", "y", "z")
    follower_of_epoch_0[0:8] = (1).to_bytes(8)
    follower_of_epoch_0[12:16] = (0).to_bytes(4)
    log.append_as_follower(follower_of_epoch_0, 2)
    log.abandon()  # before any scheduled task has run
    assert bench.load(clean=False).leader_epochs.entries == ((0, 0),)
