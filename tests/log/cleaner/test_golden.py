"""kafkapy's cleaner cleans logs that Kafka 0.8, 0.10 and 3.9 have already cleaned, and keeps the latest values."""

import shutil

import pytest

from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.partition_log import PartitionLog
from kafkapy.runtime.clock import ManualClock
from tests.log.support import GOLDEN, ManualScheduler

from .support import UnsyncedFiles, cleaned, data_records, stored_in

FOLDERS = sorted(GOLDEN.glob("*/data/*compacted*"))


def opened(folder, path, now_ms):
    for file in shutil.copytree(folder, path / folder.name).iterdir():
        file.chmod(0o644)
    (path / folder.name).chmod(0o755)
    env = Environment(str(path), UnsyncedFiles(), ManualClock(now_ms), ManualScheduler())
    topic, _, partition = folder.name.rpartition("-")
    config = LogConfig({"cleanup.policy": ["compact"], "segment.index.bytes": 65536})
    log = PartitionLog.load(env, str(path / folder.name), topic, int(partition), config)
    log.set_high_watermark(log.log_end_offset)
    return log


def last_of_each_key(log):
    """Return the last data record of each key in the closed segments, and all records of the active segment."""
    closed, active = log.segments.items[:-1], log.segments.active
    records = [record for segment in closed for entry in stored_in(segment) for record in _data(entry)]
    latest = {record.key: record.offset for record in records}
    kept = [record for record in records if latest[record.key] == record.offset]
    return [tuple(record[:5]) for record in kept + [record for entry in stored_in(active) for record in _data(entry)]]


def _data(entry):
    return [] if entry.header.is_control else entry.records


def test_all_folders_are_here():
    assert len(FOLDERS) == 14


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parents[1].name}-{folder.name}")
def test_logs_that_kafka_has_cleaned_can_be_cleaned_again(folder, tmp_path):
    log = opened(folder, tmp_path, 1000)  # earlier than all delete horizons
    expected = last_of_each_key(log)
    assert log.last_stable_offset == log.log_end_offset
    end, _ = cleaned(log)
    assert end == log.segments.active.base_offset
    assert data_records(log) == expected
    # Expired tombstones are removed, except in the active segment. Those of the old formats expire by the age of the
    # files.
    tombstones = {record[0] for record in expected if record[3] is None and record[0] < end}
    log.abandon()
    again = opened(tmp_path / folder.name, tmp_path / "again", 1 << 60)
    cleaned(again, first_dirty=end)
    is_new = all(entry.header.magic == 2 for segment in again.segments for entry in stored_in(segment))
    left = [record for record in expected if not (is_new and record[0] in tombstones)]
    assert data_records(again) == left
