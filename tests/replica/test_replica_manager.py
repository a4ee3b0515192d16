"""Becoming the leader of partitions whose logs exist already."""

from kafkapy.log.config import LogConfig
from kafkapy.log.directories.partition_metadata import read_topic_id
from kafkapy.log.manager import LogManager
from kafkapy.metadata.roles import PartitionRole
from kafkapy.replica.manager import ReplicaManager
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.runtime.timer import Timer

TOPIC_ID = bytes(range(16))


def test_a_log_whose_creation_a_crash_interrupted_gets_its_topic_id(tmp_path):
    (tmp_path / "t-0").mkdir()  # as after a crash before the first file was created
    scheduler = Scheduler()
    logs = LogManager([tmp_path], LogConfig({}), clock=SYSTEM_CLOCK, scheduler=scheduler)
    logs.load()
    replicas = ReplicaManager(logs, broker_id=0, timer=Timer(SYSTEM_CLOCK), append_pool=None, stall_threshold=1.0)
    replicas.expect("t", [0])
    partition = replicas.make_leader(PartitionRole("t", 0, TOPIC_ID, 0, 0, 0, [0], [0]), LogConfig({}))
    assert partition.log.topic_id == TOPIC_ID
    assert read_topic_id(partition.log.env.files, partition.log.directory) == TOPIC_ID
    logs.close()
    scheduler.stop()
