"""Recovery of damaged files gives the same files, byte for byte, as Apache Kafka 3.9.1.

`before` was written by Kafka 3.9.1, which was killed; the files were then damaged by hand. `after` has the files after
3.9.1 recovered them and stopped cleanly. The topics had segment.bytes 1200 and index.interval.bytes 256, the
internal one the default interval. The records' timestamps are of 2020, so their producers have expired whenever a
snapshot is loaded.
"""

import shutil

import pytest

from kafkapy.log.config import LogConfig
from kafkapy.log.directories import clean_shutdown
from kafkapy.log.directories.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, OffsetCheckpoint
from kafkapy.log.manager import LogManager
from kafkapy.log.storage.files import Files
from kafkapy.runtime.clock import ManualClock

from .support import GOLDEN, ManualScheduler, contents

RECOVERY = GOLDEN / "kafka-3.9.1-recovery"
DEFAULTS = LogConfig({"segment.bytes": 1200, "segment.index.bytes": 1024})
TOPICS = LogConfig({**DEFAULTS.values, "index.interval.bytes": 256})
NOVEMBER_2026 = 1_795_268_000_000
PARTITIONS = sorted(path.name for path in (RECOVERY / "after").iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def recovered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recovery") / "data"
    shutil.copytree(RECOVERY / "before", directory)
    scheduler = ManualScheduler()
    manager = LogManager([directory], DEFAULTS, clock=ManualClock(NOVEMBER_2026), scheduler=scheduler)
    manager.load(lambda topic: DEFAULTS if topic.startswith("__") else TOPICS)
    ends = {log.name: log.log_end_offset for log in manager}
    manager.close()
    scheduler.run_all()
    return directory, ends


@pytest.mark.parametrize("partition", PARTITIONS)
def test_recovered_files_are_those_of_kafka(recovered, partition):
    directory, _ = recovered
    found, expected = contents(directory / partition), contents(RECOVERY / "after" / partition)
    assert sorted(found) == sorted(expected)
    assert {name for name in expected if found[name] != expected[name]} == set()


def test_recovered_ends_and_checkpoints_are_those_of_kafka(recovered):
    directory, ends = recovered
    files = Files()
    for name in (RECOVERY_POINTS, LOG_START_OFFSETS):
        found = OffsetCheckpoint(files, str(directory), name).read()
        assert found == OffsetCheckpoint(files, str(RECOVERY / "after"), name).read()
    marks = OffsetCheckpoint(files, str(RECOVERY / "after"), HIGH_WATERMARKS).read()
    assert ends == {f"{topic}-{partition}": offset for (topic, partition), offset in marks.items()}
    assert (directory / clean_shutdown.NAME).read_bytes() == b'{"version":0,"brokerEpoch":-1}'
