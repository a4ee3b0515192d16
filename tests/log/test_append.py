"""Appends: offsets, verdicts, the index entries that Kafka's tool expects, rolls, and calls that must not block."""

import itertools
import struct

import pytest

from kafkapy._ext.record_writer import coordinator_batch
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append import rules as append_rules
from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.config import LogConfig
from kafkapy.log.partition_log import BUSY, AppendResult
from kafkapy.log.storage.files import Files
from kafkapy.record.compression import GZIP
from tests.harness.batches import iter_batches

from .support import NOW, Bench, FailingFiles, batch, idempotent, values_of

DAY = 86_400_000
VALUES = [b"", b"v", bytes(90), b"w", bytes(200), b"x"]
SIDES = ("short", "long")


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def offsets(verdicts):
    return [(one.base_offset, one.last_offset) for one in verdicts]


def codes(verdicts):
    return [one.code if isinstance(one, KafkaError) else 0 for one in verdicts]


def test_offsets_and_leader_epoch_are_written_into_the_batches(bench):
    log = bench.load()
    assert offsets(log.append([batch("a", "b"), batch("c")], 3)) == [(0, 1), (2, 2)]
    assert offsets(log.append([batch("d")], 3)) == [(3, 3)]
    data = log.read(0, 1 << 20, max_offset=4).region.read()
    assert [(one.base_offset, one.last_offset, one.leader_epoch) for one in iter_batches(data)] == [
        (0, 1, 3),
        (2, 2, 3),
        (3, 3, 3),
    ]
    assert log.end_offset_for_epoch(3) == (3, 4)


def test_a_gathered_append_is_one_write(tmp_path):
    files = FailingFiles(only={"write"})
    log = Bench(tmp_path, files=files, index_interval_bytes=1_000_000).load()
    log.append([batch("before")], 0)
    files.log.clear()
    log.append([batch(number) for number in range(100)], 0)
    assert files.log == ["write"]
    assert [value for _, value in values_of(log, 1)] == [str(number).encode() for number in range(100)]


def test_each_set_of_a_gathered_append_has_its_own_verdict(bench):
    log = bench.load()
    broken = batch("broken")
    broken[-1] ^= 1
    verdicts = log.append([batch("a"), broken, memoryview(bytearray(3)), batch("b")], 0)
    assert codes(verdicts) == [0, Errors.CORRUPT_MESSAGE, Errors.INVALID_RECORD, 0]
    assert values_of(log) == [(0, b"a"), (1, b"b")]


def test_an_empty_append_does_nothing(bench):
    log = bench.load()
    assert log.append([], 0) == []
    assert log.log_end_offset == 0


def test_a_batch_over_max_message_bytes_is_refused(tmp_path):
    log = Bench(tmp_path, max_message_bytes=200).load()
    assert codes(log.append([batch("a"), batch("x" * 200), batch("b")], 0)) == [0, Errors.MESSAGE_TOO_LARGE, 0]


def test_a_batch_that_no_segment_can_hold_is_refused(tmp_path):
    log = Bench(tmp_path, segment_bytes=300).load()
    verdicts = log.append([batch("a"), batch("x" * 300), batch("b")], 0)
    assert codes(verdicts) == [0, Errors.RECORD_LIST_TOO_LARGE, 0]
    assert "300" in verdicts[1].message


def test_log_append_time_is_returned_and_stored(tmp_path):
    bench = Bench(tmp_path, message_timestamp_type="LogAppendTime")
    log = bench.load()
    (verdict,) = log.append([batch("a", timestamp=1)], 0)
    assert verdict == AppendResult(0, 0, NOW, 0)
    assert log.offset_of_max_timestamp(log.log_end_offset).timestamp == NOW


def test_a_busy_append_can_be_repeated_with_the_same_bytes(tmp_path):
    """The first call must not mark the batch as LogAppendTime, since it will be validated again."""
    bench = Bench(tmp_path, message_timestamp_type="LogAppendTime", segment_bytes=200)
    log = bench.load()
    log.append([batch("x" * 60)], 0)
    records = batch("y" * 60)
    assert log.append([records], 0, blocking=False) is BUSY
    assert offsets(log.append([records], 0)) == [(1, 1)]


# --- indexes


def entries(path, layout):
    return list(struct.iter_unpack(layout, path.read_bytes()))


def test_every_set_is_indexed_as_an_append_of_its_own(tmp_path):
    """As DumpLogSegments --verify-index-only requires, an entry is the last offset and the position of one batch."""
    bench = Bench(tmp_path, index_interval_bytes=300)
    log = bench.load()
    for start in range(0, 200, 40):
        log.append([batch(number, number, timestamp=NOW + number) for number in range(start, start + 40)], 0)
    log.close()
    data = (tmp_path / "t-0" / f"{0:020d}.log").read_bytes()
    batches = {one.last_offset: one for one in iter_batches(data)}
    found = entries(tmp_path / "t-0" / f"{0:020d}.index", ">ii")
    assert len(found) > 20
    for offset, position in found:
        assert batches[offset].position == position
    gaps = [after - before for (_, before), (_, after) in itertools.pairwise(found)]
    assert all(300 < gap <= 300 + 2 * 90 for gap in gaps)
    times = entries(tmp_path / "t-0" / f"{0:020d}.timeindex", ">qi")
    assert [batches[offset].max_timestamp for _, offset in times] == [stamp for stamp, _ in times]
    assert times[-1] == (NOW + 199, log.log_end_offset - 1)
    assert [offset for offset, _ in found] == [offset for _, offset in times[: len(found)]]


def test_the_active_segments_index_files_have_full_length_and_no_blocks(bench, tmp_path):
    log = bench.load()
    log.append([batch("a")], 0)
    for suffix, width in ((".index", 8), (".timeindex", 12)):
        state = (tmp_path / "t-0" / f"{0:020d}{suffix}").stat()
        assert state.st_size == (10 << 20) // width * width
        assert state.st_blocks == 0
    log.close()
    assert (tmp_path / "t-0" / f"{0:020d}.index").stat().st_size == 0


# --- rolls


def bases(log):
    return log.segments.base_offsets


def test_the_log_rolls_by_size_within_a_gathered_append(tmp_path):
    log = Bench(tmp_path, segment_bytes=250).load()
    size = len(batch("a"))
    log.append([batch("a") for _ in range(10)], 0)
    each = 250 // size
    assert bases(log) == list(range(0, 10, each))
    assert all(segment.size <= 250 for segment in log.segments)
    assert len(values_of(log)) == 10


def test_the_log_rolls_by_the_records_time(tmp_path):
    log = Bench(tmp_path, segment_ms=DAY, message_timestamp_before_max_ms=1 << 50).load()
    stamps = [NOW - 10 * DAY, NOW - 9 * DAY, NOW - 9 * DAY + 1, NOW - 8 * DAY, NOW]
    log.append([batch(number, timestamp=stamp) for number, stamp in enumerate(stamps)], 0)
    assert bases(log) == [0, 2, 4]


def test_the_log_rolls_by_the_clock_where_records_have_no_time(tmp_path):
    bench = Bench(tmp_path, segment_ms=DAY, message_timestamp_before_max_ms=1 << 62)
    log = bench.load()
    log.append([batch("a", timestamp=-1)], 0)
    bench.clock.advance(DAY / 1000)
    log.append([batch("b", timestamp=-1)], 0)
    assert bases(log) == [0]
    bench.clock.advance(1)
    log.append([batch("c", timestamp=-1)], 0)
    assert bases(log) == [0, 2]


def test_jitter_makes_a_segment_roll_earlier(tmp_path):
    log = Bench(tmp_path, segment_ms=DAY, segment_jitter_ms=DAY, message_timestamp_before_max_ms=1 << 50).load()
    jitter = log.segments.active.roll_jitter_ms
    assert 0 <= jitter < DAY
    log.append([batch(0, timestamp=0), batch(1, timestamp=DAY - jitter), batch(2, timestamp=DAY - jitter + 1)], 0)
    assert bases(log) == [0, 2]


@pytest.mark.parametrize("index_bytes", [4, 16, 48])
def test_the_log_rolls_when_an_index_is_full(tmp_path, index_bytes):
    log = Bench(tmp_path, segment_index_bytes=index_bytes, index_interval_bytes=0).load()
    for start in range(0, 30, 10):
        log.append([batch(number, timestamp=NOW + number) for number in range(start, start + 10)], 0)
    assert len(values_of(log)) == 30
    usable = max(min(index_bytes // 8, index_bytes // 12 - 1), 0)
    for segment in log.segments.items[:-1]:
        assert segment.offset_index.count <= max(usable, 1)
    assert len(log.segments) >= 30 // (usable + 2)


def test_an_offset_too_far_from_the_segments_base_rolls(bench, tmp_path):
    log = bench.load()
    log.append([batch("a")], 0)
    log.end = ((1 << 31) - 1, *log.end[1:])
    log.append([batch("b")], 0)
    assert bases(log) == [0]
    log.append([batch("c")], 0)
    assert bases(log) == [0, 1 << 31]


def test_a_roll_seals_the_old_segment_and_syncs_it_in_the_background(tmp_path):
    bench = Bench(tmp_path, segment_bytes=250, index_interval_bytes=0)
    log = bench.load()
    log.append([idempotent("x", sequence=0)], 0)
    log.append([idempotent("y", sequence=1)], 0)
    log.roll()
    assert bases(log) == [0, 2]
    assert (tmp_path / "t-0" / f"{0:020d}.index").stat().st_size == 8
    assert (tmp_path / "t-0" / f"{2:020d}.snapshot").exists()
    assert log.recovery_point == 0
    bench.scheduler.run("flush")
    assert log.recovery_point == 2
    log.roll()
    assert bases(log) == [0, 2]  # the active segment is empty: nothing to do


def test_preallocated_segments_are_trimmed_when_they_are_done(tmp_path):
    log = Bench(tmp_path, segment_bytes=4096, preallocate=True).load()
    log.append([batch("a")], 0)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    assert path.stat().st_size == 4096
    log.roll()
    assert path.stat().st_size == len(batch("a"))
    assert values_of(log) == [(0, b"a")]


# --- calls that must not block


def test_an_append_that_may_not_block_is_done_when_nothing_is_in_its_way(bench):
    log = bench.load()
    log.assign_leader_epoch(0)
    assert offsets(log.append([batch("a")], 0, blocking=False)) == [(0, 0)]


def test_an_append_that_may_not_block_is_busy_while_another_holds_the_lock(bench):
    log = bench.load()
    log.assign_leader_epoch(0)
    with log.lock:
        assert log.append([batch("a")], 0, blocking=False) is BUSY
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"segment_bytes": 250},
        {"segment_ms": DAY},
        {"segment_index_bytes": 36, "index_interval_bytes": 0},
        {"flush_messages": 4},
    ],
)
def test_an_append_that_may_not_block_is_busy_before_a_roll_or_a_flush(tmp_path, settings):
    log = Bench(tmp_path, **settings).load()
    log.append([batch(number, timestamp=NOW - 2 * DAY + number) for number in range(3)], 0)
    assert log.append([batch("late")], 0, blocking=False) is BUSY
    assert log.log_end_offset == 3
    assert offsets(log.append([batch("late")], 0)) == [(3, 3)]


def test_an_append_after_a_pause_waits_for_the_page_that_the_log_ends_in(tmp_path):
    """If the page is not in memory, the kernel reads it from the disk before the write."""

    class Cold(Files):
        asked = 0
        warm = True

        def in_memory(self, file, position):
            self.asked += 1
            return self.warm

    files = Cold()
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    log.append([batch("a")], 0)
    for _ in range(2):
        assert log.append([batch("a")], 0, blocking=False) is not BUSY
    assert files.asked == 1  # not asked again so soon
    files.warm = False
    bench.clock.advance(11)
    assert log.append([batch("b")], 0, blocking=False) is BUSY
    log.append([batch("c")], 0)
    files.warm = True
    for _ in range(2):
        assert log.append([batch("d")], 0, blocking=False) is not BUSY
    assert files.asked == 3
    assert [value for _, value in values_of(log)] == [b"a"] * 3 + [b"c", b"d", b"d"]


def test_an_append_that_may_not_block_is_busy_in_a_new_leader_epoch(bench):
    log = bench.load()
    log.append([batch("a")], 0)
    assert log.append([batch("b")], 1, blocking=False) is BUSY
    log.assign_leader_epoch(1)
    assert offsets(log.append([batch("b")], 1, blocking=False)) == [(1, 1)]
    assert log.end_offset_for_epoch(0) == (0, 1)


# --- appends of coordinators, on a network thread


def own(log, *sets):
    """Append the sets as a coordinator does. Return for each its verdict, or BUSY if the append would wait."""
    found = [log.append([OwnBatch(one)], 0, blocking=False) for one in sets]
    return [one if one is BUSY else one[0] for one in found]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"index_interval_bytes": 100},
        {"cleanup_policy": "compact"},
        {"message_timestamp_type": "LogAppendTime"},
        {"compression_type": "gzip"},
    ],
)
def test_a_coordinators_batches_leave_the_same_log_as_other_appends(tmp_path, settings):
    logs = [Bench(tmp_path / name, **settings).load() for name in SIDES]
    for log in logs:
        log.assign_leader_epoch(0)
    sets = [
        [memoryview(coordinator_batch([(b"k", value), (b"gone", None)], NOW + at)) for at, value in enumerate(VALUES)]
        for _ in logs
    ]
    short = own(logs[0], *sets[0])
    assert [[one] for one in short] == [logs[1].append([OwnBatch(one)], 0) for one in sets[1]]
    assert short[-1].last_offset == 2 * len(VALUES) - 1
    for log in logs:
        log.close()
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / side / "t-0").iterdir()} for side in SIDES)
    assert first == second


def test_a_coordinators_batch_that_is_too_large_is_refused(tmp_path):
    log = Bench(tmp_path, max_message_bytes=200).load()
    log.assign_leader_epoch(0)
    sets = [memoryview(coordinator_batch([(b"k", bytes(size))], NOW)) for size in (50, 300)]
    assert codes(own(log, *sets)) == [0, Errors.MESSAGE_TOO_LARGE]
    assert log.log_end_offset == 1


def test_a_coordinators_batch_waits_for_the_lock_and_for_a_roll(tmp_path):
    log = Bench(tmp_path, segment_bytes=150).load()
    log.assign_leader_epoch(0)
    sets = [memoryview(coordinator_batch([(b"k", bytes(20))], NOW)) for _ in range(2)]
    with log.lock:
        assert own(log, sets[0]) == [BUSY]
    assert offsets(own(log, sets[0])) == [(0, 0)]
    assert own(log, sets[1]) == [BUSY]
    assert log.log_end_offset == 1


def test_a_coordinators_batch_on_a_full_disk_is_refused_and_leaves_nothing(tmp_path):
    files = FailingFiles(3, only={"write"}, torn=True)  # the leader epoch is the first
    log = Bench(tmp_path, files=files).load()
    log.assign_leader_epoch(0)
    sets = [memoryview(coordinator_batch([(b"k", b"v")], NOW)) for _ in range(3)]
    assert codes(own(log, *sets)) == [0, Errors.KAFKA_STORAGE_ERROR, 0]
    assert [(one.base_offset, one.last_offset) for one in headers(log)] == [(0, 0), (1, 1)]


def headers(log):
    return list(iter_batches(log.read(0, 1 << 20, max_offset=log.log_end_offset).region.read()))


def test_flush_messages_makes_appends_durable(tmp_path):
    files = FailingFiles(only={"sync"})
    log = Bench(tmp_path, files=files, flush_messages=3).load()
    log.append([batch("a", "b")], 0)
    assert log.recovery_point == 0
    files.log.clear()
    log.append([batch("c")], 0)
    assert log.recovery_point == 3
    assert "sync" in files.log


# --- producers


def test_a_repeated_batch_is_answered_with_its_first_offsets(bench):
    log = bench.load()
    first = log.append([idempotent("a", "b", sequence=0)], 0)
    log.append([batch("other")], 0)
    assert log.append([idempotent("a", "b", sequence=0)], 0) == [AppendResult(0, 1, NOW, 0, True)]
    assert first == [AppendResult(0, 1, -1, 0)]
    assert log.log_end_offset == 3


def test_a_repetition_within_one_gathered_append_is_found(bench):
    log = bench.load()
    verdicts = log.append([idempotent("a", sequence=0), idempotent("a", sequence=0), idempotent("b", sequence=1)], 0)
    assert [(one.base_offset, one.duplicate) for one in verdicts] == [(0, False), (0, True), (1, False)]


def test_the_last_five_batches_are_remembered(bench):
    log = bench.load()
    log.append([idempotent(number, sequence=number) for number in range(6)], 0)
    for sequence in range(1, 6):
        (verdict,) = log.append([idempotent(sequence, sequence=sequence)], 0)
        assert (verdict.base_offset, verdict.duplicate) == (sequence, True)
    assert codes(log.append([idempotent(0, sequence=0)], 0)) == [Errors.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_a_gap_in_the_sequence_is_refused_and_what_follows_it_too(bench):
    log = bench.load()
    verdicts = log.append([idempotent(0, sequence=0), idempotent(2, sequence=2), idempotent(3, sequence=3)], 0)
    assert codes(verdicts) == [0] + 2 * [Errors.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert codes(log.append([idempotent(1, sequence=1)], 0)) == [0]


def test_sequences_wrap_to_zero(bench):
    log = bench.load()
    last = (1 << 31) - 1
    verdicts = log.append([idempotent("a", "b", sequence=last - 1), idempotent("c", sequence=0)], 0)
    assert offsets(verdicts) == [(0, 1), (2, 2)]
    verdicts = log.append([idempotent("a", "b", sequence=last - 1)], 0)
    assert verdicts[0].duplicate


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero(bench):
    log = bench.load()
    log.append([idempotent("a", epoch=1, sequence=5)], 0)  # an unknown producer may begin at any sequence
    assert codes(log.append([idempotent("b", epoch=0, sequence=6)], 0)) == [Errors.INVALID_PRODUCER_EPOCH]
    assert codes(log.append([idempotent("b", epoch=2, sequence=6)], 0)) == [Errors.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert codes(log.append([idempotent("b", epoch=2, sequence=0)], 0)) == [0]


def test_a_compressed_batch_of_the_broker_is_appended_as_it_was_built(bench, monkeypatch):
    def unpacked(*_):
        raise AssertionError("the broker has built this batch itself")

    log = bench.load()
    built = bytes(batch("a" * 100, codec=GZIP))
    monkeypatch.setattr(append_rules.Validator, "__call__", unpacked)
    assert codes(log.append([OwnBatch(built)], 0)) == [0]
    segment = log.segments.active
    assert segment.files.pread(segment.handle(), segment.size, 0)[16:] == built[16:]  # the bytes after the leader epoch


def test_a_coordinators_batches_need_no_sequence(bench):
    log = bench.load()
    log.append([OwnBatch(idempotent("a", sequence=3))], 0)
    assert codes(log.append([OwnBatch(idempotent("b", sequence=9))], 0)) == [0]


def test_a_coordinators_batches_of_an_older_epoch_are_fenced(bench):
    log = bench.load()
    log.append([OwnBatch(idempotent("a", epoch=2, sequence=0))], 0)
    assert codes(log.append([OwnBatch(idempotent("b", epoch=1, sequence=0))], 0)) == [Errors.INVALID_PRODUCER_EPOCH]


def test_a_coordinators_batches_go_with_those_of_clients_whose_sequences_are_checked(bench):
    log = bench.load()
    log.append([idempotent("a", sequence=0)], 0)
    sets = [OwnBatch(idempotent("b", sequence=7)), idempotent("c", sequence=5), OwnBatch(idempotent("d", sequence=2))]
    assert codes(log.append(sets, 0)) == [0, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]
    assert [value for _, value in values_of(log)] == [b"a", b"b", b"d"]


def test_producers_expire(bench):
    log = bench.load()
    log.append([idempotent("a", sequence=0)], 0)
    assert [one.producer_id for one in log.active_producers()] == [7]
    bench.clock.advance(DAY / 1000)
    log.expire_producers()
    assert log.active_producers() == []
    assert codes(log.append([idempotent("z", sequence=40, timestamp=bench.clock.time_ms())], 0)) == [0]


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_after_a_restart(bench, clean):
    log = bench.load()
    log.append([idempotent("a", sequence=0), idempotent("b", sequence=1)], 0)
    if clean:
        log.close()
    again = bench.load(clean=clean)
    (verdict,) = again.append([idempotent("b", sequence=1)], 0)
    assert (verdict.base_offset, verdict.duplicate) == (1, True)
    assert codes(again.append([idempotent("d", sequence=3)], 0)) == [Errors.OUT_OF_ORDER_SEQUENCE_NUMBER]
    (state,) = again.active_producers()
    assert (state.producer_id, state.producer_epoch, state.last_sequence, state.last_timestamp) == (7, 0, 1, NOW)


def test_an_append_to_a_closed_log_is_refused(bench):
    log = bench.load()
    log.close()
    assert codes(log.append([batch("a"), batch("b")], 0)) == 2 * [Errors.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_rolled_segment_is_synced_though_its_records_were_flushed_before(tmp_path):
    class Synced(FailingFiles):
        def sync(self, file):
            synced.append(str(file.path))
            super().sync(file)

    synced = []
    log = Bench(tmp_path, files=Synced(), segment_bytes=600, index_interval_bytes=100, flush_messages=1).load()
    while len(log.segments) == 1:
        synced.clear()
        log.append([batch("a")], 0)
    assert log.recovery_point == log.log_end_offset
    for suffix in (".log", ".index", ".timeindex"):
        assert any(path.endswith(f"{0:020d}{suffix}") for path in synced)


def test_a_rolled_segment_loses_its_preallocated_room_even_after_the_setting_changed(tmp_path):
    bench = Bench(tmp_path, preallocate=True, segment_bytes=4096)
    log = bench.load()
    log.append([batch("a")], 0)
    log.update_config(LogConfig({"segment.bytes": 4096}))
    log.roll()
    first = log.segments.items[0]
    assert (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size == first.size


def test_the_first_append_after_a_start_is_not_one_for_a_network_thread(tmp_path):
    log = Bench(tmp_path).load()
    log.append([batch("a")], 0)
    log.close()
    files = FailingFiles(only={"read"})
    log = Bench(tmp_path, files=files).load()
    files.log.clear()
    assert log.append([batch("b")], 0, blocking=False) is BUSY
    assert files.log == []
    assert log.append([batch("b")], 0)[0].base_offset == 1
    assert log.append([batch("c")], 0, blocking=False)[0].base_offset == 2


def test_sets_that_were_not_written_for_lack_of_space_are_not_written_with_those_after_them(tmp_path, monkeypatch):
    """Large rebuilt sets are written one after the other, so some may be refused and later ones written."""
    monkeypatch.setattr(append_rules, "MOST_HELD", 1)
    files = FailingFiles(only={"write"})
    log = Bench(tmp_path, files=files, compression_type="gzip").load()
    log.assign_leader_epoch(0)
    files.fail_at = files.count + 1
    refused, *others = log.append([idempotent("a"), batch("b"), idempotent("c", sequence=1)], 0)
    assert refused.code == Errors.KAFKA_STORAGE_ERROR
    assert [one.base_offset for one in others] == [0, 1]
    assert values_of(log) == [(0, b"b"), (1, b"c")]
    assert [one.last_sequence for one in log.active_producers()] == [1]
