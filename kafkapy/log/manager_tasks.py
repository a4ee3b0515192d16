"""The periodic background tasks of the log manager."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy.log.environment import SchedulerLike
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.settings import NEVER_MS

if TYPE_CHECKING:
    from kafkapy.log.directories.log_dir import LogDir, OpenLogs
    from kafkapy.log.manager import LogManager


class ManagerTasks:
    """The periodic tasks of the log manager: retention, checkpoints and producer expiry.

    The constructor schedules the tasks, and `cancel` ends them.
    """

    def __init__(self, manager: LogManager, scheduler: SchedulerLike) -> None:
        self._manager = manager
        settings = manager.settings
        delay_s = settings.initial_task_delay_ms / 1000
        self._tasks: list[Any] = []
        for name, task, period_ms in (
            ("log-retention", self.apply_retention, settings.retention_check_ms),
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
        """Delete old segments of logs that are not compacted.

        For compacted logs the log cleaner does this, as in Kafka.
        """
        self._manager.each_log(lambda log: log.config.compact or log.delete_old_segments(), "retention")

    def expire_producers(self) -> None:
        self._manager.each_log(lambda log: log.expire_producers(), "the expiry of producers")

    def write_recovery_points(self) -> None:
        self._each_dir(lambda log_dir, logs: log_dir.write_recovery_points(logs))

    def write_start_offsets(self) -> None:
        self._each_dir(lambda log_dir, logs: log_dir.write_start_offsets(logs))

    def write_high_watermarks(self) -> None:
        self._each_dir(lambda log_dir, logs: log_dir.write_high_watermarks(logs))

    def _each_dir(self, act: Callable[[LogDir, OpenLogs], None]) -> None:
        for log_dir in self._manager.online_dirs():
            try:
                act(log_dir, partial(self._manager.logs_in, log_dir.path))
            except LogDirFailure:
                continue  # already reported by Environment.failed
