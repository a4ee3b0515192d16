"""The metrics of the log cleaner. All are 0 while there is no compacted log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.runtime.counters import Metric, Registry, metric_table

if TYPE_CHECKING:
    from kafkapy.log.cleaner.service import LogCleaner
    from kafkapy.log.cleaner.stats import CleanerStats
    from kafkapy.log.manager import LogManager

_CLEANER, _MANAGER = "kafka.log:type=LogCleaner", "kafka.log:type=LogCleanerManager"

METRICS = metric_table(
    Metric("log_cleaner_max_dirty_percent", "gauge", (), "Dirty share of the dirtiest log, in percent.",
           f"{_MANAGER},name=max-dirty-percent"),
    Metric("log_cleaner_time_since_last_run_ms", "gauge", (),
           "Milliseconds since a cleaner thread last looked for a log to clean.",
           f"{_MANAGER},name=time-since-last-run-ms"),
    Metric("log_cleaner_dead_thread_count", "gauge", (), "Cleaner threads that ended unexpectedly.",
           f"{_CLEANER},name=DeadThreadCount"),
    Metric("log_cleaner_max_compaction_delay_secs", "gauge", (),
           "Seconds by which a log was overdue (max.compaction.lag.ms) when its cleaning began: the longest of each "
           "thread's last cleaning.",
           f"{_CLEANER},name=max-compaction-delay-secs"),
    Metric("log_cleaner_cleaner_recopy_percent", "gauge", (),
           "Share of the bytes read that the last cleaning of each thread kept, in percent.",
           f"{_CLEANER},name=cleaner-recopy-percent"),
    Metric("log_cleaner_max_clean_time_secs", "gauge", (),
           "Seconds that the longest of each thread's last cleaning took.",
           f"{_CLEANER},name=max-clean-time-secs"),
    Metric("log_cleaner_max_buffer_utilization_percent", "gauge", (),
           "Fullest key map of each thread's last cleaning, in percent.",
           f"{_CLEANER},name=max-buffer-utilization-percent"),
    Metric("log_cleaner_uncleanable_partitions_count", "gauge", ("log_directory",),
           "Partitions that are not cleaned any more because their cleaning failed.",
           f"{_MANAGER},name=uncleanable-partitions-count"),
    Metric("log_cleaner_uncleanable_bytes", "gauge", ("log_directory",),
           "Bytes of these partitions that would be cleaned.",
           f"{_MANAGER},name=uncleanable-bytes"),
)  # fmt: skip


def register(logs: LogManager, counters: Registry) -> None:
    """Register the metrics of the log cleaner. The values are 0 until the log manager `logs` has created a cleaner."""

    def gauge(name: str, read: Callable[[LogCleaner], float], *labels: str) -> None:
        def value() -> float:
            cleaner = logs.compaction.cleaner
            return read(cleaner) if cleaner is not None else 0

        counters.register(METRICS[f"log_cleaner_{name}"], value, *labels)

    gauge("max_dirty_percent", lambda cleaner: int(100 * cleaner.dirtiest_ratio))
    gauge("time_since_last_run_ms", lambda cleaner: cleaner.ms_since_last_look)
    gauge("dead_thread_count", lambda cleaner: cleaner.dead_threads)
    gauge(
        "max_compaction_delay_secs",
        lambda cleaner: max((thread.last_delay_ms for thread in cleaner.threads), default=0) // 1000,
    )
    gauge("cleaner_recopy_percent", lambda cleaner: _recopy_percent(cleaner.last_stats))
    gauge(
        "max_clean_time_secs",
        lambda cleaner: int(max((stats.seconds for stats in cleaner.last_stats), default=0.0)),
    )
    gauge(
        "max_buffer_utilization_percent",
        lambda cleaner: int(100 * max((stats.map_utilization for stats in cleaner.last_stats), default=0.0)),
    )
    for directory in [str(path) for path, _ in logs.directories()]:
        gauge(
            "uncleanable_partitions_count",
            lambda cleaner, path=directory: len(cleaner.uncleanable_in(path)),  # type: ignore[misc]
            directory,
        )
        gauge(
            "uncleanable_bytes",
            lambda cleaner, path=directory: cleaner.uncleanable_bytes_in(path),  # type: ignore[misc]
            directory,
        )


def _recopy_percent(last: list[CleanerStats]) -> int:
    read = sum(stats.bytes_read for stats in last)
    return int(100 * sum(stats.bytes_written for stats in last) / max(read, 1))
