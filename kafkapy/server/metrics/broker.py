"""Metrics that are read from the broker's parts when the metrics page is requested."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkapy.server.cleaner import register_cleaner_gauges

if TYPE_CHECKING:
    from kafkapy.server.services import Services


def register_gauges(services: Services) -> None:
    """Register the metrics in `services.counters`. All parts of the broker must exist."""
    counters = services.counters
    purgatory = services.replicas.fetch_purgatory
    counters.gauge("fetch_purgatory_size", "Fetches that wait for data", lambda: purgatory.delayed)
    counters.gauge(
        "conversion_pool_depth", "Appends that are converted or wait for it", lambda: services.conversion_pool.depth
    )
    counters.gauge("append_pool_depth", "Appends that wait or run off the network", lambda: services.append_pool.depth)
    counters.gauge("disk_pool_depth", "Calls that wait or run on the disk pool", lambda: services.disk_pool.depth)
    counters.gauge("read_pools_depth", "Reads for consumers that wait or run", lambda: services.read_pools.depth)
    counters.gauge("fetch_sessions", "Incremental fetch sessions", lambda: len(services.fetch_sessions))
    counters.sampled(
        "fetch_session_evictions", "Fetch sessions given up for others", lambda: services.fetch_sessions.evictions
    )
    counters.gauge("topics", "Topics", lambda: len(services.topics))
    counters.gauge(
        "offline_log_directories",
        "Log directories that failed",
        lambda: sum(error is not None for _, error in services.log_manager.directories()),
    )
    register_cleaner_gauges(services.log_manager, counters)
    counters.gauge("log_open_files", "Files of logs that are kept open", lambda: services.log_manager.open_files)
    counters.sampled(
        "append_stalls",
        "Writes that took longer than kafkapy.stall.threshold.ms",
        lambda: sum(monitor.stalls for monitor in services.replicas.stalls().values()),
    )
    _register_loading(services)


def _register_loading(services: Services) -> None:
    """Register the progress of loading the logs, under the names of Kafka's LogManager (KIP-831). It ends at 0."""
    counters = services.counters
    for directory, progress in services.log_manager.loading.progress().items():
        at = {"dir": directory}
        counters.gauge(
            "remaining_logs_to_recover",
            "Logs of a directory that are not loaded yet",
            partial(getattr, progress, "logs_left"),
            at,
        )
        counters.gauge(
            "remaining_bytes_to_recover",
            "Bytes of a directory's segments that recovery has to check yet",
            partial(getattr, progress, "bytes_left"),
            at,
        )
        for number in range(len(progress.segments_left)):
            counters.gauge(
                "remaining_segments_to_recover",
                "Segments that recovery has to check yet of the log at which one of its threads is",
                partial(progress.segments_left.__getitem__, number),
                {**at, "thread_num": str(number)},
            )
