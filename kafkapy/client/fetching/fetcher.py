"""Fetches the records of several partitions. A partition that cannot be read does not hold up the other partitions.

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

REPLICA_S = 300.0  # after this time the leader is asked again which replica to fetch from: metadata.max.age.ms of Kafka


class Fetcher:
    """Fetches records of a consumer's assigned partitions into their `ahead` queues.

    Args:
        reset_to: Where to continue when a position is outside the partition's log: EARLIEST, LATEST, or None to raise
            KafkaError.
        isolation: The number of the isolation level, from `isolation_level`.
        rack: The consumer's rack. A leader may then name a follower in that rack, which is fetched from (KIP-392).
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
        """Look up and set each partition's position: at EARLIEST, at LATEST or at a timestamp, as its `reset_to` says.

        A partition without records at or after the timestamp continues at its end. After a retriable error, the
        partition keeps its unknown position until a later call. Raise KafkaError for an error that is not retriable.
        """
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
        """Send a Fetch to each leader, or to the replica that it has named, and append the records in the responses to
        the partitions' `ahead` queues.

        Partitions with a retriable error are fetched again by a later call.

        Raises:
            KafkaError: A partition has an error that is not retriable. Records of the other partitions are kept.
        """
        sent: list[tuple[Connection, list[TopicPartition]]] = []
        failure: KafkaError | None = None
        try:
            for replica, partitions in self._by_replica(self._assigned.to_fetch(time.monotonic())).items():
                try:
                    connection = self._cluster.connection(replica)
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
        """Return the partitions that have a leader, grouped by the leader's broker id.

        Refresh the metadata first if the leader of a partition is not known. Mark the partitions that still have no
        leader for a later retry.
        """
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

    def _by_replica(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions that have a leader, grouped by the id of the broker to fetch them from."""
        now = time.monotonic()
        replicas: dict[int, list[TopicPartition]] = {}
        for leader, its_partitions in self._by_leader(partitions).items():
            for where in its_partitions:
                state = self._assigned.states[where]
                if state.replica not in self._cluster.brokers or now >= state.replica_until:
                    state.replica = -1
                replicas.setdefault(leader if state.replica < 0 else state.replica, []).append(where)
        return replicas

    def _leader_of(self, where: TopicPartition) -> int | None:
        """Return the broker id of a partition's leader from cached metadata, or None if no leader is known."""
        topic = self._cluster.topics.get(where[0])
        partition = topic.partitions.get(where[1]) if topic is not None else None
        return partition.leader if partition is not None and partition.leader in self._cluster.brokers else None

    def _request(self, partitions: list[TopicPartition], max_wait_ms: int) -> Any:
        """Return a Fetch request for these partitions, each from its `fetch_from` offset on."""
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
        """Append the records in a Fetch response to the partitions' `ahead` queues.

        Return the last error that the caller has to see, of the whole response or of a partition, or None. Other errors
        are handled by `_failed`.
        """
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
            if fetched.replica >= 0:
                state.replica, state.replica_until = fetched.replica, time.monotonic() + REPLICA_S
            if fetched.data:
                before = state.fetch_from
                ahead, state.fetch_from = self._read(fetched, before)
                state.ahead.extend(ahead)
                if not ahead:
                    state.position = state.fetch_from
                    if state.fetch_from == before:  # brokers before Kafka 0.10.1 also truncate the first batch
                        failure = KafkaError(
                            Errors.RECORD_LIST_TOO_LARGE,
                            f"{fetched.where[0]}-{fetched.where[1]} at offset {before} has a batch of more than "
                            "partition_bytes, which this broker sends only in part; allow more",
                        )
        return failure

    def _read(self, fetched: FetchedPartition, position: int) -> tuple[Sequence[Any], int]:
        """Decode the batches fetched from one partition.

        Return the records from `position` on, and the next offset to fetch.
        """
        return read_records(fetched.where, fetched.data, position, fetched.aborted)

    def _failed(self, where: TopicPartition, code: int) -> KafkaError | None:
        """Handle a partition's error code in a Fetch response.

        Reset the position if it is out of range, or mark the partition for a later retry, and return None. If neither
        is possible, return the KafkaError that the caller has to see. A follower does not decide that a position is out
        of range: the leader is asked again.
        """
        state = self._assigned.states[where]
        text = f"{where[0]}-{where[1]} at offset {state.fetch_from}: {message_of(code)}"
        if code == Errors.OFFSET_OUT_OF_RANGE and state.replica < 0:
            if self._reset_to is None:
                return KafkaError(code, text + self.out_of_range_hint)
            log.warning("%s Continuing at the %s record.", text, "earliest" if self._reset_to == EARLIEST else "latest")
            state.reset(self._reset_to)
            return None
        if not is_retriable(code) and code != Errors.OFFSET_OUT_OF_RANGE:
            return KafkaError(code, text)
        self._try_later([where], KafkaError(code, text))
        return None

    def _try_later(self, partitions: Iterable[TopicPartition], error: ClientError | KafkaError) -> None:
        log.info("retrying: %s", error)
        for where in partitions:
            state = self._assigned.states[where]
            state.not_before = time.monotonic() + BACKOFF_S
            state.replica = -1
            self._cluster.topics.pop(where[0], None)  # the leader may have changed
