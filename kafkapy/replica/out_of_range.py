"""Finds where a follower continues when its fetch offset is not in the leader's log: asks for that log's start and
end.

Source: AbstractFetcherThread.fetchOffsetAndTruncate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError, message_of
from kafkapy.log.failures import LogDirFailure
from kafkapy.protocol.apis import LIST_OFFSETS
from kafkapy.replica.fetch_state import FetchState, release
from kafkapy.replica.follower_log import restart_at_leader_start, truncate_to_leader_end
from kafkapy.replica.links import LinkError
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread

if TYPE_CHECKING:
    from kafkapy.replica.fetcher import Fetcher, Following

log = logging.getLogger("kafkapy.replica.out_of_range")

_LATEST, _EARLIEST = -1, -2
_VERSIONS = (4, 9)  # from 4 on with the current leader epoch


class OffsetReset:
    """Resets partitions of one fetcher. Each is held from `begin` until it can be fetched again.

    If the leader's log ends before the follower's, the follower truncates its log to that end. Otherwise it continues
    at its own end, or at the leader's log start offset if that is higher; only then is its log emptied. If neither log
    has to change, the next fetch waits for replica.fetch.backoff.ms.
    """

    def __init__(self, fetcher: Fetcher, following: Following) -> None:
        self._fetcher = fetcher
        self._following = following

    def begin(self, state: FetchState) -> None:
        """Reset a partition whose fetch offset is out of range."""
        self._fetcher.hold(state)
        self._ask(state, _LATEST, lambda end: self._on_pool(state, lambda: self._end_known(state, end)))

    def _end_known(self, state: FetchState, leader_end: int) -> None:
        if truncate_to_leader_end(state.partition, leader_end, self._following.logs):
            release([state])
        else:
            self._ask(state, _EARLIEST, lambda start: self._on_pool(state, lambda: self._start_known(state, start)))

    def _start_known(self, state: FetchState, leader_start: int) -> None:
        if restart_at_leader_start(state.partition, leader_start, self._following.logs):
            release([state])
            return
        # The leader has got the offset meanwhile, or it refuses an offset that it has, and would do so again at once.
        if state.fetcher is not None:
            self._fetcher.problem(state, "the leader has refused this offset, which is within its log")
            self._fetcher.delay([state])

    def _ask(self, state: FetchState, timestamp: int, then: Callable[[int], None]) -> None:
        """Ask the leader for an offset of its log, and call `then(offset)` on the network thread."""
        partition = state.partition
        asked = LIST_OFFSETS.Request.Topics.Partitions(
            partition_index=partition.index, current_leader_epoch=partition.leader_epoch, timestamp=timestamp
        )
        request = LIST_OFFSETS.Request(
            replica_id=self._following.broker_id,
            topics=[LIST_OFFSETS.Request.Topics(name=partition.topic, partitions=[asked])],
        )

        def answered(response: Any, error: LinkError | None) -> None:
            if error is not None:
                self._failed(state, str(error))
                return
            found = [
                one
                for topic in response.topics
                for one in topic.partitions
                if (topic.name, one.partition_index) == (partition.topic, partition.index)
            ]
            code = found[0].error_code if found else Errors.UNKNOWN_TOPIC_OR_PARTITION
            if code == Errors.FENCED_LEADER_EPOCH:
                self._fetcher.fenced(state)
            elif code:
                self._failed(state, message_of(code))
            elif found[0].offset < 0:
                self._failed(state, f"offset {found[0].offset}")
            else:
                then(found[0].offset)

        timeout_s = self._following.settings().timeout_s
        self._fetcher.link.ask(LIST_OFFSETS, request, answered, timeout_s=timeout_s, versions=_VERSIONS)

    def _on_pool(self, state: FetchState, act: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                act()
            except LogDirFailure:  # logged by the log directory
                self._fetcher.fail(state)
            except KafkaError as error:  # a later role has begun, or the disk is full
                self._failed(state, error.message)
            except Exception:
                log.exception("%s is not fetched any more until its next leader epoch", state.partition)
                self._fetcher.fail(state)

        try:
            self._following.pool.submit(guarded)
        except (PoolStopped, NoThread) as error:
            self._failed(state, str(error))

    def _failed(self, state: FetchState, what: str) -> None:
        """Fetch the partition again after a back-off: the leader then says again that the offset is out of range."""
        if state.fetcher is not None:
            log.warning(
                "the offsets of the leader of %s-%d are not known: %s",
                state.partition.topic, state.partition.index, what,
            )  # fmt: skip
            self._fetcher.delay([state])
