"""Fetches for a consumer that must not stop where one partition cannot be read: others go on, that one is tried again.

Source: Kafka's Fetcher, OffsetFetcher and FetchCollector.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from kafkapy.client.admin import EARLIEST, LATEST, Admin
from kafkapy.client.assigned import AssignedPartitions
from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.connection import Connection
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.fetched import NAMES_UNTIL, read_records
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import FETCH

log = logging.getLogger(__name__)


class GroupFetcher:
    """Fills the partitions' records that are ahead.

    Args:
        reset_to: where a partition goes on whose position it does not have: EARLIEST, LATEST, or None to raise.
        isolation: the level on the wire.
    """

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
        self._rack = rack
        self._first = 0

    def reset(self, partitions: Iterable[TopicPartition]) -> None:
        """Finds the positions of partitions that are to go to EARLIEST, LATEST or a timestamp. Raises KafkaError."""
        too_young: list[TopicPartition] = []  # no record is as young as the timestamp
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
                if where not in wanted:  # nobody has asked for it
                    continue
                if one.offset >= 0:
                    self._assigned.state(where).seek(one.offset)
                else:
                    self._assigned.state(where).reset(LATEST)
                    too_young.append(where)
        if too_young:
            self.reset(too_young)

    def fetch(self, max_wait_ms: int) -> None:
        """Asks every leader once and takes what it has within `max_wait_ms`.

        Raises:
            KafkaError: of a partition that cannot be read however often it is tried.
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
            for connection, _ in sent:  # an answer nobody waits for would be taken for that of the next request
                connection.close()
            raise
        if failure is not None:
            raise failure

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions whose leaders are known. Those of the others are looked up; where that does not help they are
        tried again later."""
        wanted = list(partitions)
        unknown = [where for where in wanted if self._leader_of(where) is None]
        if unknown:
            try:
                self._cluster.refresh({topic for topic, _ in unknown})
            except ConnectionFailed as error:
                log.info("no broker tells who leads %s: %s", sorted(unknown), error)
        leaders: dict[int, list[TopicPartition]] = {}
        for where in wanted:
            leader = self._leader_of(where)
            if leader is None:
                self._assigned.states[where].not_before = time.monotonic() + BACKOFF_S
            else:
                leaders.setdefault(leader, []).append(where)
        return leaders

    def _leader_of(self, where: TopicPartition) -> int | None:
        topic = self._cluster.topics.get(where[0])
        partition = topic.partitions.get(where[1]) if topic is not None else None
        return partition.leader if partition is not None and partition.leader in self._cluster.brokers else None

    def _request(self, partitions: list[TopicPartition], max_wait_ms: int) -> Any:
        # Brokers fill an answer in the order asked: another partition comes first each time, so that none starves.
        self._first = (self._first + 1) % len(partitions)
        topics: dict[str, list[Any]] = {}
        for topic, index in partitions[self._first :] + partitions[: self._first]:
            topics.setdefault(topic, []).append(
                FETCH.Request.Topics.Partitions(
                    partition=index,
                    fetch_offset=self._assigned.states[topic, index].fetch_from,
                    partition_max_bytes=self._partition_bytes,
                )
            )
        return FETCH.Request(
            max_wait_ms=max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation,
            rack_id=self._rack or "",
            topics=[FETCH.Request.Topics(topic=name, partitions=asked) for name, asked in topics.items()],
        )

    def _take(self, response: Any) -> KafkaError | None:
        if response.error_code:
            return KafkaError(response.error_code)
        failure: KafkaError | None = None
        for topic in response.responses:
            for answer in topic.partitions:
                where = topic.topic, answer.partition_index
                state = self._assigned.states.get(where)
                if state is None:  # nobody has asked for it
                    continue
                if answer.error_code:
                    failure = self._failed(where, answer.error_code) or failure
                    continue
                state.end = answer.last_stable_offset if self._isolation else answer.high_watermark
                if answer.records:
                    ahead, state.fetch_from = self._read(where, state.fetch_from, answer)
                    state.ahead.extend(ahead)
                    if not ahead:
                        state.position = state.fetch_from
        return failure

    def _read(self, where: TopicPartition, position: int, answer: Any) -> tuple[Sequence[Any], int]:
        """What is to be handed out of an answer with records, and the offset behind it."""
        return read_records(where, memoryview(answer.records), position, answer.aborted_transactions or ())

    def _failed(self, where: TopicPartition, code: int) -> KafkaError | None:
        state = self._assigned.states[where]
        said = f"{where[0]}-{where[1]} at offset {state.fetch_from}: {message_of(code)}"
        if code == Errors.OFFSET_OUT_OF_RANGE:
            if self._reset_to is None:
                return KafkaError(code, f"{said} Seek to one of them, or choose auto_offset_reset earliest or latest.")
            log.warning("%s Goes on at the %s record.", said, "earliest" if self._reset_to == EARLIEST else "latest")
            state.reset(self._reset_to)
            return None
        if not is_retriable(code):
            return KafkaError(code, said)
        self._try_later([where], KafkaError(code, said))
        return None

    def _try_later(self, partitions: Iterable[TopicPartition], error: ClientError | KafkaError) -> None:
        log.info("tries again: %s", error)
        for where in partitions:
            self._assigned.states[where].not_before = time.monotonic() + BACKOFF_S
            self._cluster.topics.pop(where[0], None)  # the leader may have changed
