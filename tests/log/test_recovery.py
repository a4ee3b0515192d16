"""Recovery of single logs: truncated batches, rebuilt indexes, and logs that cannot be loaded."""

import logging
import os
import shutil

import pytest

from kafkapy.log.segments.segment import Segment
from kafkapy.record.compression import GZIP, NONE
from kafkapy.record.legacy import build_set

from .cleaner.support import CleanerBench
from .cleaner.test_crashes import Crash, CrashingFiles
from .support import NOW, Bench, batch, contents, idempotent, values_of

SETTINGS = {"segment_bytes": 600, "index_interval_bytes": 100}
LOG = f"{0:020d}.log"


def filled(directory, count=30):
    log = Bench(directory, **SETTINGS).load()
    for number in range(count):
        log.append([idempotent(number, sequence=number)], 0)
    return log


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_an_unclean_start_finds_everything_that_was_written(tmp_path):
    log = filled(tmp_path)
    again = Bench(tmp_path, **SETTINGS).load(clean=False)
    assert values_of(again) == values_of(log)
    assert again.segments.base_offsets == log.segments.base_offsets


def test_recovered_indexes_are_those_that_were_written(tmp_path):
    filled(tmp_path).close()
    before = contents(tmp_path / "t-0")
    again = Bench(tmp_path, **SETTINGS).load(clean=False)
    again.close()
    assert contents(tmp_path / "t-0") == before


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60, 61, 68])
def test_a_torn_batch_is_cut_off(tmp_path, size, caplog):
    filled(tmp_path, 4)
    path = tmp_path / "t-0" / LOG
    each = len(idempotent("0"))
    os.truncate(path, 3 * each + size)
    with caplog.at_level(logging.WARNING):
        log = Bench(tmp_path, **SETTINGS).load(clean=False)
    assert [offset for offset, _ in values_of(log)] == [0, 1, 2]
    assert path.stat().st_size == 3 * each
    assert f"the last {size} bytes are cut off" in caplog.text
    assert log.append([idempotent(3, sequence=3)], 0)[0].base_offset == 3


@pytest.mark.parametrize("junk", [bytes(200), b"\xff" * 200, b"junk" * 50, bytes(16) + b"\2" * 100])
def test_bytes_that_are_no_batch_are_cut_off(tmp_path, junk):
    log = filled(tmp_path)
    with open(log.segments.active.handle().path, "ab") as file:
        file.write(junk)
    again = Bench(tmp_path, **SETTINGS).load(clean=False)
    assert values_of(again) == values_of(log)


def test_the_log_ends_at_a_flipped_bit_and_later_segments_go(tmp_path):
    log = filled(tmp_path)
    third = log.segments.items[2]
    flip(third.handle().path, third.size // 2)
    bench = Bench(tmp_path, **SETTINGS)
    again = bench.load(clean=False)
    kept = values_of(again)
    assert kept == [(number, str(number).encode()) for number in range(len(kept))]
    assert third.base_offset < again.log_end_offset < log.segments.base_offsets[3]
    assert again.segments.base_offsets == log.segments.base_offsets[:3]
    bench.scheduler.run_all()
    assert not [name for name in bench.names() if name.endswith(".deleted")]
    assert again.append([batch("on")], 0)[0].base_offset == len(kept)


def test_segments_before_the_recovery_point_are_not_read(tmp_path):
    log = filled(tmp_path)
    flip(log.segments.items[0].handle().path, 70)
    point = log.segments.base_offsets[2]
    again = Bench(tmp_path, **SETTINGS).load(clean=False, recovery_point=point)
    assert again.log_end_offset == 30
    assert again.recovery_point == point


def test_batches_whose_offsets_go_back_end_the_log(tmp_path):
    filled(tmp_path, 5)
    path = tmp_path / "t-0" / LOG
    data = path.read_bytes()
    each = len(data) // 5
    path.write_bytes(data[: 3 * each] + data[:each] + data[3 * each :])
    again = Bench(tmp_path, **SETTINGS).load(clean=False)
    assert again.log_end_offset == 3
    assert [offset for offset, _ in values_of(again)] == [0, 1, 2]
    assert again.size == 3 * each


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_messages_of_old_formats_are_recovered_and_cut_where_they_are_broken(tmp_path, magic, codec):
    filled(tmp_path, 1).close()
    path = tmp_path / "t-0" / LOG
    sets = [
        build_set([(NOW + number, b"k", b"v" * 50)] * 3, magic, codec, base_offset=3 * number) for number in range(9)
    ]
    path.write_bytes(b"".join(sets) + sets[0][:40])
    os.remove(path.with_suffix(".timeindex"))
    again = Bench(tmp_path, segment_bytes=1 << 20, index_interval_bytes=100).load(clean=False)
    assert again.log_end_offset == 27
    assert path.read_bytes() == b"".join(sets)
    segment = again.segments.active
    assert segment.max_timestamp == ((NOW + 8, 26 if codec else 24) if magic else (-1, 0))
    assert segment.offset_index.count > 2
    assert [segment.locate(offset, segment.size)[2] for offset in (0, 13)] == ([2, 14] if codec else [0, 13])


def test_garbage_behind_the_end_after_a_clean_stop_is_noticed(tmp_path):
    log = filled(tmp_path, 4)
    log.close()
    with open(tmp_path / "t-0" / LOG, "ab") as file:
        file.write(b"garbage" * 20)
    again = Bench(tmp_path, **SETTINGS).load()
    assert len(values_of(again)) == 4
    assert again.append([batch("on")], 0)[0].base_offset == 4
    assert len(values_of(again)) == 5


def test_a_damaged_snapshot_is_passed_over(tmp_path, caplog):
    filled(tmp_path).close()
    snapshot = tmp_path / "t-0" / f"{30:020d}.snapshot"
    data = bytearray(snapshot.read_bytes())
    data[20] ^= 1
    snapshot.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        log = Bench(tmp_path, **SETTINGS).load()
    assert "CRC" in caplog.text
    assert log.append([idempotent(29, sequence=29)], 0)[0].duplicate


def test_a_garbled_epoch_checkpoint_is_rebuilt_from_the_log(tmp_path):
    log = Bench(tmp_path, **SETTINGS).load()
    for epoch in (2, 5):
        log.append([batch(epoch), batch(epoch)], epoch)
    log.close()
    for garbage in (b"\0\1\2", b"0\n9\n", b"0\n1\n-4 2\n", b"7\n0\n"):
        (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(garbage)
        again = Bench(tmp_path, **SETTINGS).load()
        assert again.leader_epochs.entries == ((2, 0), (5, 2))
        again.close()


def test_a_log_start_behind_the_end_empties_the_log(tmp_path):
    filled(tmp_path, 5).close()
    log = Bench(tmp_path, **SETTINGS).load(log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert log.append([batch("a")], 0)[0].base_offset == 50


def test_leftovers_of_deletions_and_swaps_are_finished(tmp_path):
    log = filled(tmp_path)
    bases = log.segments.base_offsets
    log.close()
    directory = tmp_path / "t-0"
    expected = values_of(Bench(tmp_path, **SETTINGS).load())
    (directory / f"{bases[1]:020d}.log.deleted").write_bytes(b"gone")
    (directory / f"{bases[2]:020d}.log.cleaned").write_bytes(b"not finished")
    # A finished cleaning of segments 0 and 1 into one.
    first, second = (directory / f"{base:020d}.log" for base in bases[:2])
    (directory / f"{bases[0]:020d}.log.swap").write_bytes(first.read_bytes() + second.read_bytes())
    again = Bench(tmp_path, **SETTINGS).load()
    assert again.segments.base_offsets == [bases[0], *bases[2:]]
    assert values_of(again) == expected
    assert not [name for name in os.listdir(directory) if name.endswith((".deleted", ".cleaned", ".swap"))]


def test_a_swap_that_was_not_finished_is_dropped(tmp_path):
    log = filled(tmp_path)
    bases = log.segments.base_offsets
    log.close()
    directory = tmp_path / "t-0"
    (directory / f"{bases[1]:020d}.log.cleaned").write_bytes(b"")
    (directory / f"{bases[2]:020d}.log.swap").write_bytes(b"")
    again = Bench(tmp_path, **SETTINGS).load()
    assert again.segments.base_offsets == bases
    assert len(values_of(again)) == 30


def test_index_files_without_a_segment_are_removed(tmp_path):
    filled(tmp_path, 3).close()
    (tmp_path / "t-0" / f"{99:020d}.index").write_bytes(bytes(8))
    Bench(tmp_path, **SETTINGS).load()
    assert not (tmp_path / "t-0" / f"{99:020d}.index").exists()


@pytest.mark.parametrize("missing", [".index", ".timeindex"])
def test_a_missing_index_is_rebuilt(tmp_path, missing):
    log = filled(tmp_path)
    log.close()
    path = tmp_path / "t-0" / f"{0:020d}{missing}"
    before = path.read_bytes()
    path.unlink()
    again = Bench(tmp_path, **SETTINGS).load()
    assert len(values_of(again)) == 30
    again.close()
    if missing == ".index":
        assert path.read_bytes() == before


def test_a_crash_while_an_index_is_rebuilt_does_not_lose_the_aborted_transactions(tmp_path):
    """The segment was flushed, so later starts would not recover it again just because of the crash."""
    bench = CleanerBench(tmp_path / "log", cleanup_policy=["delete"])
    bench.append(("key", "aborted"), producer=8, transactional=True)
    bench.end_transaction(8, commit=False)
    for number in range(2):
        bench.log.roll()
        bench.append(("key", f"{number}"))
    bench.log.close()
    (tmp_path / "log" / "t-0" / f"{0:020d}.index").unlink()
    for crash_at in range(1, 100):
        shutil.copytree(tmp_path / "log", tmp_path / str(crash_at))
        files = CrashingFiles()
        files.crash_at = crash_at
        try:
            Bench(tmp_path / str(crash_at), files=files).load(clean=False, recovery_point=3)
            break
        except Crash:
            log = Bench(tmp_path / str(crash_at)).load(clean=False, recovery_point=3)
            assert log.aborted_transactions(0, log.read(0, 1 << 20, max_offset=4)) == [(8, 0)], crash_at
    assert crash_at > 5


def test_after_a_crash_every_batch_that_a_producer_may_send_again_is_known(tmp_path):
    log = Bench(tmp_path, **SETTINGS).load()
    for number in range(12):
        log.append([idempotent(number, sequence=number)], 0)
    assert 7 < log.segments.active.base_offset < 12  # the producer's last five batches are in two segments
    again = Bench(tmp_path, **SETTINGS).load(clean=False)
    for number in range(7, 12):
        repeated = again.append([idempotent(number, sequence=number)], 0)[0]
        assert (repeated.duplicate, repeated.base_offset) == (True, number)
    assert again.log_end_offset == 12


def test_a_crash_inside_a_roll_does_not_leave_the_index_of_a_live_segment(tmp_path):
    bench = Bench(tmp_path, index_interval_bytes=100, retention_ms=86_400_000)
    log = bench.load()
    for number in range(10):
        log.append([batch(number)], 0)
    log.flush()
    # The new segment exists, but the old one's indexes are not trimmed yet and end with zeros.
    Segment.create(bench.files, log.directory, 10, bench.config, bench.clock)
    again = Bench(tmp_path, index_interval_bytes=100, retention_ms=86_400_000).load(clean=False, recovery_point=10)
    assert again.segments.base_offsets == [0, 10]
    assert again.segments.items[0].largest_timestamp() == NOW
    again.set_high_watermark(10)
    assert again.delete_old_segments() == 0
    assert len(values_of(again)) == 10


def test_a_directory_that_a_crash_left_empty_becomes_an_empty_log(tmp_path):
    (tmp_path / "t-0").mkdir()
    log = Bench(tmp_path, **SETTINGS).load(clean=False, recovery_point=7, log_start_offset=5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)


def test_a_crash_after_a_roll_that_lost_the_last_entry_of_the_time_index_is_noticed(tmp_path):
    bench = Bench(tmp_path, index_interval_bytes=100_000)
    log = bench.load()
    for number in range(10):
        log.append([batch(number, timestamp=NOW + number)], 0)
    log.roll()
    log.flush()
    index = tmp_path / "t-0" / f"{0:020d}.timeindex"
    assert index.stat().st_size == 12
    os.truncate(index, 0)  # the entry that the roll added did not reach the disk
    again = Bench(tmp_path, index_interval_bytes=100_000).load(clean=False, recovery_point=10)
    assert again.offset_for_timestamp(NOW + 7).offset == 7
    assert index.stat().st_size == 12


def test_a_crash_after_the_roll_of_a_preallocated_segment_leaves_no_zeros_in_it(tmp_path):
    settings = {"preallocate": True, "segment_bytes": 4096}
    bench = Bench(tmp_path, **settings)
    log = bench.load()
    log.append([batch("a")], 0)
    log.roll()
    log.append([batch("b")], 0)
    log.flush()
    first = tmp_path / "t-0" / LOG
    size = first.stat().st_size
    os.truncate(first, 4096)  # as before the roll, which trimmed the file
    again = Bench(tmp_path, **settings).load(clean=False, recovery_point=1)
    assert first.stat().st_size == size
    assert values_of(again) == [(0, b"a"), (1, b"b")]


def test_a_missing_index_behind_a_damaged_segment_does_not_stop_the_load(tmp_path):
    log = filled(tmp_path)
    log.flush()
    first, third = log.segments.items[0], log.segments.items[2]
    flip(first.handle().path, first.size - 3)
    os.unlink(third.offset_index.path)
    again = Bench(tmp_path, **SETTINGS).load(clean=False)
    assert 0 < again.log_end_offset < log.segments.base_offsets[1]
    assert again.segments.base_offsets == [0]


def test_a_damaged_segment_without_an_index_ends_the_log(tmp_path):
    """The segment has the recovery point, so its damage is found before its missing index could have it recovered."""
    log = filled(tmp_path)
    third = log.segments.items[2]
    flip(third.handle().path, third.size - 3)
    os.unlink(third.offset_index.path)
    again = Bench(tmp_path, **SETTINGS).load(clean=False, recovery_point=third.base_offset + 1)
    assert again.segments.base_offsets == log.segments.base_offsets[:3]
    assert third.base_offset < again.log_end_offset < log.segments.base_offsets[3]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("is_rolled", [False, True])
def test_a_recovery_point_at_the_end_of_the_log_does_not_vouch_for_its_last_indexes(tmp_path, suffix, is_rolled):
    """All records were flushed before the kill. With `is_rolled`, an empty segment follows the last ones."""
    settings = {"index_interval_bytes": 100}
    log = Bench(tmp_path, **settings).load()
    for number in range(30):
        log.append([batch(number, timestamp=NOW + number)], 0)
    log.close()
    index = tmp_path / "t-0" / f"{0:020d}{suffix}"
    intact = index.read_bytes()
    index.write_bytes(bytes(len(intact)))
    if is_rolled:
        for empty in (".log", ".index", ".timeindex"):
            (tmp_path / "t-0" / f"{30:020d}{empty}").touch()
    again = Bench(tmp_path, **settings).load(clean=False, recovery_point=30)
    assert again.segments.base_offsets == ([0, 30] if is_rolled else [0])
    assert (again.log_end_offset, again.recovery_point) == (30, 30)
    assert again.segments.items[0].damage() is None
    again.close()
    assert index.read_bytes() == intact
