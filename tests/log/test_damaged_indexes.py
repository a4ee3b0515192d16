"""Damaged indexes of a log that was stopped cleanly are found, logged once, and rebuilt."""

import logging
import struct

import pytest

from kafkapy.log.indexes.offset_index import OffsetIndex
from kafkapy.log.indexes.time_index import TimeIndex
from kafkapy.log.results import BUSY

from .support import NOW, At, Bench, batch, contents, values_of

SETTINGS = {"segment_bytes": 1500, "index_interval_bytes": 100}
COUNT = 60


@pytest.fixture
def closed(tmp_path):
    """Return the log directory of a closed log with several segments, each with several index entries."""
    log = Bench(tmp_path, **SETTINGS).load()
    for number in range(COUNT):
        log.append([batch(number, timestamp=NOW + number)], 0)
    log.close()
    assert len(log.segments) > 2
    assert log.segments.items[0].offset_index.count > 5
    return tmp_path


def damaged(directory, suffix, change, segment=0):
    """Apply `change` to the index file of one segment. Return its path."""
    path = sorted((directory / "t-0").glob(f"*{suffix}"))[segment]
    path.write_bytes(change(path.read_bytes()))
    return path


OFFSETS = {
    "zeroed": lambda data: bytes(len(data)),
    "zeros at its end": lambda data: data + bytes(800),
    "longer than its log": lambda data: data + b"".join(struct.pack(">ii", 500 + n, 1400 + n) for n in range(400)),
    "decreasing": lambda data: data[8:16] + data[:8] + data[16:],
    "the same position twice": lambda data: data[:8] + data[8:12] + data[4:8] + data[16:],
    "negative": lambda data: b"\xff" * 8 + data[8:],
    "not whole entries": lambda data: data[:-3],
    "another file": lambda data: b"nonsense" * (len(data) // 8),
}
TIMES = {
    "zeroed": lambda data: bytes(len(data)),
    "zeros at its end": lambda data: data + bytes(1200),
    "decreasing": lambda data: data[12:24] + data[:12] + data[24:],
    "offsets that go back": lambda data: data[:8] + struct.pack(">i", 9999) + data[12:],
    "not whole entries": lambda data: data + b"\0",
}


@pytest.mark.parametrize("change", OFFSETS.values(), ids=OFFSETS)
def test_records_are_found_with_a_damaged_offset_index_which_is_rebuilt(closed, caplog, change):
    before = contents(closed / "t-0")
    path = damaged(closed, ".index", change)
    bench = Bench(closed, **SETTINGS)
    with caplog.at_level(logging.WARNING):
        log = bench.load()
        assert log.segments.items[0].base_offset == 0
        assert values_of(log) == [(number, str(number).encode()) for number in range(COUNT)]
        assert log.read(7, 10_000, max_offset=COUNT).region.read()[:8] == struct.pack(">q", 7)
        bench.scheduler.run("indexes")
    assert caplog.text.count("rebuilt the indexes") == 1
    assert path.read_bytes() == before[path.name]
    assert log.segments.items[0].offset_index.check()
    assert log.read(7, 10_000, max_offset=COUNT).region.read()[:8] == struct.pack(">q", 7)
    log.close()
    after = contents(closed / "t-0")
    assert {name for name in before if after[name] != before[name]} == set()
    assert set(after) == set(before)


@pytest.mark.parametrize("change", TIMES.values(), ids=TIMES)
def test_times_are_found_with_a_damaged_time_index_which_is_rebuilt(closed, change):
    before = contents(closed / "t-0")
    path = damaged(closed, ".timeindex", change)
    bench = Bench(closed, **SETTINGS)
    log = bench.load()
    first = log.segments.items[0]
    assert first.largest_timestamp() != 0  # otherwise retention would delete the segment
    bench.scheduler.run("indexes")
    assert path.read_bytes() == before[path.name]
    assert first.largest_timestamp() == NOW + log.segments.base_offsets[1] - 1
    for number in (0, 5, COUNT - 1):
        assert log.offset_for_timestamp(NOW + number).offset == number
    log.close()


@pytest.mark.parametrize("change", OFFSETS.values(), ids=OFFSETS)
def test_the_end_of_a_log_is_right_though_the_index_of_its_active_segment_is_damaged(closed, change):
    damaged(closed, ".index", change, segment=-1)
    log = Bench(closed, **SETTINGS).load()
    assert log.log_end_offset == COUNT
    assert log.append([batch("on")], 0)[0].base_offset == COUNT
    assert len(values_of(log)) == COUNT + 1


def test_a_network_thread_does_not_wait_for_the_check(closed):
    log = Bench(closed, **SETTINGS).load()
    assert log.read(7, 100, max_offset=COUNT, blocking=False) is BUSY
    assert log.read(7, 100, max_offset=COUNT).region is not None
    assert log.read(7, 100, max_offset=COUNT, blocking=False).region is not None


def test_a_segment_that_goes_meanwhile_is_not_repaired(closed, caplog):
    path = damaged(closed, ".index", OFFSETS["zeroed"])
    bench = Bench(closed, **SETTINGS)
    log = bench.load()
    values_of(log)
    log.set_high_watermark(COUNT)
    log.delete_records(log.segments.base_offsets[1])
    assert log.delete_old_segments() == 1
    bench.scheduler.run("indexes")
    assert "rebuilt the indexes" not in caplog.text
    assert not path.exists()
    assert not [name for name in bench.names() if name.endswith(".tmp")]


def test_a_truncation_inside_a_segment_works_with_damaged_indexes(closed):
    damaged(closed, ".index", OFFSETS["zeroed"])
    damaged(closed, ".timeindex", TIMES["zeroed"])
    log = Bench(closed, **SETTINGS).load()
    log.truncate_to(5)
    assert log.log_end_offset == 5
    assert log.append([batch("on")], 0)[0].base_offset == 5
    assert [offset for offset, _ in values_of(log)] == list(range(6))


def test_an_interrupted_repair_leaves_nothing_behind(closed):
    (closed / "t-0" / f"{0:020d}.index.tmp").write_bytes(b"half")
    bench = Bench(closed, **SETTINGS)
    bench.load()
    assert f"{0:020d}.index.tmp" not in bench.names()


@pytest.mark.parametrize("index", [OffsetIndex, TimeIndex])
def test_an_empty_index_is_in_order(tmp_path, index):
    bench = Bench(tmp_path)
    rebuilt = index(bench.files, At(tmp_path / "x"), 0, 1200)
    rebuilt.create()
    rebuilt.trim()
    rebuilt.seal()
    rebuilt.open(0)
    assert rebuilt.check()
