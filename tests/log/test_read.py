"""Reads find the region for an offset without a lock, and without waiting if the caller must not wait."""

import logging
import os
import struct

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.partition_log import BUSY
from kafkapy.log.storage.files import Files
from tests.harness.batches import iter_batches

from .support import NOW, Bench, batch, values_of


def filled(tmp_path, count=100, each=1, **settings):
    log = Bench(tmp_path, **{"segment_bytes": 1500, "index_interval_bytes": 200, **settings}).load()
    for start in range(0, count, 10):
        log.append([batch(*[f"{number}.{part}" for part in range(each)]) for number in range(start, start + 10)], 0)
    return log


def first_batch(result):
    return next(iter(iter_batches(result.region.read())))


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("reopened", [False, True])
def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path, each, reopened):
    log = filled(tmp_path, each=each)
    if reopened:
        log.close()
        log = Bench(tmp_path, segment_bytes=1500, index_interval_bytes=200).load()
    for offset in range(log.log_end_offset):
        found = log.read(offset, 500, max_offset=log.log_end_offset)
        assert first_batch(found).base_offset == offset - offset % each
        assert found.region.length <= 500
        assert found.segment_base in log.segments.base_offsets


def test_consecutive_reads_return_every_record_once(tmp_path):
    log = filled(tmp_path, each=2)
    for max_bytes in (1, 100, 1000, 1 << 20):
        assert [offset for offset, _ in values_of(log, 0, max_bytes)] == list(range(200))


def test_offsets_outside_the_log_are_refused(tmp_path):
    log = filled(tmp_path)
    log.set_high_watermark(100)
    log.delete_records(30)
    for offset in (-1, 0, 29, 101, 1 << 60):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 1000, max_offset=100)
        assert refused.value.code == Errors.OFFSET_OUT_OF_RANGE
    assert log.read(100, 1000, max_offset=100).region is None
    assert first_batch(log.read(30, 1000, max_offset=100)).base_offset == 30


def test_nothing_at_or_above_the_limit_is_given(tmp_path):
    log = filled(tmp_path)
    for limit in range(101):
        for offset in {0, max(limit - 1, 0), limit, min(limit + 1, 100)}:
            found = log.read(offset, 1 << 20, max_offset=limit)
            if offset >= limit:
                assert found.region is None
            else:
                assert [one.last_offset for one in iter_batches(found.region.read())][-1] < limit


def test_a_first_batch_over_the_limit_comes_whole_or_not_at_all(tmp_path):
    log = filled(tmp_path)
    for reopened in (log, Bench(tmp_path, segment_bytes=1500).load(clean=False)):
        for offset in (0, 50, 90, 99):  # found in the index, or in the remembered tail
            found = reopened.read(offset, 10, max_offset=100)
            assert found.region is None
            assert found.first_entry_incomplete
            whole = reopened.read(offset, 10, min_one=True, max_offset=100)
            assert whole.region.length == first_batch(whole).size
            assert first_batch(whole).base_offset == offset


def test_a_region_may_end_inside_a_batch_but_never_before_the_first_is_whole(tmp_path):
    log = filled(tmp_path)
    size = len(batch("0.0"))
    found = log.read(0, size + size // 2, max_offset=100)
    assert found.region.length == size + size // 2


def test_reads_continue_in_the_next_segment_after_a_gap(tmp_path):
    """Compaction leaves such gaps. Here the end of a segment is cut off."""
    log = filled(tmp_path)
    log.close()
    first, second = log.segments.base_offsets[:2]
    path = tmp_path / "t-0" / f"{first:020d}.log"
    os.truncate(path, path.stat().st_size // 2 // len(batch("0.0")) * len(batch("0.0")))
    log = Bench(tmp_path, segment_bytes=1500).load()
    assert first_batch(log.read(second - 1, 1000, max_offset=100)).base_offset == second


def test_a_reader_in_the_middle_of_a_deleted_segment_finishes(tmp_path):
    log = filled(tmp_path)
    log.set_high_watermark(100)
    region = log.read(0, 1 << 20, max_offset=100).region
    before = region.read()
    log.delete_records(100)
    log.delete_old_segments()
    log.env._scheduler.run_all()
    assert not (tmp_path / "t-0" / f"{0:020d}.log").exists()
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    assert region.read() == before


def test_a_read_that_lost_the_race_with_a_deletion_is_out_of_range(tmp_path):
    log = filled(tmp_path)
    log.close()
    log = Bench(tmp_path, segment_bytes=1500).load()  # no file is open yet
    log.set_high_watermark(100)

    class Racing(Files):
        def open(self, path, *, create=False):
            log.segments.items[0].files = Files()
            log.delete_records(100)
            log.delete_old_segments()
            return super().open(path, create=create)

    log.segments.items[0].files = Racing()
    with pytest.raises(KafkaError) as refused:
        log.read(0, 1000, max_offset=100)
    assert refused.value.code == Errors.OFFSET_OUT_OF_RANGE


def test_a_read_that_may_not_wait_is_busy_when_the_place_is_not_in_memory(tmp_path):
    log = filled(tmp_path)
    log.close()
    log = Bench(tmp_path, segment_bytes=1500).load()

    class Cold(Files):
        def locate(self, file, position, end, offset, nowait=False):
            if nowait:
                raise BlockingIOError
            return super().locate(file, position, end, offset)

    log.segments.items[0].files = Cold()
    assert log.read(3, 1000, max_offset=100, blocking=False) is BUSY
    assert first_batch(log.read(3, 1000, max_offset=100)).base_offset == 3
    assert first_batch(log.read(99, 1000, max_offset=100)).base_offset == 99
    assert first_batch(log.read(99, 1000, max_offset=100, blocking=False)).base_offset == 99


def test_a_read_that_may_not_wait_opens_no_file_to_search_in(tmp_path):
    """Opening a file may wait for the disk, which has to look up the name."""
    log = filled(tmp_path)
    log.append([batch("last")], 0)
    opened = []

    class Watched(Files):
        def open(self, path, *, create=False):
            opened.append(os.path.basename(path))
            return super().open(path, create=create)

    segment = log.segments.items[0]
    segment.release()
    segment.files = segment.offset_index.files = Watched()
    assert log.read(3, 1000, max_offset=100, blocking=False) is BUSY
    assert not opened
    assert first_batch(log.read(3, 1000, max_offset=100)).base_offset == 3
    assert first_batch(log.read(3, 1000, max_offset=100, blocking=False)).base_offset == 3
    assert set(opened) == {f"{0:020d}.index", f"{0:020d}.log"}


def test_an_index_that_is_wrong_is_passed_over(tmp_path, caplog):
    log = filled(tmp_path)
    log.close()
    path = tmp_path / "t-0" / f"{0:020d}.index"
    count = path.stat().st_size // 8
    path.write_bytes(b"".join(struct.pack(">ii", 1 + entry, 7 + entry) for entry in range(count)))
    log = Bench(tmp_path, segment_bytes=1500).load()
    with caplog.at_level(logging.WARNING):
        assert first_batch(log.read(5, 1000, max_offset=100)).base_offset == 5
    assert "the index is wrong" in caplog.text


def test_a_broken_segment_is_a_corrupt_message(tmp_path):
    log = filled(tmp_path)
    log.close()
    with open(tmp_path / "t-0" / f"{0:020d}.log", "r+b") as file:
        file.seek(8)
        file.write(bytes(4))
    log = Bench(tmp_path, segment_bytes=1500).load()
    with pytest.raises(KafkaError) as refused:
        log.read(0, 1000, max_offset=100)
    assert refused.value.code == Errors.CORRUPT_MESSAGE


# --- by time


def stamped(tmp_path, stamps, **settings):
    log = Bench(tmp_path, index_interval_bytes=100, message_timestamp_before_max_ms=1 << 60, **settings).load()
    for number, stamp in enumerate(stamps):
        log.append([batch(number, timestamp=stamp)], 0)
    return log


def test_a_time_is_found_as_in_a_plain_list(tmp_path):
    stamps = [NOW - 5000 + 37 * (number % 7) + 10 * number for number in range(120)]
    log = stamped(tmp_path, stamps, segment_bytes=1500)
    log.set_high_watermark(120)
    for start in (0, 50):
        log.delete_records(start)
        for wanted in [0, *range(min(stamps) - 1, max(stamps) + 2, 13), *stamps]:
            expected = next((at for at in range(start, 120) if stamps[at] >= wanted), None)
            found = log.offset_for_timestamp(wanted)
            assert (found.offset if found else None) == expected
            if found:
                assert (found.timestamp, found.leader_epoch) == (stamps[expected], 0)


def test_the_largest_timestamp_is_the_first_record_that_has_it(tmp_path):
    log = stamped(tmp_path, [NOW - 50, NOW - 10, NOW - 30, NOW - 10, NOW - 20], segment_bytes=200)
    found = log.offset_of_max_timestamp(log.log_end_offset)
    assert (found.timestamp, found.offset, found.leader_epoch) == (NOW - 10, 1, 0)


@pytest.mark.parametrize("growing", [True, False])
def test_the_largest_timestamp_below_an_offset_is_that_of_a_plain_list(tmp_path, growing):
    """This holds in rolled segments and in the active one, with the indexes in memory or in their files."""
    stamps = [NOW - 5000 + 37 * (number % 7) + 10 * number - 3000 * (number > 90) for number in range(120)]
    log = stamped(tmp_path, stamps, segment_bytes=3000)
    if not growing:
        log.close()
        log = Bench(tmp_path).load()
    assert len(log.segments) == 3
    for end in range(121):
        found = log.offset_of_max_timestamp(end)
        largest = max(stamps[:end], default=None)
        expected = None if largest is None else (largest, stamps.index(largest))
        assert (found and (found.timestamp, found.offset)) == expected


def test_a_search_by_time_while_an_append_is_between_its_index_entries_and_the_end_of_the_log(tmp_path):
    log = stamped(tmp_path, [NOW - 50, NOW - 10, NOW - 30], segment_bytes=1500)
    end, publish, answers = log.log_end_offset, log.appended_locked, []

    def appended(*arguments):
        answers.append((log.offset_of_max_timestamp(end), log.offset_for_timestamp(NOW - 30)))
        publish(*arguments)

    log.appended_locked = appended
    for number in range(30):  # more than fit into a segment
        log.append([batch(number, timestamp=NOW + number)], 0)
    assert len(log.segments) > 1
    assert answers == [((NOW - 10, 1, 0), (NOW - 10, 1, 0))] * 30


def test_an_empty_log_has_no_times(tmp_path):
    log = stamped(tmp_path, [])
    assert log.offset_of_max_timestamp(log.log_end_offset) is None
    assert log.offset_for_timestamp(0) is None


def test_the_largest_timestamp_survives_a_restart_and_a_truncation(tmp_path):
    log = stamped(tmp_path, [NOW - 50, NOW - 10, NOW - 30, NOW - 5])
    log.close()
    log = Bench(tmp_path).load()
    assert log.offset_of_max_timestamp(log.log_end_offset).offset == 3
    log.truncate_to(3)
    assert log.offset_of_max_timestamp(log.log_end_offset).offset == 1


def test_a_read_that_may_cut_gives_as_many_bytes_as_allowed(tmp_path):
    log = filled(tmp_path)
    for reopened in (log, Bench(tmp_path, segment_bytes=1500).load(clean=False)):
        for offset in (0, 50, 90, 99):
            whole = reopened.read(offset, 1 << 20, max_offset=100).region
            for max_bytes in (1, 10, 61, 1000, 1 << 20):
                found = reopened.read(offset, max_bytes, cut=True, max_offset=100).region
                assert found.read() == whole.read()[:max_bytes]
            assert reopened.read(offset, 0, cut=True, max_offset=100).region is None
        assert reopened.read(100, 10, cut=True, max_offset=100).region is None


def test_a_position_that_a_reader_finds_too_late_is_not_used_after_a_truncation(tmp_path):
    log = Bench(tmp_path).load()
    for value in "abc":
        log.append([batch(value)], 0)
    before, (_, segment, end) = log.snapshot()
    log.roll()
    assert log.segments.position(2) == before.position(2)  # a roll keeps the remembered positions
    log.truncate_to(1)
    before.remember(2, (segment, end))
    assert log.segments.position(2) is None
    log.append([batch("longer " * 20), batch("e")], 0)
    assert values_of(log, 2) == [(2, b"e")]
