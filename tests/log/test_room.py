"""What appends remember about the active segment stays right when something else changes the log."""

from __future__ import annotations

import errno

import pytest

from kafkapy.errors import KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.partition_log import BUSY
from tests.log.support import NOW, Bench, FailingFiles, batch, values_of


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def segments_of(log):
    return [segment.base_offset for segment in log.segments]


def test_a_lower_segment_bytes_holds_for_the_next_append(bench):
    log = bench.load()
    log.append([batch("a"), batch("b")], 0)
    log.update_config(LogConfig({"segment.bytes": len(batch("a")) * 2}))
    assert log.append([batch("c")], 0, blocking=False) is BUSY
    log.append([batch("c")], 0)
    assert segments_of(log) == [0, 2]


def test_a_truncated_segment_has_room_again(tmp_path):
    log = Bench(tmp_path, segment_bytes=len(batch("a")) * 3).load()
    log.append([batch("a"), batch("b"), batch("c")], 0)
    log.truncate_to(1)
    (result,) = log.append([batch("d")], 0, blocking=False)
    assert result.base_offset == 1
    assert segments_of(log) == [0]


def test_appends_between_two_index_entries_need_no_entry(tmp_path):
    log = Bench(tmp_path, segment_index_bytes=48).load()  # room for three entries, of which 4 KiB need one
    for number in range(20):
        log.append([batch(number)], 0)
    assert segments_of(log) == [0]


def test_an_append_after_a_full_disk_begins_where_the_last_write_ended(tmp_path):
    files = FailingFiles(only=("write",), error=errno.ENOSPC)
    log = Bench(tmp_path, files=files, segment_bytes=len(batch("a")) * 3).load()
    log.append([batch("a")], 0)
    files.fail_at = files.count + 1
    for verdict in log.append([batch("b"), batch("c")], 0):
        assert isinstance(verdict, KafkaError)
    (result,) = log.append([batch("d")], 0)
    assert result.base_offset == 1
    log.append([batch("e")], 0, blocking=False)
    assert values_of(log) == [(0, b"a"), (1, b"d"), (2, b"e")]
    assert segments_of(log) == [0]


def test_the_age_of_a_segment_without_timestamps_counts_at_each_append(tmp_path):
    bench = Bench(tmp_path, segment_ms=1000)
    log = bench.load()
    log.append([batch("a", timestamp=-1)], 0)
    log.append([batch("b", timestamp=NOW)], 0)
    assert segments_of(log) == [0]
    bench.clock.advance(2)
    log.append([batch("c", timestamp=NOW)], 0)
    assert segments_of(log) == [0, 2]
