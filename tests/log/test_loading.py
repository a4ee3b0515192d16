"""Loading logs while the broker serves clients: the order, requests for logs not loaded yet, and a stop meanwhile."""

import errno
import os
import threading

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.directories import clean_shutdown, partition_metadata
from kafkapy.log.directories.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS
from kafkapy.log.failures import Shortage
from kafkapy.log.loading.found import LogInTwoDirectories
from kafkapy.log.storage.files import Files
from tests.harness.gated_files import GatedFiles

from .support import FailingFiles, batch, values_of
from .test_manager import CONFIG, TOPIC_ID, Broker

OTHER_ID = bytes(16)
WAIT_S = 60


def filled(*dirs, topics=("slow", "a", "b"), deleted_before=0, count=20):
    """Write the log directories of a killed broker, with a log of several segments for each topic."""
    broker = Broker(*dirs)
    for topic in topics:
        log = broker.manager.create(topic, 0, TOPIC_ID, CONFIG)
        log.append([batch(number) for number in range(count)], 0)
        log.set_high_watermark(count)
        if deleted_before:
            log.delete_records(deleted_before)
    broker.manager.checkpoint()
    broker.kill()


class Loading(Broker):
    """A broker that loads in the background. `left` gets the topics in the order in which their logs became ready or
    failed."""

    def __init__(self, *dirs, files=None, is_stray=None, **settings):
        super().__init__(*dirs, files=files, load=False, **settings)
        self.left = []
        self.manager.loading.begin(None, is_stray, lambda topic, partition: self.left.append(topic))

    def start(self):
        self.manager.loading.start()
        return self.manager

    def finish(self):
        assert self.manager.loading.wait(WAIT_S)


@pytest.fixture
def held(tmp_path):
    """Return (broker whose only thread is recovering `slow`, with `a` and `b` next in the queue, gated files)."""
    filled(tmp_path)
    os.utime(newest(tmp_path / "slow-0"), (2**31, 2**31))
    files = GatedFiles("slow-0")
    broker = Loading(tmp_path, files=files)
    broker.start()
    assert files.arrived.wait(WAIT_S)
    yield broker, files
    files.open_gate()
    broker.manager.close()


def newest(directory):
    return max(directory.glob("*.log"))


def test_logs_with_the_latest_writes_are_loaded_first(tmp_path):
    filled(tmp_path, topics=("a", "b", "c"))
    for topic, time in (("a", 2_000), ("b", 3_000), ("c", 1_000)):
        os.utime(newest(tmp_path / f"{topic}-0"), (time, time))
    broker = Loading(tmp_path)
    broker.start()
    broker.finish()
    assert broker.left == ["b", "a", "c"]
    broker.manager.close()


def test_a_requested_log_is_loaded_first(held):
    broker, files = held
    broker.manager.loading.hasten(("b", 0))
    broker.manager.loading.hasten(("b", 0))
    broker.manager.loading.hasten(("nothing", 0))
    files.open_gate()
    broker.finish()
    assert broker.left[:2] == ["slow", "b"]


def test_logs_are_ready_one_by_one(tmp_path):
    filled(tmp_path)
    files = GatedFiles("slow-0")
    broker = Loading(tmp_path, files=files, recovery_threads_per_dir=2)
    ready = threading.Event()
    broker.left = _Signalling(2, ready)
    manager = broker.start()
    assert ready.wait(WAIT_S)
    assert not manager.is_loading("a", 0)
    assert len(values_of(manager.get("a", 0))) == 20
    assert manager.is_loading("slow", 0)
    assert manager.get("slow", 0) is None
    assert not manager.loading.wait(0)
    assert manager.loading.in_dir(tmp_path) == [("slow", 0)]
    files.open_gate()
    broker.finish()
    assert len(values_of(manager.get("slow", 0))) == 20
    manager.close()


class _Signalling(list):
    def __init__(self, count, event):
        super().__init__()
        self.count, self.event = count, event

    def append(self, item):
        super().append(item)
        if len(self) == self.count:
            self.event.set()


def test_progress_counts_down_to_nothing(held):
    broker, files = held
    (progress,) = broker.manager.loading.progress().values()
    segments = len(list(newest(next(broker.manager.dirs.opened[0].path.glob("slow-0"))).parent.glob("*.log")))
    assert progress.logs_left == progress.logs == 3
    assert progress.segments_left == [segments]
    assert (
        progress.bytes_left
        == progress.bytes
        == sum(path.stat().st_size for path in broker.manager.dirs.opened[0].path.glob("*-0/*.log"))
    )
    files.open_gate()
    broker.finish()
    assert (progress.logs_left, progress.segments_left, progress.bytes_left) == (0, [0], 0)


def test_a_stop_in_the_middle_loses_nothing_and_is_not_clean(tmp_path):
    filled(tmp_path, deleted_before=3)
    os.utime(newest(tmp_path / "slow-0"), (2**31, 2**31))
    files = GatedFiles("slow-0")
    broker = Loading(tmp_path, files=files)
    manager = broker.start()
    assert files.arrived.wait(WAIT_S)
    (load,) = manager.loading._loads
    stopping = threading.Thread(target=manager.loading.stop)
    stopping.start()
    while not load._stopping:
        stopping.join(0.001)
    files.open_gate()
    manager.close()
    stopping.join(WAIT_S)
    assert broker.left == []
    assert not manager.loading.wait(0)
    assert not (tmp_path / clean_shutdown.NAME).exists()
    assert sorted((tmp_path / LOG_START_OFFSETS).read_text().splitlines()[2:]) == ["a 0 3", "b 0 3", "slow 0 3"]
    manager = Broker(tmp_path).manager
    assert {log.name: (log.log_start_offset, log.log_end_offset) for log in manager} == {
        "a-0": (3, 20),
        "b-0": (3, 20),
        "slow-0": (3, 20),
    }
    manager.close()
    assert (tmp_path / clean_shutdown.NAME).exists()


def test_a_stop_before_clean_logs_are_open_is_clean(tmp_path):
    filled(tmp_path)
    Broker(tmp_path).manager.close()
    Loading(tmp_path).manager.close()
    assert (tmp_path / clean_shutdown.NAME).exists()
    manager = Broker(tmp_path).manager
    assert {log.log_end_offset for log in manager} == {20}
    manager.close()


def test_checkpoints_keep_the_entries_of_logs_that_are_not_loaded_yet(tmp_path):
    filled(tmp_path, deleted_before=15)
    broker = Loading(tmp_path)
    broker.manager.create("new", 0, TOPIC_ID, CONFIG)
    broker.manager.checkpoint()
    broker.kill()
    manager = Broker(tmp_path).manager
    assert {log.name: log.log_start_offset for log in manager} == {"a-0": 15, "b-0": 15, "new-0": 0, "slow-0": 15}
    manager.close()


def start_offsets(directory):
    return sorted((directory / LOG_START_OFFSETS).read_text().splitlines()[2:])


def test_checkpoints_keep_the_entry_of_a_log_that_cannot_be_loaded(tmp_path):
    filled(tmp_path, topics=("a", "b"), deleted_before=13)
    Broker(tmp_path).manager.close()

    def refuse(topic):
        if topic == "a":
            raise KafkaError(Errors.INVALID_CONFIG, "nothing fits")
        return CONFIG

    broker = Broker(tmp_path, load=False)
    broker.manager.load(refuse)
    assert [log.topic for log in broker.manager] == ["b"]
    broker.manager.checkpoint()
    broker.manager.close()
    assert start_offsets(tmp_path) == ["a 0 13", "b 0 13"]
    manager = Broker(tmp_path).manager
    assert {log.log_start_offset for log in manager} == {13}
    manager.close()


def test_checkpoints_outlive_a_start_that_a_log_in_two_directories_prevents(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    filled(one, topics=["a"], deleted_before=13)
    filled(two, topics=["b"], deleted_before=13)
    Broker(one, two).manager.close()
    (two / "a-0").mkdir()
    broker = Broker(one, two, load=False)
    with pytest.raises(LogInTwoDirectories, match="a-0 is in two directories"):
        broker.manager.load()
    broker.manager.close()
    (two / "a-0").rmdir()
    assert (start_offsets(one), start_offsets(two)) == (["a 0 13"], ["b 0 13"])
    manager = Broker(one, two).manager
    assert {log.name: log.log_start_offset for log in manager} == {"a-0": 13, "b-0": 13}
    manager.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_recovery_point_beyond_the_end_of_a_log_is_lowered_at_once(tmp_path, clean):
    """Otherwise a start after the next crash would not check the records that replaced the lost ones."""
    filled(tmp_path, topics=("a", "b"))
    manager = Broker(tmp_path).manager
    for log in manager:
        log.flush()
    manager.close()
    if not clean:
        (tmp_path / clean_shutdown.NAME).unlink()
    path = newest(tmp_path / "a-0")
    os.truncate(path, 0)
    left = int(path.stem)
    assert 0 < left < 20
    broker = Broker(tmp_path)
    assert broker.manager.get("a", 0).log_end_offset == left
    assert sorted((tmp_path / RECOVERY_POINTS).read_text().splitlines()[2:]) == [f"a 0 {left}", "b 0 20"]
    broker.kill()


# --- changes meanwhile


def test_a_log_whose_loading_has_not_begun_is_deleted_unread(held):
    broker, files = held
    broker.manager.delete("a", 0)
    assert not broker.manager.is_loading("a", 0)
    assert broker.left == []  # a deletion needs no callback
    log = broker.manager.create("a", 0, OTHER_ID, CONFIG)
    assert (log.log_end_offset, log.topic_id) == (0, OTHER_ID)
    files.open_gate()
    broker.finish()
    assert "a-0" not in files.scanned
    assert broker.manager.get("a", 0) is log


def test_a_log_that_is_not_loaded_and_cannot_be_renamed_is_deleted_by_a_second_attempt(tmp_path):
    filled(tmp_path)
    files = FailingFiles(only={"rename"})
    broker = Loading(tmp_path, files=files)
    files.fail_at = files.count + 1
    with pytest.raises(Shortage):
        broker.manager.delete("a", 0)
    assert not broker.manager.is_loading("a", 0)
    files.fail_at = files.count + 1
    with pytest.raises(Shortage):
        broker.manager.create("a", 0, OTHER_ID, CONFIG)
    broker.manager.delete("a", 0)
    assert broker.manager.create("a", 0, OTHER_ID, CONFIG).log_end_offset == 0
    broker.manager.close()


def test_a_log_that_is_being_recovered_is_deleted_when_that_has_been_stopped(held):
    broker, files = held
    broker.manager.delete("slow", 0)
    broker.manager.delete("slow", 0)
    assert broker.manager.is_loading("slow", 0)
    files.open_gate()
    broker.finish()
    assert files.scanned.count("slow-0") == 1  # stopped after one of several segments
    assert broker.left[0] == "slow"  # a role for a new log of this name may wait
    directory = broker.manager.dirs.opened[0].path
    assert not (directory / "slow-0").exists()
    assert broker.manager.create("slow", 0, OTHER_ID, CONFIG).log_end_offset == 0
    broker.manager.close()
    assert (directory / clean_shutdown.NAME).exists()


def test_a_log_is_created_while_one_of_its_name_is_recovered_and_deleted(held):
    broker, files = held
    broker.manager.delete("slow", 0)
    created = []
    creating = threading.Thread(target=lambda: created.append(broker.manager.create("slow", 0, OTHER_ID, CONFIG)))
    creating.start()
    files.open_gate()
    creating.join(WAIT_S)
    assert [(log.log_end_offset, log.topic_id) for log in created] == [(0, OTHER_ID)]
    broker.finish()


def test_a_log_is_deleted_though_its_recovery_ended_before_it_could_be_stopped(tmp_path):
    filled(tmp_path, topics=["slow"], count=1)  # one segment
    files = GatedFiles("slow-0")
    broker = Loading(tmp_path, files=files)
    broker.start()
    assert files.arrived.wait(WAIT_S)
    broker.manager.delete("slow", 0)
    files.open_gate()
    broker.finish()
    assert broker.manager.get("slow", 0) is None
    assert not (tmp_path / "slow-0").exists()
    broker.manager.close()


def test_a_log_that_cannot_be_loaded_can_be_deleted(tmp_path):
    filled(tmp_path, topics=["a"])

    def refuse(topic):
        raise KafkaError(Errors.INVALID_CONFIG, "nothing fits")

    broker = Broker(tmp_path, load=False)
    broker.manager.load(refuse)
    broker.manager.delete("a", 0)
    assert broker.manager.create("a", 0, OTHER_ID, CONFIG).log_end_offset == 0
    broker.manager.close()
    assert (tmp_path / clean_shutdown.NAME).exists()


def is_stray(topic, partition, topic_id):
    return topic_id == TOPIC_ID


def test_a_stray_log_is_set_aside_for_a_new_log_of_its_name(tmp_path):
    filled(tmp_path)
    broker = Loading(tmp_path, is_stray=is_stray)
    assert broker.manager.create("a", 0, OTHER_ID, CONFIG).log_end_offset == 0
    assert [path.name[:4] for path in tmp_path.glob("*-stray")] == ["a-0."]
    broker.manager.close()


def test_creating_a_log_that_waits_for_its_recovery_recovers_it_first(held):
    broker, files = held
    log = broker.manager.create("a", 0, TOPIC_ID, CONFIG)
    assert len(values_of(log)) == 20
    files.open_gate()
    broker.finish()
    assert broker.manager.get("a", 0) is log
    assert files.scanned.count("a-0") == len(log.segments)


def test_a_new_log_waits_until_a_stray_of_its_name_is_recovered_and_set_aside(held):
    broker, files = held
    broker.manager.loading._is_stray = is_stray
    created = []
    making = threading.Thread(target=lambda: created.append(broker.manager.create("slow", 0, OTHER_ID, CONFIG)))
    making.start()
    files.open_gate()
    making.join(WAIT_S)
    assert [log.topic_id for log in created] == [OTHER_ID]
    broker.finish()
    directory = broker.manager.dirs.opened[0].path
    assert len(list(directory.glob("slow-0.*-stray"))) == 1
    assert files.scanned.count("slow-0") > 1


def test_a_log_left_unloaded_by_the_stop_is_not_replaced_by_an_empty_one(tmp_path):
    filled(tmp_path)
    broker = Loading(tmp_path)
    broker.manager.loading.stop()
    with pytest.raises(KafkaError) as refused:
        broker.manager.create("slow", 0, TOPIC_ID, CONFIG)
    assert refused.value.code == Errors.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refused:
        broker.manager.delete("slow", 0)
    assert refused.value.code == Errors.NOT_LEADER_OR_FOLLOWER
    broker.manager.close()


def test_a_directory_that_fails_while_loading_does_not_hold_up_the_others(tmp_path):
    class Broken(Files):
        def scan(self, file, *arguments):
            if "/one/" in file.path:
                raise OSError(errno.EIO, "the disk is broken")
            return super().scan(file, *arguments)

    one, two = tmp_path / "one", tmp_path / "two"
    filled(one, topics=("a", "b"))
    filled(two, topics=("c", "d"))
    broker = Loading(one, two, files=Broken())
    manager = broker.start()
    broker.finish()
    assert sorted(broker.left) == ["a", "b", "c", "d"]
    assert broker.failed == [one]
    assert sorted(log.topic for log in manager) == ["c", "d"]
    with pytest.raises(KafkaError) as refused:
        manager.create("a", 0, TOPIC_ID, CONFIG)
    assert refused.value.code == Errors.KAFKA_STORAGE_ERROR
    manager.close()
    assert not (one / clean_shutdown.NAME).exists()
    assert (two / clean_shutdown.NAME).exists()


class Confused(Files):
    """Files that fail the recovery of log `a`."""

    def scan(self, file, *arguments):
        if "a-0" in file.path:
            raise ValueError("an unforeseen error")
        return super().scan(file, *arguments)


def check_that_only_b_is_loaded(directory):
    broker = Loading(directory, files=Confused())
    manager = broker.start()
    broker.finish()
    assert [log.topic for log in manager] == ["b"]
    with pytest.raises(KafkaError, match="an unforeseen error"):
        manager.create("a", 0, TOPIC_ID, CONFIG)
    manager.close()


def test_other_logs_are_loaded_when_the_loading_of_one_fails(tmp_path):
    filled(tmp_path, topics=("a", "b"))
    check_that_only_b_is_loaded(tmp_path)
    assert not (tmp_path / clean_shutdown.NAME).exists()


def without_topic_id(directory):
    """Make every attempt to read the topic id of a log raise an OSError."""
    (directory / partition_metadata.NAME).unlink()
    (directory / partition_metadata.NAME).mkdir()


def test_other_logs_are_loaded_when_not_even_the_topic_id_of_one_that_fails_can_be_read(tmp_path):
    filled(tmp_path, topics=("a", "b"))
    os.utime(newest(tmp_path / "a-0"), (2**31, 2**31))
    without_topic_id(tmp_path / "a-0")
    check_that_only_b_is_loaded(tmp_path)


def test_a_log_whose_topic_id_cannot_be_read_is_loaded_before_one_of_its_name_is_created(tmp_path):
    filled(tmp_path)
    without_topic_id(tmp_path / "a-0")
    broker = Loading(tmp_path)
    log = broker.manager.create("a", 0, None, CONFIG)
    assert len(values_of(log)) == 20
    broker.manager.close()
