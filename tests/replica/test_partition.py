"""A leader replica: its high watermark when several threads append."""

import threading

from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.files import Files
from kafkapy.log.partition_log import PartitionLog
from kafkapy.record.batch import build
from kafkapy.replica.partition import Partition
from kafkapy.replica.stall import StallMonitor
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.scheduler import Scheduler


def batch():
    return memoryview(bytearray(build([(1_600_000_000_000, None, b"v", [])])))


class Hesitant:
    """A log whose first teller of the high watermark is overtaken: `meanwhile()` runs between question and answer."""

    def __init__(self, log):
        self._log = log
        self.meanwhile = None

    def __getattr__(self, name):
        return getattr(self._log, name)

    def set_high_watermark(self, offset):
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self._log.set_high_watermark(offset)


def test_an_append_that_is_overtaken_does_not_take_the_high_watermark_back(tmp_path):
    scheduler = Scheduler()
    env = Environment(str(tmp_path), Files(), SYSTEM_CLOCK, scheduler)
    log = PartitionLog.load(env, str(tmp_path / "t-0"), "t", 0, LogConfig({}))
    log.assign_leader_epoch(0)
    partition = Partition(
        log, broker_id=0, leader_epoch=0, disk_pool=None, stall=StallMonitor(1.0), on_append=lambda _: None
    )
    partition.log = hesitant = Hesitant(log)
    other = threading.Thread(target=lambda: partition.append([batch()], None))

    def overtake():
        other.start()
        other.join(0.1)  # it gets as far as it can: its record is in the log, its high watermark waits for ours

    hesitant.meanwhile = overtake
    partition.append([batch()], None)
    other.join()
    assert log.log_end_offset == 2
    assert log.high_watermark == 2
    log.close()
    scheduler.stop()
