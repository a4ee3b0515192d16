"""Assigns each partition that this broker follows to a fetcher, which is chosen by leader and partition.

A leader has up to num.replica.fetchers connections. Source: AbstractFetcherManager, ReplicaFetcherManager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from kafkapy._ext.java_hash import hash_of_string
from kafkapy.log.failures import Shortage
from kafkapy.log.manager import LogManager
from kafkapy.metadata.roles import NO_LEADER
from kafkapy.replica.fetch_session import FetchSettings
from kafkapy.replica.fetch_state import FetchState, release
from kafkapy.replica.fetcher import Fetcher, Following
from kafkapy.replica.followed_partition import FollowedPartition
from kafkapy.replica.follower_log import needs_first_truncation, truncate_first
from kafkapy.replica.links import Link
from kafkapy.runtime.disk_pool import DiskPool, PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.runtime.timer import Timer

log = logging.getLogger("kafkapy.replica.fetchers")


def fetcher_index(topic: str, partition: int, count: int) -> int:
    """Return which of a leader's `count` fetchers fetches a partition: abs(31 * hash(topic) + partition) % count.

    As in Kafka, in Java's 32-bit arithmetic. Source: AbstractFetcherManager.getFetcherId, Utils.abs.
    """
    number = (31 * hash_of_string(topic) + partition) & 0xFFFFFFFF
    if number >= 1 << 31:
        number = 0 if number == 1 << 31 else (1 << 32) - number  # abs of the smallest int is 0
    return number % count


class FollowerFetching:
    """Fetches the partitions that this broker follows. Any thread may call the methods.

    `follow` and `stop` are the callbacks `on_followed` and `on_unfollowed` of the ReplicaManager.
    """

    def __init__(
        self,
        link_to: Callable[[int, int], Link],
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        logs: LogManager,
        pool: DiskPool,
        timer: Timer,
        settings: Callable[[], FetchSettings],
        fetchers: int = 1,
        is_throttled: Callable[[FetchState], bool] = lambda state: False,
        on_append: Callable[[FetchState, int], object] = lambda state, size: None,
    ) -> None:
        """`link_to(leader id, fetcher index)` returns a new Link with the client id `broker-ID-fetcher-INDEX`.

        `pool` runs appends that wait for the disk, and truncations. `settings()` is called for each request, and
        `broker_epoch()` returns the epoch of this broker's registration. `fetchers` is num.replica.fetchers.
        `is_throttled(state)` is asked about partitions that are not in sync; True means: fetch it later (KIP-73).
        `on_append(state, size)` is called after each append, on any thread; `size` is in bytes.
        """
        self._link_to = link_to
        self._count = max(fetchers, 1)
        self._on_append = on_append
        self._lock = threading.Lock()  # taken before the locks of fetchers
        self._states: dict[tuple[str, int], FetchState] = {}
        self._failed: dict[tuple[str, int], FetchState] = {}
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._closed = False
        self._following = Following(
            broker_id, broker_epoch, logs, pool, timer, settings, is_throttled, self._appended, self._note_failed
        )
        self.bytes_in = 0  # appended by followers of this broker so far

    # --- what is fetched

    def follow(self, partition: FollowedPartition) -> None:
        """Fetch a partition from its leader, in place of its former role. Stop fetching it if it has no leader.

        Does nothing if a later role of the partition has begun: its call may have come before this one.
        """
        state = FetchState(partition)
        state.held = needs_first_truncation(partition)
        with self._lock:
            if self._closed or partition.gone is not None:  # a later role may be followed already
                return
            self._remove(partition)
            if partition.leader == NO_LEADER:
                return
            self._states[partition.topic, partition.index] = state
            self._add(state)
        if state.held:
            self._truncate_first(state)

    def stop(self, partition: FollowedPartition) -> None:
        """Stop fetching a partition. Does nothing if the partition has a later role."""
        with self._lock:
            state = self._state_of(partition)
            if state is not None and state.partition is partition:
                self._remove(partition)

    def resize(self, fetchers: int) -> None:
        """Have `fetchers` connections to each leader from now on (num.replica.fetchers)."""
        with self._lock:
            if fetchers == self._count or self._closed:
                return
            self._count = max(fetchers, 1)
            former, self._fetchers = self._fetchers, {}
        for fetcher in former.values():
            fetcher.close(self._move)

    def close(self) -> None:
        """End all fetching. Appends that are under way may still end."""
        with self._lock:
            self._closed = True
            former, self._fetchers = self._fetchers, {}
        for fetcher in former.values():
            fetcher.close()

    # --- for the metrics

    @property
    def max_lag(self) -> int:
        """Return the largest lag of a followed partition in records, 0 if there are none."""
        return max((state.lag for state in list(self._states.values()) if state.lag > 0), default=0)

    @property
    def failed(self) -> int:
        """Return the number of partitions that are not fetched any more until their next role."""
        return len(self._failed)

    def state(self, topic: str, index: int) -> FetchState | None:
        """Return the state of a partition that is fetched or failed, None for another."""
        key = (topic, index)
        return self._states.get(key) or self._failed.get(key)

    # --- inside

    def _state_of(self, partition: FollowedPartition) -> FetchState | None:
        return self.state(partition.topic, partition.index)

    def _remove(self, partition: FollowedPartition) -> None:
        """Stop fetching the partition of this topic and index, whatever its role. Called with the lock held."""
        key = (partition.topic, partition.index)
        self._failed.pop(key, None)
        state = self._states.pop(key, None)
        if state is not None and state.fetcher is not None:
            state.fetcher.remove(state)

    def _add(self, state: FetchState) -> None:
        """Give a partition to its fetcher, which may have to be made. Called with the lock held."""
        partition = state.partition
        where = (partition.leader, fetcher_index(partition.topic, partition.index, self._count))
        fetcher = self._fetchers.get(where)
        if fetcher is None or not fetcher.add(state):  # it has closed itself, when it had no partition left
            fetcher = self._fetchers[where] = Fetcher(self._link_to(*where), self._following)
            fetcher.add(state)

    def _move(self, states: Iterable[FetchState]) -> None:
        with self._lock:
            for state in states:
                if not self._closed and self._state_of(state.partition) is state:
                    self._add(state)

    def _truncate_first(self, state: FetchState) -> None:
        """Truncate a log without leader epochs to its high watermark before the first fetch.

        If there is a shortage, try again every replica.fetch.backoff.ms.
        """
        partition, following = state.partition, self._following

        def truncated(_: object, error: BaseException | None) -> None:
            if error is None:
                release([state])
            elif partition.gone is not None or self._state_of(partition) is not state:  # it is not fetched any more
                return
            elif isinstance(error, Shortage | NoThread):
                fetcher = state.fetcher
                if fetcher is not None:  # else the number of fetchers is being changed
                    fetcher.problem(state, f"the log cannot be truncated yet: {error}")
                following.timer.schedule(following.settings().backoff_s, lambda: self._truncate_first(state))
            else:
                log.error("%s-%d cannot be truncated: %s", partition.topic, partition.index, error)
                self._give_up(state)

        try:
            following.pool.submit(truncate_first, partition, following.logs, done=truncated)
        except (PoolStopped, NoThread) as error:
            truncated(None, error)

    def _give_up(self, state: FetchState) -> None:
        fetcher = state.fetcher
        if fetcher is not None:
            fetcher.fail(state)

    def _note_failed(self, state: FetchState) -> None:
        key = (state.partition.topic, state.partition.index)
        with self._lock:
            if self._states.get(key) is state:
                del self._states[key]
                self._failed[key] = state

    def _appended(self, state: FetchState, size: int) -> None:
        self.bytes_in += size
        self._on_append(state, size)
