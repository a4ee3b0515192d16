"""Makes partitions with a real log that this broker leads, for tests of shards and their logs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.storage.files import Files
from kafkapy.replica.in_sync_replicas import IsrEnvironment
from kafkapy.replica.partition import Partition
from kafkapy.replica.stall import StallMonitor
from kafkapy.runtime.clock import Clock, ManualClock
from kafkapy.runtime.scheduler import Scheduler
from tests.harness.appends import AtOnce
from tests.harness.followers import replicas_of

TOPIC = "__consumer_offsets"


def lead(
    directory: Path,
    clock: Clock | None = None,
    *,
    index: int = 0,
    topic: str = TOPIC,
    pool: Any = None,
    replicas: Sequence[int] = (0,),
    isr: Sequence[int] = (0,),
    timer: Any = None,
    isr_env: IsrEnvironment | None = None,
    **settings: Any,
) -> Partition:
    """Return a leader partition whose log is in `directory`/TOPIC-INDEX. Create the log if it is missing."""
    clock = clock or ManualClock()
    env = Environment(str(directory), Files(), clock, Scheduler(clock))
    config = LogConfig({name.replace("_", "."): value for name, value in settings.items()})
    log = PartitionLog.load(env, str(directory / f"{topic}-{index}"), topic, index, config)
    log.set_high_watermark(log.log_end_offset)
    return lead_log(log, 0, pool=pool, replicas=replicas, isr=isr, timer=timer, isr_env=isr_env)


def lead_log(
    log: PartitionLog,
    leader_epoch: int,
    *,
    pool: Any = None,
    replicas: Sequence[int] = (0,),
    isr: Sequence[int] = (0,),
    timer: Any = None,
    isr_env: IsrEnvironment | None = None,
) -> Partition:
    """Return a leader partition over the log, in this leader epoch."""
    log.assign_leader_epoch(leader_epoch)
    return Partition(
        log,
        broker_id=0,
        leader_epoch=leader_epoch,
        **replicas_of(log, replicas, isr, leader_epoch, env=isr_env),
        append_pool=pool or AtOnce(),
        stall=StallMonitor(10.0),
        timer=timer,
        on_change=lambda _: None,
    )
