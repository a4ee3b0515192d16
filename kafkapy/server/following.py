"""Fetches the partitions that this broker follows. Its parts are created with the first of them, for a fast start."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kafkapy.metadata.roles import NO_LEADER

if TYPE_CHECKING:
    from kafkapy.replica.fetch_session import FetchSettings
    from kafkapy.replica.fetch_state import FetchState
    from kafkapy.replica.fetchers import FollowerFetching
    from kafkapy.replica.followed_partition import FollowedPartition
    from kafkapy.runtime.timer import Timer
    from kafkapy.server.config.broker_config import BrokerConfig
    from kafkapy.server.services import Services


class Following:
    """Creates the fetchers of this broker with the first partition to fetch. Any thread may call all methods.

    `follow` and `stop` are the callbacks of ReplicaManager for partitions that this broker starts or stops following.
    """

    def __init__(self, services: Services, timer: Timer) -> None:
        self._services = services
        self._timer = timer
        self._lock = threading.Lock()
        self._closed = False
        self.fetching: FollowerFetching | None = None

    def follow(self, partition: FollowedPartition) -> None:
        """Fetch a partition from its leader, as its new role says."""
        if self.fetching is None and partition.leader != NO_LEADER:
            with self._lock:
                if self.fetching is None and not self._closed:
                    self.fetching = self._make()
        if self.fetching is not None:
            self.fetching.follow(partition)

    def stop(self, partition: FollowedPartition) -> None:
        """Stop fetching a partition."""
        if self.fetching is not None:
            self.fetching.stop(partition)

    def resize(self) -> None:
        """Apply a change of num.replica.fetchers."""
        if self.fetching is not None:
            self.fetching.resize(self._services.config["num.replica.fetchers"])

    def close(self) -> None:
        """End all fetching."""
        with self._lock:
            self._closed = True
        if self.fetching is not None:
            self.fetching.close()

    # --- for the metrics

    @property
    def bytes_in(self) -> int:
        """Return how many bytes this broker has appended as follower."""
        return 0 if self.fetching is None else self.fetching.bytes_in

    @property
    def max_lag(self) -> int:
        """Return the largest lag of a followed partition behind its leader, in records."""
        return 0 if self.fetching is None else self.fetching.max_lag

    @property
    def failed(self) -> int:
        """Return the number of followed partitions that are not fetched until their next leader epoch."""
        return 0 if self.fetching is None else self.fetching.failed

    def _make(self) -> FollowerFetching:
        from kafkapy.replica.fetchers import FollowerFetching

        services = self._services
        settings = _settings(services.config)  # none of them changes while the broker runs
        receive_buffer = services.config["replica.socket.receive.buffer.bytes"]
        return FollowerFetching(
            lambda leader, index: services.peers.make(leader, f"fetcher-{index}", receive_buffer=receive_buffer),
            broker_id=services.broker_id,
            broker_epoch=lambda: services.broker_epoch,
            logs=services.log_manager,
            pool=services.append_pool,
            timer=self._timer,
            settings=lambda: settings,
            fetchers=services.config["num.replica.fetchers"],
            is_throttled=self._is_throttled,
            on_append=self._appended,
        )

    def _is_throttled(self, state: FetchState) -> bool:
        throttle = self._services.throttles.follower
        return throttle.is_throttled(state.partition.topic, state.partition.index) and throttle.is_exceeded()

    def _appended(self, state: FetchState, size: int) -> None:
        throttle = self._services.throttles.follower
        if throttle.is_throttled(state.partition.topic, state.partition.index):
            throttle.record(size)


def _settings(config: BrokerConfig) -> FetchSettings:
    from kafkapy.replica.fetch_session import FetchSettings

    return FetchSettings(
        partition_bytes=config["replica.fetch.max.bytes"],
        response_bytes=config["replica.fetch.response.max.bytes"],
        min_bytes=config["replica.fetch.min.bytes"],
        wait_ms=config["replica.fetch.wait.max.ms"],
        backoff_s=config["replica.fetch.backoff.ms"] / 1000,
        timeout_s=config["replica.socket.timeout.ms"] / 1000,
    )
