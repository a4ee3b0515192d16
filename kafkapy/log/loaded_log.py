"""What loading a partition's directory gives."""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.producer_snapshots import SnapshotFiles
from kafkapy.log.producer_state import ProducerState
from kafkapy.log.segment_list import SegmentList


class LoadedLog(NamedTuple):
    segments: SegmentList
    epochs: LeaderEpochCache
    producers: ProducerState
    snapshots: SnapshotFiles
    log_start_offset: int
    end_offset: int
    recovery_point: int
    settled: bool  # everything was in order and on the disk, and nothing was changed
