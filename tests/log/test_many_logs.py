"""Work on one log costs the same with few or many logs."""

import pytest

from kafkapy.log.config import LogConfig
from kafkapy.log.directories.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from kafkapy.log.manager import LogManager
from kafkapy.log.producers.producer_snapshots import SnapshotFiles
from kafkapy.log.segments.segment import Segment
from kafkapy.log.segments.segment_list import SegmentList
from kafkapy.log.storage.files import Files
from kafkapy.runtime.clock import ManualClock

from .support import NOW, ManualScheduler, batch, values_of

CONFIG = LogConfig({"segment.bytes": 400, "file.delete.delay.ms": 0})
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS)


class Counting(Files):
    """Files that record which files are opened, replaced and synced, by the last two parts of the path."""

    def __init__(self):
        super().__init__()
        self.replaced = []
        self.opened = []
        self.synced = []

    def replace(self, path, data):
        self.replaced.append("/".join(path.rsplit("/", 2)[1:]))
        super().replace(path, data)

    def open(self, path, *, create=False):
        self.opened.append("/".join(path.rsplit("/", 2)[1:]))
        return super().open(path, create=create)

    def sync(self, file):
        self.synced.append("/".join(str(file.path).rsplit("/", 2)[1:]))
        super().sync(file)


def manager_on(directory, files=None):
    manager = LogManager([directory], CONFIG, clock=ManualClock(NOW), scheduler=ManualScheduler(), files=files)
    manager.load()
    return manager


def in_checkpoints(directory, topic):
    return [
        name
        for name in CHECKPOINTS
        if any(line.startswith(topic) for line in (directory / name).read_text().splitlines())
    ]


def with_start(manager, topic):
    log = manager.create(topic, 0, None, CONFIG)
    log.append([batch(number) for number in range(10)], 0)
    log.set_high_watermark(10)
    log.flush()
    log.delete_records(9)
    return log


def test_deleting_logs_rewrites_no_checkpoint(tmp_path):
    files = Counting()
    manager = manager_on(tmp_path, files)
    for partition in range(5):
        manager.create("t", partition, None, CONFIG)
    manager.checkpoint()
    files.replaced.clear()
    for partition in range(5):
        manager.delete("t", partition)
    assert files.replaced == []
    manager.checkpoint()
    assert in_checkpoints(tmp_path, "t") == []
    manager.close()


def test_a_log_with_the_name_of_a_deleted_one_is_not_created_before_it_has_left_the_checkpoints(tmp_path):
    manager = manager_on(tmp_path)
    with_start(manager, "again")
    manager.create("stays", 0, None, CONFIG)
    manager.checkpoint()
    assert in_checkpoints(tmp_path, "again") == list(CHECKPOINTS)
    manager.delete("again", 0)
    manager.create("again", 0, None, CONFIG)
    assert in_checkpoints(tmp_path, "again") == []
    assert in_checkpoints(tmp_path, "stays")
    manager.close()


def test_checkpoint_entries_of_a_deleted_log_left_by_a_crash_do_not_apply_to_a_new_log(tmp_path):
    manager = manager_on(tmp_path)
    with_start(manager, "again")
    manager.checkpoint()
    manager.delete("again", 0)
    manager.dirs.unlock()  # killed before a checkpoint was written
    assert in_checkpoints(tmp_path, "again") == list(CHECKPOINTS)

    manager = manager_on(tmp_path)
    log = manager.create("again", 0, None, CONFIG)
    assert in_checkpoints(tmp_path, "again") == []
    log.append([batch("new")], 0)
    manager.dirs.unlock()

    manager = manager_on(tmp_path)
    log = manager.get("again", 0)
    assert (log.log_start_offset, values_of(log)) == (0, [(0, b"new")])
    manager.close()


def test_a_checkpoint_that_cannot_be_written_is_tried_again_before_a_new_log_takes_the_name(tmp_path):
    files = Full()
    manager = manager_on(tmp_path, files)
    with_start(manager, "again")
    manager.checkpoint()
    manager.delete("again", 0)
    files.full = True
    manager.checkpoint()
    assert in_checkpoints(tmp_path, "again") == list(CHECKPOINTS)
    files.full = False
    manager.create("again", 0, None, CONFIG)
    assert in_checkpoints(tmp_path, "again") == []
    manager.close()


class Full(Files):
    """A disk without space for checkpoints while `full` is True."""

    full = False

    def replace(self, path, data):
        if self.full and path.endswith("checkpoint"):
            raise OSError(28, "No space left on device", path)
        super().replace(path, data)


@pytest.mark.parametrize("count", [1, 7])
def test_each_directory_takes_the_next_log_where_fewest_are(tmp_path, count):
    manager = LogManager(
        [tmp_path / "one", tmp_path / "two"], CONFIG, clock=ManualClock(NOW), scheduler=ManualScheduler()
    )
    manager.load()
    for partition in range(2 * count):
        manager.create("t", partition, None, CONFIG)
    assert [one.open_logs for one in manager.dirs.opened] == [count, count]
    for log in manager.logs_in(tmp_path / "one"):
        manager.delete(log.topic, log.partition)
    for partition in range(count):
        manager.create("u", partition, None, CONFIG)
    assert [len(manager.logs_in(tmp_path / name)) for name in ("one", "two")] == [count, count]
    manager.close()


def test_the_lists_of_snapshots_and_segments_stay_sorted_after_changes(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    snapshots = SnapshotFiles(Files(), str(directory))
    for offset in (5, 9, 12, 7, 9):
        snapshots.write(offset, (), sync=False)
    assert snapshots.offsets == [5, 7, 9, 12]
    assert snapshots.mark_deleted(7).endswith(".deleted")
    assert snapshots.mark_deleted(8) is None
    snapshots.delete(5)
    assert snapshots.offsets == [9, 12]
    snapshots.delete_outside(9, 100)
    assert snapshots.offsets == [12]
    snapshots.delete_all()
    assert snapshots.offsets == []
    assert sorted(path.suffix for path in directory.iterdir()) == [".deleted"]


def test_a_list_with_one_more_segment_leaves_the_one_before_as_it_was():
    clock = ManualClock(NOW)
    segments = [Segment(Files(), "/nowhere", base, CONFIG, clock) for base in (0, 10, 20, 10)]
    lists = [SegmentList()]
    for segment in segments[:3]:
        lists.append(lists[-1].with_added(segment))
    assert [one.base_offsets for one in lists] == [[], [0], [0, 10], [0, 10, 20]]
    assert [one.floor(15) for one in lists] == [-1, 0, 1, 1]
    replaced = lists[3].with_added(segments[3])
    assert replaced.items == (segments[0], segments[3], segments[2])
    assert lists[3].items == tuple(segments[:3])


def test_a_stop_syncs_each_file_of_a_log_once(tmp_path):
    files = Counting()
    manager = manager_on(tmp_path, files)
    manager.create("t", 0, None, CONFIG).append([batch(b"a")], 0)
    files.synced.clear()
    manager.close()
    of_the_log = sorted(name.partition("/")[2] for name in files.synced if name.startswith("t-0/"))
    base = f"{0:020d}"
    assert of_the_log == [f"{base}.index", f"{base}.log", f"{base}.timeindex", f"{1:020d}.snapshot"]
