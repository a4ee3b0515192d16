"""Logs of Kafka 0.7: append, roll, flush, read, retention and recovery."""

import os

import pytest

from kafkapy.errors import KafkaError
from kafkapy.log.log07.log import EARLIEST, LATEST, OffsetOutOfRange
from kafkapy.log.log07.recovery import UnusableLog
from kafkapy.log.results import BUSY
from kafkapy.log.storage.files import Files
from kafkapy.record.kafka07 import build_message

from .bench import NOW_MS, Bench, contents, put, put_set, stored

HOUR_MS = 3_600_000


def names(directory):
    return sorted(path.name for path in directory.glob("*.kafka"))


def test_appended_messages_are_read_after_a_flush_only(tmp_path):
    bench = Bench(tmp_path)
    log = bench.log()
    data = put(log, b"one", b"two")
    assert contents(log) == b""
    assert log.end == 0
    log.flush()
    assert contents(log) == data
    assert log.end == len(data)


def test_a_log_is_flushed_after_its_number_of_messages(tmp_path):
    log = Bench(tmp_path, flush_messages=3).log()
    put(log, b"one", b"two")
    assert contents(log) == b""
    put(log, b"three")
    assert contents(log) == stored(tmp_path / "t-0")


def test_a_log_is_flushed_when_its_last_flush_is_long_ago(tmp_path):
    bench = Bench(tmp_path, flush_ms=3000)
    log = bench.log()
    data = put(log, b"one")
    bench.clock.advance(2.9)
    bench.directory.flush_due()
    bench.scheduler.run_all()
    assert contents(log) == b""
    bench.clock.advance(0.2)
    bench.directory.flush_due()
    bench.scheduler.run_all()
    assert contents(log) == data


def test_a_segment_is_rolled_before_an_append_once_it_is_larger_than_its_limit(tmp_path):
    log = Bench(tmp_path, segment_bytes=20, flush_messages=1).log()
    data = put(log, b"x" * 10)  # 20 bytes, not larger than the limit
    assert len(data) == 20
    data += put(log, b"y")
    data += put(log, b"z")
    assert names(tmp_path / "t-0") == [f"{0:020}.kafka", f"{31:020}.kafka"]
    assert contents(log) == data == stored(tmp_path / "t-0")


def test_a_segment_is_rolled_some_hours_after_its_first_append(tmp_path):
    bench = Bench(tmp_path, roll_ms=HOUR_MS)
    log = bench.log()
    bench.clock.advance(7200)  # an empty segment is not rolled
    put(log, b"one")
    bench.clock.advance(3600)
    put(log, b"two")
    assert len(log.segments) == 1
    bench.clock.advance(0.001)
    put(log, b"three")
    assert len(log.segments) == 2


def test_a_read_ends_with_its_segment_and_begins_anywhere(tmp_path):
    log = Bench(tmp_path, segment_bytes=20, flush_messages=1).log()
    data = put(log, b"a" * 20)
    data += put(log, b"b")
    assert log.read(0, 1000).read() == data[:30]
    assert log.read(30, 1000).read() == data[30:]
    assert log.read(7, 5).read() == data[7:12]
    assert log.read(len(data), 10) is None
    for offset in (-1, len(data) + 1):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not in t-0, which has 0 to {len(data)}"):
            log.read(offset, 10)


def test_offsets_are_segment_starts_by_modification_time_and_the_end(tmp_path):
    bench = Bench(tmp_path, segment_bytes=1, flush_messages=1)
    log = bench.log()
    for payload in (b"a", b"b", b"c"):
        put(log, payload)
    end = log.end
    starts = [segment.start for segment in log.segments]
    for number, segment in enumerate(log.segments):
        os.utime(segment.path, (NOW_MS / 1000, NOW_MS / 1000 - 100 + number))
    assert log.offsets_before(LATEST, 10) == [end, *reversed(starts)]
    assert log.offsets_before(LATEST, 1) == [end]
    assert log.offsets_before(LATEST, 0) == []
    assert log.offsets_before(EARLIEST, 10) == [0]
    assert log.offsets_before(NOW_MS - 99_000, 10) == [starts[1], starts[0]]
    assert log.offsets_before(NOW_MS - 101_000, 10) == []
    assert log.offsets_before(NOW_MS, 2) == [end, starts[2]]
    with pytest.raises(ValueError, match="-1 offsets"):
        log.offsets_before(LATEST, -1)


def test_an_empty_log_has_one_offset(tmp_path):
    log = Bench(tmp_path).log()
    assert log.offsets_before(LATEST, 10) == [0] == log.offsets_before(EARLIEST, 10)


def test_old_segments_are_deleted_by_modification_time(tmp_path):
    bench = Bench(tmp_path, segment_bytes=1, flush_messages=1, retention_ms=HOUR_MS)
    log = bench.log()
    for payload in (b"a", b"b", b"c"):
        put(log, payload)
    now = NOW_MS / 1000
    for segment, age in zip(log.segments, (3601, 3600, 3601), strict=True):
        os.utime(segment.path, (now, now - age))
    reader = log.read(0, 100)
    assert bench.directory.delete_old() == 1
    assert names(tmp_path / "t-0") == [f"{11:020}.kafka", f"{22:020}.kafka"]
    assert reader.read() == build_message(b"a")  # a read in progress continues
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)


def test_if_all_segments_are_old_an_empty_one_begins_at_the_end(tmp_path):
    bench = Bench(tmp_path, flush_messages=1)
    log = bench.log()
    data = put(log, b"a", b"b")
    for segment in log.segments:
        os.utime(segment.path, (0, 0))
    assert bench.directory.delete_old() == 1
    assert names(tmp_path / "t-0") == [f"{len(data):020}.kafka"]
    assert (log.start, log.end) == (len(data), len(data))
    assert log.offsets_before(LATEST, 10) == [len(data)]
    assert bench.directory.delete_old() == 0  # an empty segment stays
    more = put(log, b"c")
    assert log.read(len(data), 100).read() == more


def test_old_segments_are_deleted_by_size(tmp_path):
    bench = Bench(tmp_path, segment_bytes=1, flush_messages=1, retention_bytes=23)
    log = bench.log()
    for payload in (b"a", b"b", b"c", b"d"):
        put(log, payload)  # 11 bytes each
    assert bench.directory.delete_old() == 1  # without two of them, only 22 bytes would be left
    assert log.start == 11


def test_offsets_by_time_are_found_although_retention_deletes_a_segment_meanwhile(tmp_path):
    class Deleting(Files):
        then = None

        def modified_ms(self, file):
            then, self.then = self.then, None
            if then is not None:
                then()
            return super().modified_ms(file)

    files = Deleting()
    bench = Bench(tmp_path, files, segment_bytes=1, flush_messages=1, retention_bytes=22)
    log = bench.log()
    for payload in (b"a", b"b", b"c"):
        put(log, payload)
    files.then = bench.directory.delete_old
    assert log.offsets_before(0, 10) == []
    assert log.start == 11


def test_a_retention_policy_of_the_user_is_asked(tmp_path):
    class All:
        reason = "all of it"

        def breached(self, segment, next_base_offset):
            return next_base_offset is not None

    class Policy:
        def rules(self, log, now_ms):
            assert log.config.retention_ms == HOUR_MS
            assert log.size == 22
            assert log.log_start_offset == 0
            yield All()

    bench = Bench(tmp_path, segment_bytes=1, flush_messages=1, retention_ms=HOUR_MS)
    bench.directory.env.retention = Policy()
    log = bench.log()
    put(log, b"a")
    put(log, b"b")
    assert bench.directory.delete_old() == 1


# --- directories at a start


def test_a_clean_stop_leaves_the_marker_and_a_start_removes_it(tmp_path):
    bench = Bench(tmp_path)
    data = put(bench.log(), b"not flushed")
    marker = tmp_path / ".kafka_cleanshutdown"
    assert not marker.exists()
    bench.directory.close()
    assert marker.exists()
    bench.open()
    assert not marker.exists()
    assert contents(bench.log()) == data
    assert bench.directory.topics() == ["t"]


@pytest.mark.parametrize(
    "damage",
    [
        build_message(b"cut")[:-1],
        b"\0",
        b"\0\0\0\4abcd",
        b"\xff\xff\xff\xff",
        build_message(b"crc")[:-1] + b"x",
        b"\0\0\0\7\2" + build_message(b"x")[5:],
        b"\0\0\0\5\1\0\0\0\0",
        bytes(30),
        b"\x7f\xff\xff\xff",
    ],
)
def test_after_a_crash_the_newest_segment_is_cut_before_the_first_damaged_message(tmp_path, damage):
    bench = Bench(tmp_path, segment_bytes=30, flush_messages=1)
    log = bench.log()
    data = put(log, b"x" * 30)
    data += put(log, b"one", b"two")
    with open(log.segments[-1].path, "ab") as file:
        file.write(damage + build_message(b"behind it"))
    bench.crash()
    assert contents(bench.log()) == data == stored(tmp_path / "t-0")
    assert put(bench.log(), b"more") in stored(tmp_path / "t-0")


def test_recovery_checks_a_message_that_is_longer_than_its_buffer(tmp_path):
    bench = Bench(tmp_path, max_message=1 << 30)
    log = bench.log()
    data = put(log, b"s", b"x" * (5 << 20), b"e")
    bench.crash()
    assert contents(bench.log()) == data
    path = bench.log().segments[0].path
    with open(path, "r+b") as file:
        file.seek(1 << 20)
        file.write(b"y")
    bench.crash()
    assert contents(bench.log()) == build_message(b"s")


def test_a_log_with_a_gap_is_offline_and_the_others_are_served(tmp_path, caplog):
    bench = Bench(tmp_path, segment_bytes=1, flush_messages=1)
    log, other = bench.log(), bench.log("other")
    for payload in (b"a", b"b", b"c"):
        put(log, payload)
    data = put(other, b"fine")
    os.unlink(log.segments[1].path)
    bench.crash()
    with pytest.raises(UnusableLog, match=r"00000.kafka ends at 11, but the next segment begins at 22"):
        bench.directory.get("t", 0)
    with pytest.raises(UnusableLog):
        bench.directory.create("t", 0)
    assert contents(bench.log("other")) == data
    assert "partition 0 of topic t is offline" in caplog.text
    bench.directory.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()  # otherwise its newest segment would never be checked


def test_early_names_are_served_and_continued_as_they_are(tmp_path):
    directory = tmp_path / "my_topic_0"
    directory.mkdir()
    (directory / "00000000007.kafka").write_bytes(build_message(b"early"))
    (tmp_path / "a file").touch()
    (tmp_path / "a directory").mkdir()
    bench = Bench(tmp_path, segment_bytes=1, flush_messages=1)
    log = bench.directory.get("my_topic", 0)
    put(log, b"now")
    assert names(directory) == ["00000000007.kafka", f"{7 + 15:011}.kafka"]
    assert contents(log) == stored(directory)
    assert log.start == 7


def test_a_partition_beyond_the_count_is_kept(tmp_path, caplog):
    bench = Bench(tmp_path, count=3)
    put(bench.log("t", 2), b"kept")
    bench.count = 2
    bench.restart()
    assert "t-2 is kept, not served: topic t has 2 partitions" in caplog.text


# --- failures


class Failing(Files):
    """Files that raise `error` instead of the operations in `fails`, and for a write after `written` of its bytes."""

    def __init__(self):
        self.error = None
        self.written = 0
        self.fails = ()

    def pwritev(self, file, buffers, position):
        if self.error is None or "write" not in self.fails:
            return super().pwritev(file, buffers, position)
        if self.written:
            size, self.written = self.written, 0
            return super().pwritev(file, [b"".join(map(bytes, buffers))[:size]], position)
        raise self.error

    def sync(self, file):
        if self.error is not None and "sync" in self.fails:
            raise self.error
        super().sync(file)

    def truncate(self, file, size):
        if self.error is not None and "truncate" in self.fails:
            raise self.error
        super().truncate(file, size)

    def open(self, path, *, create=False):
        if self.error is not None and create and "create" in self.fails:
            raise self.error
        return super().open(path, create=create)

    def unlink(self, path):
        if self.error is not None and "unlink" in self.fails:
            raise self.error
        return super().unlink(path)

    def sync_dir(self, path):
        if self.error is not None and "sync_dir" in self.fails:
            raise self.error
        super().sync_dir(path)


def test_an_append_that_the_full_disk_cuts_off_leaves_nothing(tmp_path):
    files = Failing()
    bench = Bench(tmp_path, files, flush_messages=1)
    log = bench.log()
    data = put(log, b"first")
    files.error, files.written, files.fails = OSError(28, "No space left on device"), 4, ("write",)
    with pytest.raises(KafkaError, match="No space left"):
        put(log, b"second")
    assert stored(tmp_path / "t-0") == data
    assert not bench.failures
    files.error = None
    data += put(log, b"third")
    assert contents(log) == data == stored(tmp_path / "t-0")


@pytest.mark.parametrize("fails", ["unlink", "sync_dir"])
def test_segments_that_a_shortage_keeps_from_being_deleted_stay_in_the_log(tmp_path, fails):
    files = Failing()
    bench = Bench(tmp_path, files, segment_bytes=1, flush_messages=1, retention_bytes=11)
    log = bench.log()
    for payload in (b"a", b"b", b"c", b"d"):
        put(log, payload)
    files.error, files.fails = OSError(24, "Too many open files"), (fails,)
    bench.directory.delete_old()
    assert contents(log) == stored(tmp_path / "t-0")
    files.error = None
    bench.directory.delete_old()
    assert contents(log) == stored(tmp_path / "t-0") == build_message(b"d")
    assert not bench.failures
    bench.restart()
    assert contents(bench.log()) == build_message(b"d")


def test_a_full_disk_that_stops_one_rule_of_retention_does_not_undo_the_rule_before(tmp_path):
    files = Failing()
    bench = Bench(tmp_path, files, segment_bytes=1, flush_messages=1, retention_bytes=22)
    log = bench.log()
    for payload in (b"a", b"b", b"c"):
        put(log, payload)
    for segment in log.segments:
        os.utime(segment.path, (0, 0))
    files.error, files.fails = OSError(28, "No space left on device"), ("create",)
    bench.directory.delete_old()  # deletes one by size; by age an empty segment is needed
    assert contents(log) == stored(tmp_path / "t-0") == build_message(b"b") + build_message(b"c")
    files.error = None
    assert bench.directory.delete_old() == 2
    assert names(tmp_path / "t-0") == [f"{33:020}.kafka"]


def test_a_roll_that_a_shortage_stops_leaves_no_file(tmp_path):
    files = Failing()
    bench = Bench(tmp_path, files, flush_messages=1)
    log = bench.log()
    data = put(log, b"a")
    os.utime(log.segments[0].path, (0, 0))
    files.error, files.fails = OSError(24, "Too many open files"), ("sync_dir",)
    assert bench.directory.delete_old() == 0  # all are old, so an empty segment is needed
    files.error = None
    data += put(log, b"b")
    bench.restart()  # a left empty segment would overlap with `b` in the first one
    assert contents(bench.log()) == data


@pytest.mark.parametrize("fails", ["write", "sync"])
def test_a_disk_error_takes_the_directory_offline(tmp_path, fails):
    files = Failing()
    bench = Bench(tmp_path, files, flush_messages=1)
    log = bench.log()
    data = put(log, b"first")
    files.error, files.fails = OSError(5, "Input/output error"), (fails,)
    with pytest.raises(KafkaError, match="goes offline"):
        put(log, b"second")
    assert len(bench.failures) == 1
    files.error = None
    for use in (lambda: put(log, b"third"), lambda: bench.directory.get("t", 0), lambda: bench.log("new")):
        with pytest.raises(KafkaError, match="failed before"):
            use()
    bench.directory.close()
    bench.open()
    assert contents(bench.log()).startswith(data)


def test_a_log_that_cannot_be_created_takes_the_directory_offline_unless_its_name_is_to_blame(tmp_path):
    class Unwritable(Files):
        def make_dir(self, path):
            if path.endswith("broken-0"):
                raise OSError(5, "Input/output error")
            super().make_dir(path)

    bench = Bench(tmp_path, Unwritable())
    with pytest.raises(OSError, match="File name too long"):
        bench.log("x" * 254)
    assert not bench.failures
    with pytest.raises(KafkaError, match=r"goes offline: creating .*broken-0"):
        bench.log("broken")
    assert len(bench.failures) == 1


def test_an_append_that_must_not_wait_changes_nothing_if_it_would_have_to(tmp_path):
    bench = Bench(tmp_path, segment_bytes=40, flush_messages=3)
    log = bench.log()
    message = build_message(b"m")
    assert log.append(message, 1) is None  # so that the file is open
    with log.lock:
        assert log.append(message, 1, blocking=False) is BUSY
    assert log.append(message, 1, blocking=False) is None
    assert log.append(message, 1, blocking=False) is BUSY  # a flush is due
    assert stored(tmp_path / "t-0") == 2 * message
    assert log.append(message, 1) is None
    assert log.append(message, 1, blocking=False) is None
    assert log.append(message, 1, blocking=False) is BUSY  # a roll is due
    assert log.append(message, 1) is None
    assert len(log.segments) == 2


def test_a_set_is_written_without_the_message_that_its_end_cuts_off(tmp_path):
    log = Bench(tmp_path, flush_messages=1).log()
    whole = build_message(b"whole")
    assert put_set(log, whole + build_message(b"cut")[:-1]) == whole
    assert contents(log) == whole
