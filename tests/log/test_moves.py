"""Moves of a log to another log directory: the copy, the swap, and interruptions of both."""

import errno
import random
import shutil
import threading

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.cleaner.service import LogCleaner
from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.log.config import LogConfig
from kafkapy.log.directories import clean_shutdown
from kafkapy.log.directories.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, OffsetCheckpoint
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.leader_epochs import EpochStart, LeaderEpochCache
from kafkapy.log.loading.found import LogInTwoDirectories
from kafkapy.log.manager import LogManager
from kafkapy.log.moves.copying import copy_piece
from kafkapy.log.settings import LogSettings
from kafkapy.log.storage.files import Files
from kafkapy.runtime.clock import ManualClock
from tests.harness.examples import some
from tests.harness.power_cut import Loss, Platter, RecordingFiles, UnsyncedFiles

from .support import GOLDEN, NOW, FailingFiles, ManualScheduler, batch, idempotent, values_of
from .test_follower_append import data_of, fill

TOPIC_ID = bytes(range(16))
SMALL = LogConfig({"segment.bytes": 2000, "index.interval.bytes": 200, "segment.index.bytes": 4096})
KEY = ("t", 0)
STEP = 4  # a run interrupts moves at every fourth operation, with a random first one


class Killed(BaseException):
    """Raised in place of kill -9: no code under test cleans up."""


class DyingFiles(Files):
    """A disk that raises Killed before the n-th operation that changes something."""

    def __init__(self, die_at=None):
        self.count, self.die_at = 0, die_at

    def _step(self):
        self.count += 1
        if self.die_at is not None and self.count >= self.die_at:
            raise Killed

    def pwritev(self, *arguments):
        self._step()
        return super().pwritev(*arguments)

    def truncate(self, *arguments):
        self._step()
        return super().truncate(*arguments)

    def sync(self, *arguments):
        self._step()
        return super().sync(*arguments)

    def sync_dir(self, path):
        self._step()
        return super().sync_dir(path)

    def rename(self, old, new):
        self._step()
        return super().rename(old, new)

    def unlink(self, path):
        self._step()
        return super().unlink(path)


class Host:
    """A log manager with two log directories, `one` and `two`, and the log of t-0 in the first."""

    def __init__(self, tmp_path, *, files=None, config=SMALL, create=True):
        self.dirs = (tmp_path / "one", tmp_path / "two")
        self.files = files if files is not None else Files()
        self.scheduler = ManualScheduler()
        self.failed = []
        # `life` calls `marked` before the move, and `noted` after each acknowledgement.
        self.marked = self.noted = lambda: None
        self.manager = LogManager(
            self.dirs,
            config,
            clock=ManualClock(NOW),
            scheduler=self.scheduler,
            settings=LogSettings(),
            files=self.files,
            on_dir_failure=lambda directory, error: self.failed.append(directory),
        )
        try:
            self.manager.load()
            self.one, self.two = self.manager.dirs.opened
            if create and self.log is None:
                self.manager.preferred[KEY] = self.one
                self.manager.create(*KEY, TOPIC_ID, config, is_new=True)
        except BaseException:
            self.kill()
            raise

    @property
    def log(self):
        return self.manager.get(*KEY)

    def begin(self, log_dir=None):
        assert self.manager.futures.create(self.log, log_dir or self.two)
        return self.log.future

    def copy(self, size=700):
        while self.log.future is not None and copy_piece(self.log, self.log.future, size) is not None:
            pass

    def finish(self, size=700):
        self.copy(size)
        self.manager.futures.prepare(self.log)
        self.manager.futures.complete(self.log, size)

    def kill(self):
        """Release the locks of the directories, as the kernel does for a killed process."""
        self.manager.dirs.unlock()

    def names(self):
        """Return the names of the partition directories as LOG-DIR/NAME, without the unique part after the dot."""
        found = []
        for directory in self.dirs:
            for path in directory.iterdir():
                if path.is_dir():
                    first, dot, last = path.name.partition(".")
                    found.append(f"{directory.name}/{first}" + (f"-{last.rpartition('-')[2]}" if dot else ""))
        return sorted(found)


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    yield host
    host.manager.close()


def state_of(log):
    """Return the state of a log that readers and producers see."""
    end = log.log_end_offset
    return {
        "records": values_of(log),
        "offsets": (log.log_start_offset, end, log.high_watermark, log.last_stable_offset),
        "epochs": log.leader_epochs.entries,
        "producers": sorted(log.active_producers()),
        "aborted": log.aborted_transactions(log.log_start_offset, read_of(log, log.log_start_offset)),
        "topic id": log.topic_id,
    }


def read_of(log, offset, size=1 << 20):
    return log.read(offset, size, max_offset=log.log_end_offset)


def append(log, *values):
    (verdict,) = log.append([batch(*values)], log.leader_epochs.latest_epoch)
    assert not isinstance(verdict, KafkaError), verdict
    return verdict


def test_a_moved_log_has_the_same_records_epochs_producers_and_offsets(host):
    fill(host.log, random.Random(1), 60)
    before = state_of(host.log)
    host.begin()
    assert host.names() == ["one/t-0", "two/t-0-future"]
    host.finish()
    assert state_of(host.log) == before
    assert host.names() == ["one/t-0-delete", "two/t-0"]
    assert host.log.dir.parent == host.dirs[1]
    host.scheduler.run("delete")
    assert host.names() == ["two/t-0"]
    assert not (host.log.dir / names.MOVED_IN).exists()


def test_a_moved_log_takes_appends_and_is_whole_after_a_clean_stop(host, tmp_path):
    fill(host.log, random.Random(2), 30)
    host.begin()
    host.finish()
    for number in range(30):
        append(host.log, number)
    before = state_of(host.log)
    host.manager.close()
    again = Host(tmp_path)
    assert state_of(again.log) == before
    again.manager.close()


def test_a_log_moves_there_and_back(host):
    fill(host.log, random.Random(4), 30)
    before = state_of(host.log)
    for log_dir in (host.two, host.one, host.two):
        host.begin(log_dir)
        host.finish()
        assert state_of(host.log) == before
    assert [one.open_logs for one in (host.one, host.two)] == [0, 1]


def test_an_epoch_without_records_moves_too(host):
    host.log.append([batch("a")], 0)
    host.log.assign_leader_epoch(0)
    host.log.assign_leader_epoch(5)
    host.begin()
    host.finish()
    assert host.log.leader_epochs.entries[-1] == EpochStart(5, 1)
    stored = LeaderEpochCache(Files(), str(host.log.directory))
    stored.load()
    assert stored.entries == host.log.leader_epochs.entries


def test_a_retry_of_a_batch_from_before_the_move_is_a_duplicate(host):
    for sequence in range(5):
        host.log.append([idempotent("x", sequence=sequence)], 0)
    host.begin()
    host.finish()
    (verdict,) = host.log.append([idempotent("x", sequence=1)], 0)
    assert verdict.duplicate
    assert verdict.base_offset == 1


def test_the_log_start_offset_in_the_middle_of_a_batch_moves_and_outlives_a_crash(host, tmp_path):
    host.log.append([batch(*range(10))], 0)
    host.log.append([batch(*range(10))], 0)
    host.log.set_high_watermark(20)
    host.log.delete_records(13)
    host.begin()
    host.finish()
    assert (host.log.log_start_offset, host.log.log_end_offset) == (13, 20)
    assert OffsetCheckpoint(Files(), str(host.dirs[1]), LOG_START_OFFSETS).read() == {KEY: 13}
    host.kill()
    again = Host(tmp_path)
    assert again.log.log_start_offset == 13
    again.manager.close()


def test_a_copy_follows_retention_that_is_faster(host):
    fill(host.log, random.Random(5), 60)
    host.begin()
    copy_piece(host.log, host.log.future, 500)
    host.log.delete_records(host.log.log_end_offset - 5)
    expected = state_of(host.log)
    host.finish()
    assert state_of(host.log)["offsets"] == expected["offsets"]
    assert state_of(host.log)["records"] == expected["records"]


def test_a_gap_at_the_end_of_the_log_moves_too(host):
    host.log.append([batch("a", "b")], 0)
    with host.log.lock:
        host.log.roll_locked(10)
    host.begin()
    host.finish()
    assert host.log.log_end_offset == 10
    host.log.append([batch("c")], 0)
    assert values_of(host.log)[-1] == (10, b"c")


def test_a_reader_with_regions_of_the_old_files_reads_on(host):
    fill(host.log, random.Random(6), 30)
    log, end = host.log, host.log.log_end_offset
    regions = []
    segments = list(log.segments)
    for segment in segments[:-1]:
        found = log.read(segment.base_offset, 1 << 20, max_offset=end)
        regions.append((found, found.region.read()))
    host.begin()
    host.finish()
    host.scheduler.run("delete")
    for found, data in regions:
        assert found.region.read() == data
    # A reader with the old list of segments, whose files are gone, must look again.
    assert values_of(log)[0][0] == 0


def test_the_log_of_a_follower_moves_while_it_follows(host, tmp_path):
    leader = Host(tmp_path / "leader")
    fill(leader.log, random.Random(7), 60)
    follow(leader.log, host.log, iter([900] * 3 + [1 << 20] * 1000), until=60)
    host.begin()
    host.copy()
    host.manager.truncate_to(host.log, 40, 99)
    follow(leader.log, host.log, iter([700] * 1000), until=90)
    host.finish()
    follow(leader.log, host.log, iter([700] * 1000))
    assert values_of(host.log) == values_of(leader.log)
    assert host.log.leader_epochs.entries == leader.log.leader_epochs.entries
    assert host.log.dir.parent == host.dirs[1]
    leader.manager.close()


def follow(leader, follower, sizes, until=None):
    while follower.log_end_offset < min(until or leader.log_end_offset, leader.log_end_offset):
        data = data_of(leader, follower.log_end_offset, next(sizes))
        assert follower.append_as_follower(data, 99).size


def test_the_watchers_and_waiting_readers_of_a_log_stay(host):
    class Watcher:
        count = 0

        def changed(self):
            self.count += 1

    watcher = Watcher()
    host.log.watchers[watcher] = None
    host.begin()
    host.finish()
    host.log.notify_watchers()
    assert watcher.count


def test_nothing_can_be_appended_between_the_last_copy_and_the_swap(tmp_path):
    """Another thread appends while the log moves several times. No record is lost or written to old files."""
    host = Host(tmp_path, config=LogConfig({"segment.bytes": 1 << 20}))
    log, acknowledged, stop = host.log, [], threading.Event()

    def produce():
        while not stop.is_set():
            (verdict,) = log.append([batch(len(acknowledged))], 0)
            acknowledged.append((verdict.base_offset, str(len(acknowledged)).encode()))

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for _ in range(5):
            for log_dir in (host.two, host.one):
                host.begin(log_dir)
                host.finish(size=1 << 20)
    finally:
        stop.set()
        thread.join()
    assert values_of(log) == acknowledged
    host.kill()
    again = Host(tmp_path)
    assert values_of(again.log) == acknowledged
    again.manager.close()


def test_a_truncation_of_the_log_truncates_its_copy(host):
    fill(host.log, random.Random(8), 40)
    future = host.begin()
    host.copy()
    host.manager.truncate_to(host.log, 20)
    assert future.log_end_offset == host.log.log_end_offset <= 20
    host.log.assign_leader_epoch(9)
    host.log.append([batch("new")], 0)
    before = state_of(host.log)
    host.finish()
    assert state_of(host.log) == before


def test_a_full_truncation_of_the_log_empties_its_copy(host):
    fill(host.log, random.Random(8), 40)
    future = host.begin()
    host.copy()
    host.log.truncate_fully(500)
    assert (future.log_start_offset, future.log_end_offset) == (500, 500)
    host.finish()
    assert (host.log.log_start_offset, host.log.log_end_offset) == (500, 500)


def test_a_log_whose_copy_is_on_a_broken_disk_is_truncated_all_the_same(tmp_path):
    host = Host(tmp_path)
    fill(host.log, random.Random(8), 40)
    future = host.begin()
    host.copy()
    future.env.failed("a test", OSError(errno.EIO, "broken"))
    host.log.truncate_to(20)
    assert host.log.log_end_offset <= 20
    assert future.closed
    host.manager.close()


def test_the_log_is_not_compacted_while_it_moves_and_its_cleaner_offset_moves_along(tmp_path):
    config = LogConfig({"segment.bytes": 500, "cleanup.policy": ["compact"]})
    host = Host(tmp_path, config=config)
    host.one.env.cleaner_offsets.put(KEY, 3)
    for number in range(20):
        host.log.append([batch(number)], 0)
    cleaner = LogCleaner(host.manager, ManualClock(NOW), CleanerSettings())
    assert host.log in cleaner.compacted()
    host.begin()
    assert host.log not in cleaner.compacted()
    host.finish()
    assert host.log in cleaner.compacted()
    assert host.two.env.cleaner_offsets.get(KEY) == 3
    assert host.one.env.cleaner_offsets.get(KEY) is None
    host.manager.close()


def test_new_settings_of_a_topic_reach_the_copy(host):
    future = host.begin()
    config = LogConfig({"segment.bytes": 12345})
    host.log.update_config(config)
    assert future.config is config


def test_a_choice_of_the_present_directory_or_of_a_third_one_ends_the_move(host):
    host.log.append([batch("a")], 0)
    host.begin()
    assert not host.manager.futures.create(host.log, host.two)
    assert not host.manager.futures.create(host.log, host.one)
    assert host.log.future is None
    assert host.names() == ["one/t-0", "two/t-0-delete"]
    assert [one.open_logs for one in (host.one, host.two)] == [1, 0]


def test_a_deleted_partition_leaves_neither_log_nor_copy(host):
    host.log.append([batch("a")], 0)
    host.begin()
    host.manager.delete(*KEY)
    assert host.names() == ["one/t-0-delete", "two/t-0-delete"]
    assert [one.open_logs for one in (host.one, host.two)] == [0, 0]


def test_a_partition_is_deleted_although_its_copy_cannot_be_renamed(tmp_path):
    files = FailingFiles(only={"rename"})
    host = Host(tmp_path, files=files)
    host.begin()
    files.fail_at = files.count + 1
    host.manager.delete(*KEY)
    assert host.log is None
    assert host.names() == ["one/t-0-delete", "two/t-0-future"]
    host.manager.close()


def test_a_copy_of_a_deleted_topic_does_not_become_that_of_a_new_topic_of_the_same_name(tmp_path):
    files = FailingFiles(only={"rename"})
    host = Host(tmp_path, files=files)
    host.log.append([batch("old")], 0)
    host.begin()
    host.copy()
    files.fail_at = files.count + 1
    host.manager.delete(*KEY)
    host.manager.preferred[KEY] = host.one
    host.manager.create(*KEY, bytes(16), SMALL)
    host.log.append([batch("new")], 0)
    host.kill()
    again = Host(tmp_path)
    assert again.log.future is None
    assert values_of(again.log) == [(0, b"new")]
    again.manager.close()


def test_no_move_begins_while_a_log_directory_is_offline(host):
    host.two.env.failed("a test", OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaError, match="offline") as raised:
        host.manager.futures.create(host.log, host.one) or host.manager.futures.create(host.log, host.two)
    assert raised.value.code == Errors.KAFKA_STORAGE_ERROR


def test_a_new_log_is_created_in_the_directory_that_was_chosen_for_it(host):
    for number in range(3):
        host.manager.preferred["u", number] = host.one
        log = host.manager.create("u", number, TOPIC_ID, SMALL, is_new=True)
        assert log.dir.parent == host.dirs[0]
    assert ("u", 0) not in host.manager.preferred


# --- starts


def test_a_copy_that_a_kill_has_interrupted_is_loaded_and_continued(host, tmp_path):
    fill(host.log, random.Random(10), 60)
    before = state_of(host.log)
    host.begin()
    copy_piece(host.log, host.log.future, 2500)
    host.log.future.flush()
    host.manager.checkpoint()
    copy_piece(host.log, host.log.future, 2500)
    host.kill()
    again = Host(tmp_path)
    future = again.log.future
    assert 0 < future.log_end_offset < again.log.log_end_offset
    again.finish()
    assert state_of(again.log)["records"] == before["records"]
    again.manager.close()


def test_a_copy_is_closed_cleanly_and_in_the_checkpoints(host, tmp_path):
    fill(host.log, random.Random(10), 20)
    host.begin()
    host.copy()
    host.manager.close()
    assert OffsetCheckpoint(Files(), str(host.dirs[1]), RECOVERY_POINTS).read() == {KEY: host.log.log_end_offset}
    again = Host(tmp_path)
    assert again.two.was_clean
    assert again.log.future.log_end_offset == again.log.log_end_offset
    assert again.log.future.high_watermark == again.log.high_watermark
    again.manager.close()


def test_a_copy_is_cut_to_a_log_that_has_lost_its_end(host, tmp_path):
    for number in range(10):
        host.log.append([batch(number)], 0)
    host.begin()
    host.copy()
    host.log.future.flush()
    host.manager.checkpoint()
    segment = host.log.segments.active
    host.kill()
    with open(segment.path(names.LOG), "r+b") as file:
        file.truncate(segment.size - 100)
    again = Host(tmp_path)
    assert again.log.future.log_end_offset == again.log.log_end_offset == 8
    again.manager.close()


@pytest.mark.parametrize("refused", ["one", "two"])
def test_a_copy_is_deleted_with_its_log_though_one_of_them_cannot_be_loaded(tmp_path, refused):
    host = Host(tmp_path)
    host.log.append([batch("a"), batch("b")], 0)
    host.begin()
    host.copy()
    host.kill()
    (segment,) = (tmp_path / refused).glob(f"*/{names.file_name(0, names.LOG)}")
    segment.rename(segment.with_name(names.file_name(100, names.LOG)))  # so that a start refuses to open it
    again = Host(tmp_path, create=False)
    assert (again.log is None) == (refused == "one")
    again.manager.delete(*KEY)
    assert again.names() == ["one/t-0-delete", "two/t-0-delete"]
    again.manager.close()


def test_of_two_directories_with_the_name_the_one_that_was_moving_in_is_the_copy(host, tmp_path):
    fill(host.log, random.Random(11), 20)
    before = values_of(host.log)
    future = host.begin()
    host.copy()
    host.manager.futures.prepare(host.log)
    host.kill()
    future.dir.rename(host.dirs[1] / "t-0")
    again = Host(tmp_path)
    assert again.names() == ["one/t-0", "two/t-0-future"]
    assert values_of(again.log) == before
    again.finish()
    assert values_of(again.log) == before
    assert again.log.dir.parent == host.dirs[1]
    again.manager.close()


def test_two_directories_with_the_name_and_no_sign_which_is_the_copy_stop_the_start(host, tmp_path):
    future = host.begin()
    host.kill()
    future.dir.rename(host.dirs[1] / "t-0")
    with pytest.raises(LogInTwoDirectories, match="t-0 is in two directories"):
        Host(tmp_path)


def test_a_copy_without_its_log_is_left_alone(host, tmp_path, caplog):
    host.log.append([batch("a")], 0)
    future = host.begin()
    host.copy()
    host.kill()
    host.log.dir.rename(tmp_path / "elsewhere")
    again = Host(tmp_path, create=False)
    assert again.log is None
    assert future.dir.exists()
    assert "the log that it is a copy of is in no log directory" in caplog.text
    again.manager.close()


def test_of_two_copies_of_a_log_one_is_removed(host, tmp_path):
    host.log.append([batch("a")], 0)
    host.begin()
    (host.dirs[1] / names.future_dir_name(*KEY)).mkdir()
    host.kill()
    again = Host(tmp_path)
    assert again.log.future is not None
    again.scheduler.run("delete")
    assert again.names() == ["one/t-0", "two/t-0-future"]
    again.manager.close()


def test_a_stray_log_and_its_copy_are_set_aside(host, tmp_path):
    host.log.append([batch("a")], 0)
    host.begin()
    host.kill()
    manager = LogManager(host.dirs, SMALL, clock=ManualClock(NOW), scheduler=ManualScheduler())
    manager.load(is_stray=lambda *_: True)
    assert host.names() == ["one/t-0-stray", "two/t-0-stray"]
    manager.close()


def test_a_log_is_deleted_with_its_copy_before_they_are_loaded(host):
    host.begin()
    host.kill()
    manager = LogManager(host.dirs, SMALL, clock=ManualClock(NOW), scheduler=ManualScheduler())
    manager.loading.begin()
    manager.delete(*KEY)
    assert host.names() == ["one/t-0-delete", "two/t-0-delete"]
    manager.loading.start()
    manager.loading.wait()
    manager.close()


def test_a_move_that_kafka_has_begun_is_continued(tmp_path):
    """The logs are of Apache Kafka 3.9.1. The copy has the first part of the log, as if Kafka had copied it."""
    for name in ("v2-lz4-0", "v2-txn-0"):
        root = tmp_path / name
        source, copy = root / "one" / "t-0", root / "two" / f"t-0.{'0123456789abcdef' * 2}-future"
        shutil.copytree(GOLDEN / "kafka-3.9.1-v2" / "data" / name, source)
        shutil.copytree(source, copy)
        for path in sorted(copy.glob("*.log"))[1:]:
            path.unlink()
        for path in (*copy.glob("*.*index"), *copy.glob("*.snapshot")):
            path.unlink()
        for directory in ("one", "two"):
            clean_shutdown.write_marker(Files(), str(root / directory))
        host = Host(root, create=False)
        before = state_of(host.log)
        assert 0 < host.log.future.log_end_offset < host.log.log_end_offset
        host.finish()
        assert state_of(host.log)["records"] == before["records"]
        assert state_of(host.log)["epochs"] == before["epochs"]
        assert host.names() == ["one/t-0-delete", "two/t-0"]
        host.manager.close()


# --- interruptions at every point of a move


def life(host):
    """Append before, during and after a move. The acknowledged records are in `host.acknowledged`."""
    host.acknowledged = []

    def append(count):
        for _ in range(count):
            number = len(host.acknowledged)
            (verdict,) = host.log.append([batch(f"{number:300}")], 0)
            if not isinstance(verdict, KafkaError):
                host.acknowledged.append((verdict.base_offset, f"{number:300}".encode()))
                host.noted()

    append(8)
    host.marked()
    host.begin()
    copy_piece(host.log, host.log.future, 900)
    append(4)
    host.copy(900)
    host.manager.futures.prepare(host.log)
    append(3)
    host.manager.futures.complete(host.log, 900)
    append(4)
    host.scheduler.run_all()


def points_of(host):
    """Return the numbers of the file operations from the begin of the move on, in a `life` without interruption."""
    begun = []
    host.marked = lambda: begun.append(host.files.count)
    life(host)
    points = range(begun[0] + 1, host.files.count + 1)
    host.manager.close()
    assert len(points) > 50
    return points


def test_after_a_kill_at_any_point_of_a_move_there_is_one_whole_log(tmp_path):
    points = points_of(Host(tmp_path / "whole", files=DyingFiles()))
    places = set()
    for point in points[random.randrange(STEP) :: STEP]:
        host = Host(tmp_path / str(point), files=DyingFiles(point))
        with pytest.raises(Killed):
            life(host)
        host.kill()
        again = Host(tmp_path / str(point))
        # The log may also have a record whose append did not return.
        assert values_of(again.log)[: len(host.acknowledged)] == host.acknowledged, point
        assert len(values_of(again.log)) <= len(host.acknowledged) + 1
        if again.log.future is not None:
            places.add("copied")
            again.finish()
        elif again.log.dir.parent == again.dirs[1]:
            places.add("moved")
        assert values_of(again.log)[: len(host.acknowledged)] == host.acknowledged, point
        again.log.append([batch("after")], 0)
        again.scheduler.run_all()
        assert len(again.names()) == 1, again.names()
        again.manager.close()
        last = Host(tmp_path / str(point))
        assert values_of(last.log)[-1][1] == b"after"
        last.manager.close()
    assert places == {"copied", "moved"}


def test_after_a_power_cut_at_any_point_of_a_move_no_flushed_record_is_lost(tmp_path):
    config = LogConfig({"segment.bytes": 2000, "flush.messages": 1})
    root = tmp_path / "disk"
    root.mkdir()
    files = RecordingFiles(root)
    host = Host(root, files=files, config=config)
    begun, moments = [], []
    host.marked = lambda: begun.append(len(files.journal))
    host.noted = lambda: moments.append(len(files.journal))
    life(host)
    end = len(files.journal)
    host.kill()
    platter, rng = Platter(files.journal), random.Random()
    for moment in some(range(begun[0] + rng.randrange(2), end + 1, 2)):
        platter.play(moment)
        target = tmp_path / f"cut-{moment}"
        loss = rng.choice(list(Loss))
        platter.cut(target, loss, 512, rng)
        certain = host.acknowledged[: sum(one <= moment for one in moments)]
        again = Host(target, files=UnsyncedFiles(), config=config)
        assert values_of(again.log)[: len(certain)] == certain, (moment, loss)
        if again.log.future is not None:
            again.finish()
        assert values_of(again.log)[: len(certain)] == certain, (moment, loss)
        again.scheduler.run_all()
        assert len(again.names()) == 1, again.names()
        again.kill()
        shutil.rmtree(target)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failing_disk_at_any_point_of_a_move_costs_no_record(tmp_path, error):
    """After an error of either disk, or on a full disk, the log in use is complete."""
    points = points_of(Host(tmp_path / "whole", files=FailingFiles()))
    for point in some(points[random.randrange(STEP) :: STEP]):
        host = Host(tmp_path / str(point), files=FailingFiles(point, error))
        try:
            life(host)
        except (KafkaError, OSError):
            host.files.fail_at = None
        log = host.log
        if log.env.failure is None:
            assert values_of(log)[: len(host.acknowledged)] == host.acknowledged, point
            (verdict,) = log.append([batch("more")], 0)
            assert not isinstance(verdict, KafkaError), (point, verdict)
            host.acknowledged = values_of(log)
        host.manager.close()
        again = Host(tmp_path / str(point))
        assert values_of(again.log)[: len(host.acknowledged)] == host.acknowledged, point
        again.manager.close()


def test_a_copy_of_a_damaged_log_ends_with_an_error(host):
    for number in range(10):
        host.log.append([batch(number)], 0)
    segment = host.log.segments.active
    with open(segment.path(names.LOG), "r+b") as file:
        file.seek(segment.size - 3)
        file.write(b"\xff")
    host.begin()
    with pytest.raises(KafkaError) as raised:
        host.copy()
    assert raised.value.code == Errors.CORRUPT_MESSAGE
    assert not isinstance(raised.value, LogDirFailure)
