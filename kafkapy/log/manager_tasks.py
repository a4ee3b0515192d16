"""What the log manager does in the background, and how often."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy.errors import KafkaError
from kafkapy.log.environment import SchedulerLike
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.settings import NEVER_MS

if TYPE_CHECKING:
    from kafkapy.log.log_dir import LogDir, OpenLogs
    from kafkapy.log.manager import LogManager
    from kafkapy.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


class ManagerTasks:
    """Scheduled from construction to `cancel`."""

    def __init__(self, manager: LogManager, scheduler: SchedulerLike) -> None:
        self._manager = manager
        settings = manager.settings
        delay_s = settings.initial_task_delay_ms / 1000
        self._tasks: list[Any] = []
        for name, task, period_ms in (
            ("log-retention", self.apply_retention, settings.retention_check_ms),
            ("log-flusher", self.flush_old, settings.flush_check_ms),
            ("recovery-point-checkpoint", self.write_recovery_points, settings.recovery_checkpoint_ms),
            (
                "log-start-offset-checkpoint",
                self.write_start_offsets,
                settings.start_offset_checkpoint_ms,
            ),
            ("high-watermark-checkpoint", self.write_high_watermarks, settings.high_watermark_checkpoint_ms),
            ("producer-expiry", self.expire_producers, settings.producer_expiration_check_ms),
        ):
            if period_ms < NEVER_MS:
                self._tasks.append(scheduler.schedule(name, task, delay_s, max(period_ms, 1) / 1000))

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def apply_retention(self) -> None:
        """Of compacted logs the cleaner does it, as in Kafka."""
        self._each_log(lambda log: log.config.compact or log.delete_old_segments(), "retention")

    def flush_old(self) -> None:
        """Flushes the logs whose flush.ms is over."""

        def flush(log: PartitionLog) -> None:
            if log.flusher.ms_since_flush >= log.config.flush_ms:
                log.flush()

        self._each_log(flush, "the flush by time")

    def expire_producers(self) -> None:
        self._each_log(lambda log: log.expire_producers(), "the expiry of producers")

    def write_recovery_points(self) -> None:
        self._each_dir(lambda log_dir, logs: log_dir.write_recovery_points(logs))

    def write_start_offsets(self) -> None:
        self._each_dir(lambda log_dir, logs: log_dir.write_start_offsets(logs))

    def write_high_watermarks(self) -> None:
        self._each_dir(lambda log_dir, logs: log_dir.write_high_watermarks(logs))

    def _each_log(self, act: Callable[[PartitionLog], object], what: str) -> None:
        for log in self._manager:
            if log.env.failure is None and not log.closed:
                try:
                    act(log)
                except LogDirFailure:
                    continue  # told already
                except KafkaError as error:
                    _log.warning("%s of %s: %s", what, log.name, error.message)
                except Exception:  # of a retention policy that somebody wrote, say: the other logs get theirs
                    _log.exception("%s of %s", what, log.name)

    def _each_dir(self, act: Callable[[LogDir, OpenLogs], None]) -> None:
        for log_dir in self._manager.online_dirs():
            try:
                act(log_dir, partial(self._manager.logs_in, log_dir.path))
            except LogDirFailure:
                continue  # told already
