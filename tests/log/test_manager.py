"""The log manager: several directories, locks, identities, deletion, strays, checkpoints, a failing disk."""

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.directories import clean_shutdown
from kafkapy.log.directories.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from kafkapy.log.directories.dir_lock import DirLocked
from kafkapy.log.directories.meta_properties import MetaPropertiesError
from kafkapy.log.failures import Shortage
from kafkapy.log.loading.found import LogInTwoDirectories
from kafkapy.log.loading.log_loader import LogLoader
from kafkapy.log.manager import LogManager, NoLogDir
from kafkapy.log.retention.policy import KafkaRetention
from kafkapy.log.settings import LogSettings
from kafkapy.log.storage.files import Files
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.shortage_report import QUIET_S

from .support import NOW, FailingFiles, ManualScheduler, batch, values_of

TOPIC_ID = bytes(range(16))
CONFIG = LogConfig({"segment.bytes": 400})


class Broker:
    """A log manager. `restart` stops it, cleanly or not, and starts another on the same directories."""

    def __init__(self, *dirs, files=None, config=CONFIG, load=True, **settings):
        self.clock = ManualClock(NOW)
        self.scheduler = ManualScheduler()
        self.failed = []
        self.manager = LogManager(
            dirs,
            config,
            clock=self.clock,
            scheduler=self.scheduler,
            settings=LogSettings(**settings),
            files=files,
            on_dir_failure=lambda directory, error: self.failed.append(directory),
        )
        if load:
            self.manager.load()

    def kill(self):
        """Release the locks of the directories, as the kernel does for a killed process."""
        self.manager.dirs.unlock()


@pytest.fixture
def dirs(tmp_path):
    return tmp_path / "one", tmp_path / "two"


def test_logs_are_spread_over_the_directories(dirs):
    manager = Broker(*dirs).manager
    for partition in range(6):
        manager.create("t", partition, TOPIC_ID, CONFIG)
    assert [len(manager.logs_in(directory)) for directory in dirs] == [3, 3]
    assert {log.name for log in manager} == {f"t-{partition}" for partition in range(6)}
    manager.close()


def test_a_clean_restart_recovers_nothing_and_keeps_everything(dirs, caplog):
    broker = Broker(*dirs)
    for partition in range(4):
        log = broker.manager.create("t", partition, TOPIC_ID, CONFIG)
        log.append([batch(number) for number in range(20)], 0)
        log.set_high_watermark(10 + partition)
        log.delete_records(partition)
    before = {log.name: values_of(log) for log in broker.manager}
    broker.manager.close()
    assert all((directory / clean_shutdown.NAME).exists() for directory in dirs)
    caplog.clear()
    manager = Broker(*dirs).manager
    assert {log.name: values_of(log) for log in manager} == before
    assert {log.partition: (log.high_watermark, log.log_start_offset) for log in manager} == {
        partition: (10 + partition, partition) for partition in range(4)
    }
    assert {log.topic_id for log in manager} == {TOPIC_ID}
    assert {log.recovery_point for log in manager} == {20}
    assert "cut off" not in caplog.text
    assert not any((directory / clean_shutdown.NAME).exists() for directory in dirs)
    manager.close()


def test_a_killed_brokers_logs_are_recovered_on_several_threads(dirs):
    broker = Broker(*dirs)
    for partition in range(6):
        broker.manager.create("t", partition, TOPIC_ID, CONFIG).append([batch(n) for n in range(20)], 0)
    torn = broker.manager.get("t", 3).segments.active.handle().path
    with open(torn, "ab") as file:
        file.write(b"\0" * 30)
    broker.kill()
    manager = Broker(*dirs, recovery_threads_per_dir=3).manager
    assert {len(values_of(log)) for log in manager} == {20}
    manager.close()


def test_a_second_broker_in_this_process_is_refused(dirs):
    broker = Broker(*dirs)
    with pytest.raises(DirLocked, match="another broker"):
        Broker(dirs[1])
    broker.manager.close()
    Broker(*dirs).manager.close()


def test_a_second_broker_in_another_process_is_refused(dirs):
    """The lock is an fcntl lock on `.lock`, like the lock of java.nio."""
    broker = Broker(dirs[0])
    program = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", program, str(dirs[0] / ".lock")]
    assert subprocess.run(command, capture_output=True).returncode == 1
    broker.manager.close()
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_a_directory_named_twice_is_refused(dirs):
    with pytest.raises(ConfigError, match=rf"^log\.dirs={dirs[0]},{dirs[0]}: names a directory twice$"):
        Broker(dirs[0], dirs[0].parent / "." / dirs[0].name)


def test_a_directory_that_cannot_be_used_is_offline_from_the_start(dirs):
    dirs[0].write_text("a file")
    broker = Broker(*dirs)
    (_, fine), (_, why) = sorted(broker.manager.directories(), key=lambda one: one[0], reverse=True)
    assert fine is None
    assert isinstance(why, OSError)
    broker.manager.create("t", 0, TOPIC_ID, CONFIG, is_new=True)
    assert len(broker.manager.logs_in(dirs[1])) == 1
    broker.manager.close()


def test_without_any_usable_directory_there_is_no_broker(dirs):
    dirs[0].write_text("a file")
    with pytest.raises(NoLogDir, match=str(dirs[0])):
        Broker(dirs[0])


# --- identity


def test_directories_belong_to_the_broker_whose_identity_was_written(dirs):
    manager = Broker(dirs[0], load=False).manager
    assert (manager.dirs.stored_cluster_id(), manager.dirs.stored_broker_id()) == (None, None)
    manager.dirs.write_identity(3, "cluster-a", NOW)
    manager.close()
    manager = Broker(*dirs, load=False).manager
    assert (manager.dirs.stored_cluster_id(), manager.dirs.stored_broker_id()) == ("cluster-a", 3)
    with pytest.raises(MetaPropertiesError, match="cluster-b"):
        manager.dirs.check_identity(3, "cluster-b")
    with pytest.raises(MetaPropertiesError, match="broker 4"):
        manager.dirs.check_identity(4, "cluster-a")
    assert not (dirs[1] / "meta.properties").exists()
    manager.dirs.write_identity(3, "cluster-a", NOW)
    assert (dirs[1] / "meta.properties").read_text().endswith("broker.id=3\nversion=0\ncluster.id=cluster-a\n")
    manager.close()


def test_directories_of_different_brokers_are_refused(dirs):
    for number, directory in enumerate(dirs):
        manager = Broker(directory, load=False).manager
        manager.dirs.write_identity(number, "c", NOW)
        manager.close()
    manager = Broker(*dirs, load=False).manager
    with pytest.raises(MetaPropertiesError, match="do not belong together"):
        manager.dirs.stored_broker_id()
    manager.close()


def test_stored_partitions_are_those_of_the_directory_names(dirs):
    broker = Broker(*dirs)
    for topic, partition in (("b-c", 2), ("a", 0), ("gone", 0)):
        broker.manager.create(topic, partition, TOPIC_ID, CONFIG)
    broker.manager.delete("gone", 0)
    (dirs[0] / "not a partition").mkdir()
    assert broker.manager.dirs.stored_partitions() == [("a", 0), ("b-c", 2)]
    broker.manager.close()


def test_another_topic_id_is_refused(dirs):
    manager = Broker(dirs[0]).manager
    manager.create("t", 0, TOPIC_ID, CONFIG)
    with pytest.raises(KafkaError) as refused:
        manager.create("t", 0, bytes(16), CONFIG)
    assert refused.value.code == Errors.INCONSISTENT_TOPIC_ID
    manager.close()


# --- deletion and strays


def test_a_deleted_log_is_renamed_at_once_and_removed_later(dirs):
    broker = Broker(dirs[0])
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    log.append([batch("a")], 0)
    region = log.read(0, 100, max_offset=1).region
    broker.manager.delete("t", 0)
    assert broker.manager.get("t", 0) is None
    (renamed,) = [path for path in dirs[0].iterdir() if path.is_dir()]
    assert renamed.name.startswith("t-0.")
    assert renamed.name.endswith("-delete")
    assert len(renamed.name) == len("t-0.-delete") + 32
    assert region.read()
    assert log.append([batch("b")], 0)[0].code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    again = broker.manager.create("t", 0, bytes(16), CONFIG)
    assert again.log_end_offset == 0
    broker.scheduler.run("delete")
    assert not renamed.exists()
    assert broker.failed == []
    broker.manager.delete("nowhere", 0)
    broker.manager.close()


def test_a_roll_and_a_flush_in_progress_are_not_disturbed_by_the_deletion(dirs):
    broker = Broker(dirs[0])
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    log.append([batch(number) for number in range(30)], 0)
    broker.manager.delete("t", 0)
    broker.scheduler.run("flush")
    log.flush()
    broker.scheduler.run_all()
    assert broker.failed == []
    broker.manager.close()


def test_a_deletion_in_progress_is_finished_after_a_restart(dirs):
    broker = Broker(dirs[0])
    broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    broker.manager.delete("t", 0)
    broker.kill()
    broker = Broker(dirs[0])
    assert list(broker.manager) == []
    broker.scheduler.run("delete")
    assert [path for path in dirs[0].iterdir() if path.is_dir()] == []
    broker.manager.close()


def test_a_log_is_deleted_although_the_disk_is_too_full_for_the_cleaners_checkpoint(dirs):
    files = FailingFiles(only={"write"})
    broker = Broker(dirs[0], files=files)
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    log.env.cleaner_offsets.put(("t", 0), 5)
    files.fail_at = files.count + 1
    broker.manager.delete("t", 0)
    assert files.count == files.fail_at
    (renamed,) = [path for path in dirs[0].iterdir() if path.is_dir()]
    assert renamed.name.endswith("-delete")
    again = broker.manager.create("t", 0, bytes(16), CONFIG)
    assert again.env.cleaner_offsets.get(("t", 0)) is None
    assert broker.failed == []
    broker.manager.close()


def with_failed_deletion(directory, files):
    """Return a broker whose first attempt to delete a log has failed."""
    broker = Broker(directory, files=files)
    broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    files.fail_at = files.count + 1
    with pytest.raises(Shortage):
        broker.manager.delete("t", 0)
    return broker


def test_a_log_that_a_full_disk_keeps_from_being_deleted_is_deleted_later(dirs):
    files = FailingFiles(only={"rename"})
    broker = with_failed_deletion(dirs[0], files)
    files.fail_at = files.count + 1
    with pytest.raises(Shortage):  # the caller has to retry
        broker.manager.create("t", 0, bytes(16), CONFIG)
    assert broker.manager.create("t", 0, bytes(16), CONFIG).topic_id != TOPIC_ID
    files.fail_at = files.count + 1
    with pytest.raises(Shortage):
        broker.manager.delete("t", 0)
    broker.manager.delete("t", 0)
    broker.manager.close()
    assert (dirs[0] / clean_shutdown.NAME).exists()
    assert not (dirs[0] / "t-0").exists()


def test_a_stop_is_not_clean_for_a_log_that_could_not_be_deleted(dirs):
    """The log was closed without a sync."""
    files = FailingFiles(only={"rename"})
    broker = with_failed_deletion(dirs[0], files)
    broker.manager.close()
    assert not (dirs[0] / clean_shutdown.NAME).exists()


def test_the_files_of_a_deleted_log_are_removed_although_its_new_name_could_not_be_synced(dirs):
    files = FailingFiles(error=errno.EMFILE, only={"sync"})
    broker = with_failed_deletion(dirs[0], files)
    broker.manager.delete("t", 0)
    broker.scheduler.run("delete")
    assert [path for path in dirs[0].iterdir() if path.is_dir()] == []
    broker.manager.close()


def test_long_topic_names_are_cut_in_the_name_of_a_deleted_directory(dirs):
    broker = Broker(dirs[0])
    broker.manager.create("x" * 249, 0, TOPIC_ID, CONFIG)
    broker.manager.delete("x" * 249, 0)
    (renamed,) = [path for path in dirs[0].iterdir() if path.is_dir()]
    assert len(renamed.name) == 255
    broker.manager.close()


def test_a_log_that_the_cluster_does_not_know_is_set_aside(dirs):
    broker = Broker(dirs[0])
    for topic in ("known", "unknown"):
        broker.manager.create(topic, 0, TOPIC_ID, CONFIG).append([batch(topic)], 0)
    broker.manager.close()
    broker = Broker(dirs[0], load=False)
    broker.manager.load(is_stray=lambda topic, partition, topic_id: topic == "unknown")
    assert [log.topic for log in broker.manager] == ["known"]
    (stray,) = dirs[0].glob("*-stray")
    assert stray.name.startswith("unknown-0.")
    assert (stray / f"{0:020d}.log").stat().st_size > 0
    broker.manager.close()
    manager = Broker(dirs[0]).manager  # later starts leave the stray alone
    assert [log.topic for log in manager] == ["known"]
    assert stray.exists()
    manager.close()


def test_a_partition_in_two_directories_stops_the_start(dirs):
    for directory in dirs:
        broker = Broker(directory)
        broker.manager.create("t", 0, TOPIC_ID, CONFIG)
        broker.manager.close()
    with pytest.raises(LogInTwoDirectories, match="two directories"):
        Broker(*dirs)


def test_a_log_that_cannot_be_read_is_named_and_not_replaced_by_an_empty_one(dirs, monkeypatch):
    broker = Broker(dirs[0])
    broker.manager.create("t", 0, TOPIC_ID, CONFIG).append([batch("a")], 0)
    broker.manager.create("u", 0, TOPIC_ID, CONFIG)
    broker.manager.close()
    load = LogLoader.load

    def refusing(loader):
        if loader._directory.endswith("t-0"):
            raise KafkaError(Errors.CORRUPT_MESSAGE, "made up")
        return load(loader)

    monkeypatch.setattr(LogLoader, "load", refusing)
    manager = Broker(dirs[0]).manager
    assert [log.name for log in manager] == ["u-0"]
    with pytest.raises(KafkaError) as refused:
        manager.create("t", 0, TOPIC_ID, CONFIG)
    assert refused.value.code == Errors.CORRUPT_MESSAGE
    manager.close()


def test_a_damaged_log_whose_settings_become_valid_is_refused_as_damaged_until_it_can_be_read(dirs, monkeypatch):
    broker = Broker(dirs[0])
    broker.manager.create("t", 0, TOPIC_ID, CONFIG).append([batch("a")], 0)
    broker.manager.close()

    def invalid(topic):
        raise KafkaError(Errors.INVALID_CONFIG, "made up")

    manager = Broker(dirs[0], load=False).manager
    manager.load(invalid)
    with monkeypatch.context() as patch:
        patch.setattr(LogLoader, "load", lambda loader: [][0])
        with pytest.raises(KafkaError, match="list index out of range") as refused:
            manager.create("t", 0, TOPIC_ID, CONFIG)
    assert refused.value.code == Errors.KAFKA_STORAGE_ERROR
    assert values_of(manager.create("t", 0, TOPIC_ID, CONFIG)) == [(0, b"a")]
    manager.close()


def test_a_shortage_while_a_log_is_opened_whose_settings_have_become_valid_takes_nothing_offline(dirs, monkeypatch):
    broker = Broker(dirs[0])
    broker.manager.create("t", 0, TOPIC_ID, CONFIG).append([batch("a")], 0)
    broker.manager.close()

    def invalid(topic):
        raise KafkaError(Errors.INVALID_CONFIG, "made up")

    def full(loader):
        raise OSError(errno.ENOSPC, "made up")

    broker = Broker(dirs[0], load=False)
    broker.manager.load(invalid)
    with monkeypatch.context() as patch:
        patch.setattr(LogLoader, "load", full)
        with pytest.raises(Shortage):
            broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    assert broker.failed == []
    assert values_of(broker.manager.create("t", 0, TOPIC_ID, CONFIG)) == [(0, b"a")]
    broker.manager.close()
    assert (dirs[0] / clean_shutdown.NAME).exists()


def test_a_log_that_is_opened_late_keeps_no_other_log_waiting(dirs, monkeypatch):
    broker = Broker(dirs[0])
    broker.manager.create("t", 0, TOPIC_ID, CONFIG).append([batch("a")], 0)
    broker.manager.close()

    def invalid(topic):
        raise KafkaError(Errors.INVALID_CONFIG, "made up")

    manager = Broker(dirs[0], load=False).manager
    manager.load(invalid)
    load, begun, may_end = LogLoader.load, threading.Event(), threading.Event()

    def slow(loader):
        if loader._directory.endswith("t-0"):
            begun.set()
            assert may_end.wait(30)
        return load(loader)

    monkeypatch.setattr(LogLoader, "load", slow)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(manager.create, "t", 0, TOPIC_ID, CONFIG)
        assert begun.wait(30)
        second = threads.submit(manager.create, "t", 0, TOPIC_ID, CONFIG)
        other = threads.submit(manager.create, "u", 0, bytes(15) + b"u", CONFIG)
        try:
            assert other.result(30).name == "u-0"
        finally:
            may_end.set()
        assert first.result(30) is second.result(30)
    manager.delete("t", 0)
    assert [log.name for log in manager] == ["u-0"]
    manager.close()


# --- background work


def test_checkpoints_are_written_from_time_to_time(dirs):
    broker = Broker(dirs[0])
    broker.manager.start()
    assert {task.name: (task.delay_s, task.period_s) for task in broker.scheduler.tasks} == {
        "log-retention": (30, 300),
        "recovery-point-checkpoint": (30, 60),
        "log-start-offset-checkpoint": (30, 60),
        "high-watermark-checkpoint": (30, 5),
        "producer-expiry": (30, 600),
        "log-cleaner-start": (15, 15),
    }
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    log.append([batch("a"), batch("b")], 0)
    log.set_high_watermark(2)
    log.flush()
    log.delete_records(1)
    broker.scheduler.run("checkpoint")
    for name, line in ((RECOVERY_POINTS, "t 0 2"), (HIGH_WATERMARKS, "t 0 2"), (LOG_START_OFFSETS, "t 0 1")):
        assert (dirs[0] / name).read_text() == f"0\n1\n{line}\n"
    broker.manager.close()
    assert all(task.cancelled for task in broker.scheduler.tasks)


def test_a_retention_policy_that_fails_for_one_log_is_applied_to_the_others(dirs):
    class Choosy(KafkaRetention):
        def rules(self, log, now_ms):
            if log.name == "t-0":
                raise ZeroDivisionError
            return super().rules(log, now_ms)

    broker = Broker(*dirs, retention=Choosy())
    broker.manager.start()
    logs = [broker.manager.create("t", partition, None, CONFIG) for partition in range(2)]
    for log in logs:
        log.append([batch("x") for _ in range(20)], 0)
        log.set_high_watermark(20)
        log.delete_records(20)
    broker.scheduler.run("log-retention")
    assert [len(log.segments) > 1 for log in logs] == [True, False]
    broker.manager.close()


def test_retention_and_flushes_by_time_run_in_the_background(dirs):
    config = LogConfig({"retention.ms": 1000, "flush.ms": 5000})
    broker = Broker(dirs[0], config=config, flush_check_ms=1000)
    broker.manager.start()
    log = broker.manager.create("t", 0, TOPIC_ID, config)
    log.append([batch("a")], 0)
    broker.scheduler.run("log-flusher")
    assert log.recovery_point == 0
    broker.clock.advance(6)
    broker.scheduler.run("flusher")
    assert log.recovery_point == 1
    log.set_high_watermark(1)
    broker.scheduler.run("retention")
    assert log.log_start_offset == 1
    broker.manager.close()


def test_flushes_by_time_of_one_directory_do_not_wait_for_those_of_another(dirs):
    config = LogConfig({"flush.ms": 1000})
    broker = Broker(*dirs, config=config)
    logs = [broker.manager.create("t", partition, TOPIC_ID, config) for partition in range(2)]
    for log in logs:
        log.append([batch("a")], 0)
    broker.clock.advance(1)
    _, second = (task for task in broker.scheduler.tasks if task.name == "log-flusher")
    second.fn()  # while the first, on another thread, waits for its disk
    assert {log.dir.parent: log.recovery_point for log in logs} == {dirs[0]: 0, dirs[1]: 1}
    broker.manager.close()


def test_flushes_by_time_wait_for_their_disk_together(dirs):
    both = threading.Barrier(2, timeout=20)

    class Meeting(Files):
        def sync(self, file):
            if together:
                both.wait()  # raises if no other thread comes
            super().sync(file)

    together = False
    config = LogConfig({"flush.ms": 1000})
    broker = Broker(dirs[0], config=config, files=Meeting())
    logs = [broker.manager.create("t", partition, TOPIC_ID, config) for partition in range(2)]
    for log in logs:
        log.append([batch("a")], 0)
    broker.clock.advance(1)
    together = True
    broker.scheduler.run("log-flusher")
    together = False
    assert [log.recovery_point for log in logs] == [1, 1]
    assert broker.failed == []
    broker.manager.close()


def test_flushes_by_time_that_find_no_descriptor_are_reported_once_for_all_logs(dirs, caplog):
    class Exhausted(Files):
        def sync(self, file):
            if exhausted:
                raise OSError(errno.EMFILE, "Too many open files")
            super().sync(file)

    exhausted = False
    config = LogConfig({"flush.ms": 1000})
    broker = Broker(dirs[0], config=config, files=Exhausted())
    for partition in range(5):
        broker.manager.create("t", partition, TOPIC_ID, config).append([batch("a")], 0)
    exhausted = True
    for _ in range(3):
        broker.clock.advance(1)
        broker.scheduler.run("log-flusher")
    exhausted = False
    assert ["cannot be written: Too many open files" in line for line in caplog.messages] == [True]
    broker.manager.close()


def test_a_log_is_among_the_logs_before_the_broker_looks_for_those_to_flush(dirs, monkeypatch):
    """Otherwise a log that takes longer to create than its flush.ms would not be flushed in time."""
    broker = Broker(dirs[0])
    found = []
    manager = broker.manager
    env = manager.dirs.online[0].env
    monkeypatch.setattr(env, "on_flush_ms", lambda flush_ms: found.append((flush_ms, len(list(manager)))))
    log = manager.create("t", 0, TOPIC_ID, LogConfig({"flush.ms": 10}))
    log.update_config(LogConfig({"flush.ms": 20}))
    assert (10, 1) in found
    manager.close()


def test_garbled_checkpoints_are_passed_over(dirs, caplog):
    broker = Broker(dirs[0])
    broker.manager.create("t", 0, TOPIC_ID, CONFIG).append([batch("a")], 0)
    broker.manager.close()
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS):
        (dirs[0] / name).write_text("0\n2\nt 0 what\n")
    manager = Broker(dirs[0]).manager
    assert len(values_of(manager.get("t", 0))) == 1
    assert caplog.text.count(str(dirs[0])) >= 3
    manager.close()


# --- a disk that fails


def test_a_failed_directory_is_reported_once_and_the_others_still_work(dirs):
    files = FailingFiles(error=errno.EIO, only={"write"})
    broker = Broker(*dirs, files=files)
    logs = [broker.manager.create("t", partition, TOPIC_ID, CONFIG) for partition in range(4)]
    for log in logs:
        log.append([batch("a")], 0)
    files.count, files.fail_at = 0, 1
    with pytest.raises(KafkaError):
        logs[0].append([batch("b")], 0)
    files.fail_at = None
    (bad,) = broker.failed
    for log in logs:
        if log.dir.parent == bad:
            with pytest.raises(KafkaError) as refused:
                log.append([batch("c")], 0)
            assert refused.value.code == Errors.KAFKA_STORAGE_ERROR
        else:
            log.append([batch("c")], 0)
    good = next(directory for directory in dirs if directory != bad)
    with pytest.raises(KafkaError) as refused:
        broker.manager.create("perhaps-there", 0, TOPIC_ID, CONFIG)
    assert refused.value.code == Errors.KAFKA_STORAGE_ERROR
    broker.manager.create("new", 0, TOPIC_ID, CONFIG, is_new=True)
    assert len(broker.manager.logs_in(good)) == 3
    broker.manager.close()
    assert (good / clean_shutdown.NAME).exists()
    assert not (bad / clean_shutdown.NAME).exists()
    assert len(broker.failed) == 1


def test_a_failed_sync_at_the_stop_leaves_no_clean_marker(dirs):
    files = FailingFiles(error=errno.EIO, only={"sync"})
    broker = Broker(dirs[0], files=files)
    broker.manager.create("t", 0, TOPIC_ID, CONFIG).append([batch("a")], 0)
    files.count, files.fail_at = 0, 1
    broker.manager.close()
    assert broker.failed == [dirs[0]]
    assert not (dirs[0] / clean_shutdown.NAME).exists()
    Broker(dirs[0]).manager.close()  # the directory is unlocked


def test_a_full_disk_at_a_checkpoint_keeps_the_old_one(dirs):
    files = FailingFiles(only={"write"})
    broker = Broker(dirs[0], files=files)
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    broker.manager.checkpoint()
    before = (dirs[0] / HIGH_WATERMARKS).read_text()
    log.append([batch("a")], 0)
    log.set_high_watermark(1)
    files.count, files.fail_at = 0, 1
    broker.manager.checkpoint()
    assert (dirs[0] / HIGH_WATERMARKS).read_text() == before
    assert broker.failed == []
    broker.manager.checkpoint()
    assert (dirs[0] / HIGH_WATERMARKS).read_text() == "0\n1\nt 0 1\n"
    broker.manager.close()


def test_a_full_disk_is_over_when_a_refused_checkpoint_can_be_written(dirs, caplog):
    files = FailingFiles(only={"write"})
    broker = Broker(dirs[0], files=files)
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    log.append([batch("a")], 0)
    log.set_high_watermark(1)
    files.count, files.fail_at = 0, 1
    broker.manager.checkpoint()
    broker.clock.advance(QUIET_S)
    broker.manager.checkpoint()
    assert [("cannot be" in line, "can be written again" in line) for line in caplog.messages] == [
        (True, False),
        (False, True),
    ]
    broker.manager.close()


def test_a_checkpoint_that_fits_does_not_end_the_shortage_of_records(dirs, caplog):
    files = FailingFiles(only={"write"})
    broker = Broker(dirs[0], files=files)
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    files.count, files.fail_at = 0, 1
    (refused,) = log.append([batch("a")], 0)
    assert refused.code == Errors.KAFKA_STORAGE_ERROR
    broker.clock.advance(QUIET_S)
    broker.manager.checkpoint()
    assert (dirs[0] / HIGH_WATERMARKS).read_text() == "0\n1\nt 0 0\n"
    assert "can be written again" not in caplog.text
    log.append([batch("a")], 0)
    assert "can be written again" in caplog.text
    broker.manager.close()


def test_a_full_disk_is_over_some_seconds_after_the_producers_have_caught_up(dirs, caplog):
    files = FailingFiles(only={"write"})
    broker = Broker(dirs[0], files=files)
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    files.count, files.fail_at = 0, 1
    (refused,) = log.append([batch("a")], 0)
    assert refused.code == Errors.KAFKA_STORAGE_ERROR
    log.append([batch("a")], 0)
    assert "can be written again" not in caplog.text
    broker.clock.advance(QUIET_S)
    broker.scheduler.run("full-disk-check")
    assert "can be written again" in caplog.text
    broker.manager.close()


def test_a_full_disk_while_making_a_log_is_an_error(dirs):
    files = FailingFiles()
    broker = Broker(dirs[0], files=files)
    files.count, files.fail_at = 0, 1
    with pytest.raises(Shortage) as refused:
        broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    assert refused.value.code == Errors.KAFKA_STORAGE_ERROR
    assert broker.failed == []
    assert broker.manager.create("t", 0, TOPIC_ID, CONFIG).log_end_offset == 0
    broker.manager.close()


def test_directories_may_be_relative(tmp_path):
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        broker = Broker(Path("data"))
        broker.manager.create("t", 0, TOPIC_ID, CONFIG)
        assert len(broker.manager.logs_in(Path("data"))) == 1
        assert broker.manager.directories() == [(tmp_path / "data", None)]
        broker.manager.close()
    finally:
        os.chdir(here)


def test_a_deletion_while_a_flush_waits_for_the_log_takes_nothing_offline(dirs):
    class DeletesFirst:
        """A lock before whose first acquisition the log is deleted."""

        def __init__(self, lock):
            self.lock, self.deleted = lock, False

        def __enter__(self):
            if not self.deleted:
                self.deleted = True
                broker.manager.delete("t", 0)
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    broker = Broker(dirs[0])
    log = broker.manager.create("t", 0, TOPIC_ID, LogConfig({"index.interval.bytes": 0}))
    log.append([batch(number) for number in range(5)], 0)
    log.lock = DeletesFirst(log.lock)
    log.flush()
    assert log.lock.deleted
    assert broker.failed == []
    broker.manager.close()


def test_a_kill_during_a_deletion_leaves_nothing_to_the_next_log_of_that_name(dirs):
    class Killed(BaseException):
        pass

    class Dying(Files):
        def rename(self, old, new):
            super().rename(old, new)
            if new.endswith("-delete"):
                raise Killed

    broker = Broker(dirs[0], files=Dying())
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    log.append([batch(number) for number in range(20)], 0)
    log.set_high_watermark(20)
    log.delete_records(19)
    broker.manager.checkpoint()
    with pytest.raises(Killed):
        broker.manager.delete("t", 0)
    broker.kill()
    broker = Broker(dirs[0])
    broker.manager.create("t", 0, bytes(16), CONFIG).append([batch(number) for number in range(3)], 0)
    broker.kill()
    manager = Broker(dirs[0]).manager
    assert len(values_of(manager.get("t", 0))) == 3
    manager.close()


def test_a_stray_does_not_cost_the_other_logs_their_checkpoints(dirs):
    broker = Broker(dirs[0])
    for topic in ("a", "b"):
        log = broker.manager.create(topic, 0, TOPIC_ID, CONFIG)
        log.append([batch(number) for number in range(20)], 0)
        log.set_high_watermark(20)
        log.delete_records(15)
    broker.manager.checkpoint()
    broker.kill()
    broker = Broker(dirs[0], load=False)
    broker.manager.load(is_stray=lambda topic, partition, topic_id: topic == "a")
    broker.kill()
    manager = Broker(dirs[0]).manager
    assert [(log.name, log.log_start_offset) for log in manager] == [("b-0", 15)]
    manager.close()


def test_a_stop_is_not_clean_for_a_log_that_was_not_recovered(dirs):
    def refuse(topic):
        raise KafkaError(Errors.INVALID_CONFIG, f"the settings of {topic} do not fit together")

    broker = Broker(dirs[0])
    broker.manager.create("t", 0, TOPIC_ID, CONFIG).append([batch("a")], 0)
    broker.kill()
    marker = dirs[0] / clean_shutdown.NAME
    for clean in (False, True):
        manager = Broker(dirs[0], load=False).manager
        manager.load(refuse)
        manager.close()
        assert marker.exists() == clean  # a clean log that was not opened is still clean
        manager = Broker(dirs[0]).manager
        assert len(values_of(manager.get("t", 0))) == 1
        manager.close()


def test_a_log_that_cannot_be_created_in_one_directory_is_created_in_the_other(dirs):
    class NoFiles(Files):
        def open(self, path, *, create=False):
            if create and path.startswith(str(dirs[0] / "t-0")):
                raise OSError(errno.EDQUOT, "over quota")
            return super().open(path, create=create)

    broker = Broker(*dirs, files=NoFiles())
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    assert log.dir.parent == dirs[1]
    assert not (dirs[0] / "t-0").exists()
    broker.manager.close()
    manager = Broker(*dirs).manager
    assert manager.get("t", 0).dir.parent == dirs[1]
    manager.close()


def test_epochs_of_a_deleted_log_are_not_written_over_those_of_its_successor(dirs):
    broker = Broker(dirs[0])
    log = broker.manager.create("t", 0, TOPIC_ID, CONFIG)
    log.append([batch(number) for number in range(20)], 0)
    log.set_high_watermark(20)
    log.delete_records(10)  # the new start of the epochs is written in the background
    broker.manager.delete("t", 0)
    broker.manager.create("t", 0, bytes(16), CONFIG).append([batch("a")], 0)
    broker.scheduler.run("leader epochs")
    assert (dirs[0] / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    broker.manager.close()


def test_a_directory_that_came_after_the_start_is_recovered(dirs):
    other = Broker(dirs[0] / "other").manager
    log = other.create("t", 0, TOPIC_ID, CONFIG)
    for value in "ab":
        log.append([batch(value)], 0)
    other.close()
    segment = dirs[0] / "other" / "t-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2 - 1] ^= 1  # the last byte of the first batch
    segment.write_bytes(data)

    manager = Broker(dirs[0]).manager
    (dirs[0] / "other" / "t-0").rename(dirs[0] / "t-0")
    assert manager.create("t", 0, TOPIC_ID, CONFIG).log_end_offset == 0
    manager.close()


def test_logs_that_are_created_at_the_same_time_do_not_wait_for_each_others_syncs(dirs):
    """Each creation waits for the other one before its sync. A deletion waits until its log is complete."""
    together = threading.Barrier(2)

    class Together(Files):
        def replace(self, path, data):
            if path.endswith("partition.metadata"):
                together.wait(30)  # raises BrokenBarrierError if no other log is created meanwhile
            super().replace(path, data)

    broker = Broker(*dirs, files=Together())
    with ThreadPoolExecutor(3) as threads:
        created = [threads.submit(broker.manager.create, "t", index, TOPIC_ID, CONFIG) for index in (0, 1)]
        for one in created:
            assert one.result().topic_id == TOPIC_ID
        again = [threads.submit(broker.manager.create, "t", 0, TOPIC_ID, CONFIG) for _ in range(3)]
        assert {one.result() for one in again} == {created[0].result()}
    assert [one.open_logs for one in broker.manager.dirs.opened] == [1, 1]
    broker.kill()


def test_a_deletion_waits_until_its_log_is_created(dirs):
    begun, may_continue = threading.Event(), threading.Event()

    class Slow(Files):
        def replace(self, path, data):
            if path.endswith("partition.metadata"):
                begun.set()
                assert may_continue.wait(30)
            super().replace(path, data)

    broker = Broker(dirs[0], files=Slow())
    with ThreadPoolExecutor(2) as threads:
        created = threads.submit(broker.manager.create, "t", 0, TOPIC_ID, CONFIG)
        assert begun.wait(30)
        deleted = threads.submit(broker.manager.delete, "t", 0)
        may_continue.set()
        created.result()
        deleted.result()
    assert broker.manager.get("t", 0) is None
    assert [one.open_logs for one in broker.manager.dirs.opened] == [0]
    assert not (dirs[0] / "t-0").exists()
    broker.kill()
