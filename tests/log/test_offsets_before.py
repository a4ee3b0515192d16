"""Base offsets of the segments written before a time, for ListOffsets of clients before Kafka 0.10.1."""

import os

import pytest

from kafkapy.log.reading.time_lookup import EARLIEST, LATEST

from .support import NOW, Bench, batch

MINUTE = 60_000


@pytest.fixture
def log(tmp_path):
    """Return a log with segments 0, 2, 4 and 6 (active), written a minute apart, the last a minute ago."""
    log = Bench(tmp_path).load()
    for number in range(4):
        if number:
            log.roll()
        log.append([batch(f"a{number}"), batch(f"b{number}")], 0)
    log.set_high_watermark(8)
    for at, segment in enumerate(log.segments):
        os.utime(segment.handle().path, ns=(0, (NOW - (4 - at) * MINUTE) * 1_000_000))
    return log


@pytest.mark.parametrize(
    ("timestamp", "count", "expected"),
    [
        (LATEST, 1, [8]),
        (LATEST, 3, [8, 6, 4]),
        (LATEST, 100, [8, 6, 4, 2, 0]),
        (LATEST, 0, []),
        (EARLIEST, 1, [0]),
        (EARLIEST, 100, [0]),
        (NOW - 4 * MINUTE - 1, 5, []),
        (NOW - 4 * MINUTE, 5, [0]),
        (NOW - 2 * MINUTE, 5, [4, 2, 0]),
        (NOW - 2 * MINUTE + 1, 2, [4, 2]),
        (NOW - 1, 1, [6]),
        (NOW, 1, [8]),
        (-3, 5, []),
    ],
)
def test_offsets_are_those_of_segments_written_by_then_newest_first(log, timestamp, count, expected):
    assert log.offsets_before(timestamp, count) == expected


def test_an_empty_last_segment_is_the_end_itself(log):
    log.roll()
    assert log.offsets_before(LATEST, 2) == [8, 6]


def test_a_segment_with_the_log_start_inside_begins_there(log):
    log.delete_records(3)
    assert log.offsets_before(LATEST, 100) == [8, 6, 4, 3, 3]  # the first segment is not deleted yet


def test_an_empty_log_has_its_start(tmp_path):
    log = Bench(tmp_path).load()
    assert log.offsets_before(LATEST, 5) == log.offsets_before(EARLIEST, 5) == [0]
