"""Moves between log directories, on their threads: continued moves, errors, the throttle, and a stop."""

import errno
from pathlib import Path

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.failures import LogDirFailure, Shortage
from kafkapy.log.manager import LogManager
from kafkapy.log.moves.copying import copy_piece
from kafkapy.replica import log_dir_moves
from kafkapy.replica.log_dir_moves import LogDirMoves
from kafkapy.replica.throttles import Throttle
from kafkapy.runtime.clock import SYSTEM_CLOCK
from tests.harness.waiting import eventually
from tests.log.support import ManualScheduler, batch, values_of

TOPIC_ID = bytes(range(16))
KEY = ("t", 0)


class Host:
    def __init__(self, tmp_path, dirs=("one", "two")):
        self.dirs = [str(tmp_path / name) for name in dirs]
        self.manager = LogManager(self.dirs, LogConfig({}), clock=SYSTEM_CLOCK, scheduler=ManualScheduler())
        self.throttle = Throttle(SYSTEM_CLOCK)
        self.moved = []
        self.moves = LogDirMoves(
            self.manager,
            threads=1,
            throttle=self.throttle,
            is_known=lambda topic, index: topic == "known",
            on_moved=lambda *moved: self.moved.append(moved),
        )
        self.manager.load()
        if self.log is None:
            self.manager.preferred[KEY] = self.manager.dirs.opened[0]
            self.manager.create(*KEY, TOPIC_ID, LogConfig({}), is_new=True)

    @property
    def log(self):
        return self.manager.get(*KEY)

    def append(self, *values, epoch=0):
        self.log.assign_leader_epoch(epoch)
        for value in values:
            (verdict,) = self.log.append([batch(value)], epoch)
            assert not isinstance(verdict, KafkaError)
        self.log.advance_high_watermark(self.log.log_end_offset, epoch)

    def stop(self):
        self.moves.stop()
        self.manager.close()


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    yield host
    host.stop()


def test_a_move_ends_with_a_call(host):
    host.append("a", "b")
    host.moves.alter(*KEY, host.dirs[1])
    eventually(lambda: host.moved == [KEY])
    assert host.log.env.log_dir == host.dirs[1]
    assert host.moves.moving() == []
    assert host.moves.max_lag() == 0


def test_a_move_ends_though_new_records_come_before_each_look_at_the_end(host, monkeypatch):
    host.append("a")

    def copy(log, future, size):
        copied = copy_piece(log, future, size)
        if not log.lock.locked():
            log.append([batch("more")], 0)
        return copied

    monkeypatch.setattr(log_dir_moves, "copy_piece", copy)
    host.moves.alter(*KEY, host.dirs[1])
    eventually(lambda: host.moved == [KEY])


def test_a_move_waits_for_the_throttle_and_a_stop_ends_the_wait(host):
    host.append("a" * 1000, "b")
    host.throttle.limit = 1
    host.throttle.record(1 << 40)
    host.moves.alter(*KEY, host.dirs[1])
    assert host.moves.moving() == [host.log]
    assert host.moves.max_lag() == 2
    host.moves.stop()
    assert host.moved == []
    assert host.log.future is not None


def test_a_new_replica_of_a_known_partition_will_be_created_in_the_directory(host):
    with pytest.raises(KafkaError) as raised:
        host.moves.alter("known", 3, host.dirs[1])
    assert raised.value.code == Errors.REPLICA_NOT_AVAILABLE
    log = host.manager.create("known", 3, TOPIC_ID, LogConfig({}), is_new=True)
    assert log.env.log_dir == host.dirs[1]


def with_diverging_copy(host):
    """Give the log records of epochs 1 and 3, and a future log with records of epochs 1 and 2, which is returned."""
    host.append("a", "b", epoch=1)
    host.append("c", "d", epoch=2)
    host.manager.futures.create(host.log, host.manager.dirs.opened[1])
    future = host.log.future
    found = host.log.read(0, 1 << 20, max_offset=4)
    future.append_as_follower(memoryview(found.region.read()), 9)
    host.log.future = None  # so that the truncation does not reach it
    host.log.truncate_to(2)
    host.log.future = future
    host.append("x", "y", "z", epoch=3)
    return future


def test_a_copy_with_records_of_an_epoch_that_the_log_never_had_is_cut_before_it_is_continued(host):
    """The log was truncated without its copy, as after a crash, and has other records at the same offsets."""
    with_diverging_copy(host)
    host.manager.futures.on_loaded(host.log)
    eventually(lambda: host.moved == [KEY])
    assert [value for _, value in values_of(host.log)] == [b"a", b"b", b"x", b"y", b"z"]
    assert [entry.epoch for entry in host.log.leader_epochs.entries] == [1, 3]


def test_a_copy_that_a_shortage_keeps_from_being_cut_is_cut_later(host, monkeypatch):
    monkeypatch.setattr(log_dir_moves, "_RETRY_S", 0)
    future = with_diverging_copy(host)
    truncate, errors = future.truncate_to, [Shortage("truncating t-0", OSError(errno.ENOSPC, "made up"))]

    def truncate_to(offset):
        if errors:
            raise errors.pop()
        return truncate(offset)

    future.truncate_to = truncate_to
    host.manager.futures.on_loaded(host.log)
    eventually(lambda: host.moved == [KEY])
    assert [value for _, value in values_of(host.log)] == [b"a", b"b", b"x", b"y", b"z"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), ValueError("an unforeseen error")])
def test_the_failure_of_a_move_does_not_end_a_later_one(tmp_path, monkeypatch, error):
    host = Host(tmp_path, dirs=("one", "two", "three"))
    _, two, three = host.manager.dirs.opened

    def fail(moves, log, future):
        host.manager.futures.create(log, three)
        raise LogDirFailure(host.dirs[1], "copying", error) if isinstance(error, OSError) else error

    monkeypatch.setattr(LogDirMoves, "_catch_up", fail)
    host.manager.futures.create(host.log, two)
    host.moves._run(host.log, host.log.future)
    assert host.log.future.env.log_dir == host.dirs[2]
    host.stop()


def test_a_broken_disk_ends_the_move_and_not_the_partition(host, caplog):
    host.append("a")
    host.throttle.limit = 0
    host.throttle.record(1)
    host.moves.alter(*KEY, host.dirs[1])
    host.log.future.env.failed("a test", OSError(errno.EIO, "broken"))
    host.throttle.limit = 1 << 62
    eventually(lambda: host.moves.moving() == [])
    assert "t-0 is not moved" in caplog.text
    assert host.moved == []
    host.append("b")
    assert len(values_of(host.log)) == 2


def test_a_copy_that_cannot_be_truncated_with_its_log_is_removed(host, monkeypatch):
    def truncate_to(offset):
        raise Shortage("truncating t-0", OSError(errno.ENOSPC, "made up"))

    host.append("a", "b", "c")
    host.throttle.limit = 0
    host.throttle.record(1)
    host.moves.alter(*KEY, host.dirs[1])
    monkeypatch.setattr(host.log.future, "truncate_to", truncate_to)
    host.log.truncate_to(1)
    assert host.log.log_end_offset == 1
    host.throttle.limit = 1 << 62
    copies = Path(host.dirs[1]).glob
    eventually(lambda: [path.name.rpartition("-")[2] for path in copies("t-0.*")] == ["delete"])
    assert host.moves.moving() == host.moved == []
    assert host.manager.dirs.opened[1].open_logs == 0


def test_a_damaged_log_is_not_moved_and_its_copy_is_removed(host, caplog):
    host.append("a", "b")
    segment = host.log.segments.active
    with open(segment.path(".log"), "r+b") as file:
        file.seek(segment.size - 2)
        file.write(b"\xff")
    host.moves.alter(*KEY, host.dirs[1])
    eventually(lambda: host.moves.moving() == [])
    eventually(lambda: "t-0 is not moved" in caplog.text)
    assert host.log.env.log_dir == host.dirs[0]
