"""Numbers about the broker's parts that somebody has to be asked for when the metrics are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.server.services import Services


def register_gauges(services: Services) -> None:
    """Registers them with `services.counters`; all parts have to be there."""
    counters = services.counters
    purgatory = services.replicas.fetch_purgatory
    counters.gauge("fetch_purgatory_size", "Fetches that wait for data", lambda: purgatory.delayed)
    counters.gauge("disk_pool_depth", "Calls that wait or run on the disk pool", lambda: services.disk_pool.depth)
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
    counters.sampled(
        "append_stalls",
        "Writes that took longer than kafkapy.stall.threshold.ms",
        lambda: sum(monitor.stalls for monitor in services.replicas.stalls().values()),
    )
