"""The broker settings of the log manager, apart from topic settings; defaults are Kafka's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.log.storage.open_files import UNLIMITED
from kafkapy.record.validation import MAX_DECOMPRESSED

if TYPE_CHECKING:
    from kafkapy.log.retention.policy import RetentionPolicy

NEVER_MS = (1 << 63) - 1


class LogSettings(NamedTuple):
    """The broker settings of the log manager. Times are in milliseconds; each comment names the broker setting."""

    recovery_threads_per_dir: int = 1  # num.recovery.threads.per.data.dir
    initial_task_delay_ms: int = 30_000  # log.initial.task.delay.ms
    retention_check_ms: int = 300_000  # log.retention.check.interval.ms
    flush_check_ms: int = NEVER_MS  # log.flush.scheduler.interval.ms
    recovery_checkpoint_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    start_offset_checkpoint_ms: int = 60_000  # log.flush.start.offset.checkpoint.interval.ms
    high_watermark_checkpoint_ms: int = 5_000  # replica.high.watermark.checkpoint.interval.ms
    producer_expiration_ms: int = 86_400_000  # producer.id.expiration.ms
    max_producers: int = sys.maxsize  # kafkapy.max.producer.ids
    producer_expiration_check_ms: int = 600_000  # producer.id.expiration.check.interval.ms
    max_decompressed: int = MAX_DECOMPRESSED  # kafkapy.decompressed.max.bytes
    max_open_files: int = UNLIMITED  # kafkapy.log.max.open.files
    retention: RetentionPolicy | None = None  # kafkapy.retention.policy; None: Kafka's
