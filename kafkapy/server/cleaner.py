"""Settings and metrics of the log cleaner, made from the broker's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.log.manager import LogManager
from kafkapy.runtime.counters import Registry
from kafkapy.server.config.broker_config import BrokerConfig

if TYPE_CHECKING:
    from kafkapy.log.cleaner.service import LogCleaner
    from kafkapy.log.cleaner.stats import CleanerStats


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """Return the cleaner's settings, from the broker's."""
    return CleanerSettings(
        enable=config["log.cleaner.enable"],
        threads=config["log.cleaner.threads"],
        dedupe_buffer=config["log.cleaner.dedupe.buffer.size"],
        load_factor=config["log.cleaner.io.buffer.load.factor"],
        io_buffer=config["log.cleaner.io.buffer.size"],
        max_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
        backoff_ms=config["log.cleaner.backoff.ms"],
    )


def register_cleaner_gauges(logs: LogManager, counters: Registry) -> None:
    """Register the metrics of Kafka's LogCleaner and LogCleanerManager. All are 0 while there is no compacted log."""

    def gauge(name: str, help: str, fn: Callable[[LogCleaner], float]) -> None:
        counters.gauge(f"log_cleaner_{name}", help, lambda: _of(logs, fn))

    gauge("max_dirty_percent", "Dirty share of the dirtiest log, %", lambda one: int(100 * one.dirtiest_ratio))
    gauge("time_since_last_run_ms", "Since a cleaner last looked for work", lambda one: one.ms_since_last_look)
    gauge("dead_thread_count", "Cleaner threads that ended though they should not", lambda one: one.dead_threads)
    gauge(
        "max_compaction_delay_secs",
        "By how much a log was overdue (max.compaction.lag.ms) when its cleaning began",
        lambda one: max((thread.last_delay_ms for thread in one.threads), default=0) // 1000,
    )
    gauge(
        "cleaner_recopy_percent",
        "What the last cleaning of each thread kept of the bytes that it read, %",
        lambda one: _recopy_percent(one.last_stats),
    )
    gauge(
        "max_clean_time_secs",
        "Length of the longest of each thread's last cleaning",
        lambda one: int(max((stats.seconds for stats in one.last_stats), default=0.0)),
    )
    gauge(
        "max_buffer_utilization_percent",
        "Fullest key map of each thread's last cleaning, %",
        lambda one: int(100 * max((stats.map_utilization for stats in one.last_stats), default=0.0)),
    )
    for directory, _ in logs.directories():
        path = str(directory)
        labels = {"log_directory": path}
        counters.gauge(
            "log_cleaner_uncleanable_partitions_count",
            "Partitions that cannot be cleaned and are left alone",
            lambda path=path: _of(logs, lambda one: len(one.uncleanable_in(path))),  # type: ignore[misc]
            labels,
        )
        counters.gauge(
            "log_cleaner_uncleanable_bytes",
            "Bytes of them that would be cleaned",
            lambda path=path: _of(logs, lambda one: one.uncleanable_bytes_in(path)),  # type: ignore[misc]
            labels,
        )


def _of(logs: LogManager, fn: Callable[[LogCleaner], float]) -> float:
    cleaner = logs.compaction.cleaner
    return fn(cleaner) if cleaner is not None else 0


def _recopy_percent(last: list[CleanerStats]) -> int:
    read = sum(stats.bytes_read for stats in last)
    return int(100 * sum(stats.bytes_written for stats in last) / max(read, 1))
