"""Fetches for consumers of several partitions. An unreadable partition does not hold up the others.

Source: Kafka's Fetcher, OffsetFetcher and FetchCollector.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.connection import Connection
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.fetched import read_records
from kafkapy.client.fetching.assigned import AssignedPartitions
from kafkapy.client.fetching.engine import NAMES_UNTIL, FetchedPartition, Turns, fetch_request, fetched_partitions
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import FETCH

log = logging.getLogger(__name__)


class Fetcher:
    """Fetches records into the `ahead` queues of the assigned partitions.

    Args:
        reset_to: Where to continue when a position is out of range: EARLIEST, LATEST, or None to raise.
        isolation: The isolation level's number in requests.
    """

    out_of_range_hint = " Seek to one of them, or choose auto_offset_reset earliest or latest."

    def __init__(
        self,
        cluster: Cluster,
        assigned: AssignedPartitions,
        *,
        reset_to: int | None,
        isolation: int,
        min_bytes: int,
        max_bytes: int,
        partition_bytes: int,
        rack: str | None,
    ) -> None:
        self._cluster = cluster
        self._assigned = assigned
        self._admin = Admin(cluster)
        self._reset_to = reset_to
        self._isolation = isolation
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._rack = rack or ""
        self._turns = Turns()

    def reset(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up the positions of partitions as their `reset_to` says. Raises KafkaError."""
        too_young: list[TopicPartition] = []  # partitions that have no record at or after the timestamp
        for its_partitions in self._by_leader(partitions).values():
            wanted = {}
            for where in its_partitions:
                reset_to = self._assigned.state(where).reset_to
                if reset_to is not None:
                    wanted[where] = reset_to
            try:
                found = self._admin.offsets_now(wanted, isolation=self._isolation)
            except (KafkaError, ConnectionFailed) as error:
                if isinstance(error, KafkaError) and not is_retriable(error.code):
                    raise
                self._try_later(wanted, error)
                continue
            for where, one in found.items():
                if where not in wanted:  # the response has more than was asked for
                    continue
                if one.offset >= 0:
                    self._assigned.state(where).seek(one.offset)
                else:
                    self._assigned.state(where).reset(LATEST)
                    too_young.append(where)
        if too_young:
            self.reset(too_young)

    def fetch(self, max_wait_ms: int) -> None:
        """Send a Fetch to every leader and take the responses.

        Raises:
            KafkaError: A partition has an error that is not retriable.
        """
        sent: list[tuple[Connection, list[TopicPartition]]] = []
        failure: KafkaError | None = None
        try:
            for leader, partitions in self._by_leader(self._assigned.to_fetch(time.monotonic())).items():
                try:
                    connection = self._cluster.connection(leader)
                    connection.send(FETCH, self._request(partitions, max_wait_ms), at_most=NAMES_UNTIL)
                    sent.append((connection, partitions))
                except ConnectionFailed as error:
                    self._try_later(partitions, error)
            while sent:
                connection, partitions = sent[0]
                try:
                    _, response = connection.receive(self._cluster.timeout_s + max_wait_ms / 1000)
                except ConnectionFailed as error:
                    self._try_later(partitions, error)
                else:
                    failure = self._take(response) or failure
                sent.pop(0)
        except BaseException:
            for connection, _ in sent:  # an unread response would be taken for the next request's
                connection.close()
            raise
        if failure is not None:
            raise failure

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions by leader, refreshing metadata if a leader is unknown. Retry the others later."""
        wanted = list(partitions)
        unknown = [where for where in wanted if self._leader_of(where) is None]
        if unknown:
            try:
                self._cluster.refresh({topic for topic, _ in unknown})
            except ConnectionFailed as error:
                log.info("the leaders of %s are not known, no broker can be reached: %s", sorted(unknown), error)
        leaders: dict[int, list[TopicPartition]] = {}
        for where in wanted:
            leader = self._leader_of(where)
            if leader is None:
                self._assigned.states[where].not_before = time.monotonic() + BACKOFF_S
            else:
                leaders.setdefault(leader, []).append(where)
        return leaders

    def _leader_of(self, where: TopicPartition) -> int | None:
        """Return a partition's leader from cached metadata, if there is one."""
        topic = self._cluster.topics.get(where[0])
        partition = topic.partitions.get(where[1]) if topic is not None else None
        return partition.leader if partition is not None and partition.leader in self._cluster.brokers else None

    def _request(self, partitions: list[TopicPartition], max_wait_ms: int) -> Any:
        """Return a Fetch request for the partitions."""
        wanted = [
            (where, self._assigned.states[where].fetch_from, self._partition_bytes)
            for where in self._turns.next(partitions)
        ]
        return fetch_request(
            wanted,
            max_wait_ms=max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation=self._isolation,
            rack=self._rack,
        )

    def _take(self, response: Any) -> KafkaError | None:
        """Add the response's records to the partitions. Return an error that the caller has to see."""
        failure: KafkaError | None = None
        try:
            partitions = fetched_partitions(response)
        except KafkaError as error:
            return error
        for fetched in partitions:
            state = self._assigned.states.get(fetched.where)
            if state is None:  # the response has more than was asked for
                continue
            if fetched.error_code:
                failure = self._failed(fetched.where, fetched.error_code) or failure
                continue
            state.end = fetched.last_stable_offset if self._isolation else fetched.high_watermark
            if fetched.data:
                ahead, state.fetch_from = self._read(fetched, state.fetch_from)
                state.ahead.extend(ahead)
                if not ahead:
                    state.position = state.fetch_from
        return failure

    def _read(self, fetched: FetchedPartition, position: int) -> tuple[Sequence[Any], int]:
        """Return the records of a partition's response and the offset after them."""
        return read_records(fetched.where, fetched.data, position, fetched.aborted)

    def _failed(self, where: TopicPartition, code: int) -> KafkaError | None:
        """Handle a partition's error: reset the position, retry later, or return the error for the caller."""
        state = self._assigned.states[where]
        text = f"{where[0]}-{where[1]} at offset {state.fetch_from}: {message_of(code)}"
        if code == Errors.OFFSET_OUT_OF_RANGE:
            if self._reset_to is None:
                return KafkaError(code, text + self.out_of_range_hint)
            log.warning("%s Continuing at the %s record.", text, "earliest" if self._reset_to == EARLIEST else "latest")
            state.reset(self._reset_to)
            return None
        if not is_retriable(code):
            return KafkaError(code, text)
        self._try_later([where], KafkaError(code, text))
        return None

    def _try_later(self, partitions: Iterable[TopicPartition], error: ClientError | KafkaError) -> None:
        log.info("retrying: %s", error)
        for where in partitions:
            self._assigned.states[where].not_before = time.monotonic() + BACKOFF_S
            self._cluster.topics.pop(where[0], None)  # the leader may have changed
