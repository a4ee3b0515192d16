"""An admin client for transactions: lists, describes and aborts transactions, and finds hanging ones."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.connection import Connection
from kafkapy.client.groups.coordinators import TRANSACTION, Coordinators
from kafkapy.client.responses import check, error_of, grouped
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis

PARTITIONS_AT_ONCE = 500  # like Kafka's own command


@dataclass(frozen=True)
class TransactionListing:
    """A transactional id in the response to ListTransactions, with its state ("Empty", "Ongoing", ...).

    `coordinator` is the broker id of the transactional id's coordinator.
    """

    id: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True)
class TransactionDescription:
    """A transactional id in the response to DescribeTransactions.

    `started_ms` is the start of the last transaction, whether it is still open or not (ms since 1970), or None if there
    was no transaction yet. `partitions` are the partitions of that transaction that still lack an end marker.
    `coordinator` is the broker id of the coordinator.
    """

    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: int


@dataclass(frozen=True)
class ProducerState:
    """The state that one partition keeps of a producer, from the response to DescribeProducers.

    `txn_start_offset` is the first offset of the producer's open transaction, or None if it has none in this partition.
    `coordinator_epoch` is the epoch in the producer's last end marker, or -1 before the first. `last_timestamp` is in
    ms since 1970.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_start_offset: int | None


@dataclass(frozen=True)
class HangingTransaction:
    """A transaction that is open in a partition, but that no coordinator will end.

    `id` is the producer's transactional id, or None if no coordinator knows the producer.
    """

    partition: TopicPartition
    producer: ProducerState
    id: str | None


class TransactionAdmin:
    """A blocking admin client for transactions.

    Methods for several transactional ids or partitions return a result or a KafkaError for each of them. The other
    methods raise the KafkaError. All methods raise ClientError if a broker cannot be reached.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._coordinators = Coordinators(cluster, TRANSACTION)

    def list_transactions(
        self, *, states: Sequence[str] = (), producer_ids: Iterable[int] = (), longer_than_ms: int = -1
    ) -> list[TransactionListing]:
        """Return the transactional ids that all brokers coordinate, sorted.

        Args:
            states: Return only transactional ids with one of these states. Empty: with any state.
            producer_ids: Return only transactional ids with one of these producer ids. Empty: with any producer id.
            longer_than_ms: Return only transactional ids whose last transaction, open or not, began longer ago than
                this. -1: all.
        Raises:
            KafkaError: INVALID_REQUEST for a state that a broker does not know.
        """
        request = apis.LIST_TRANSACTIONS.Request(
            state_filters=list(states), producer_id_filters=sorted(producer_ids), duration_filter=longer_than_ms
        )
        self.cluster.refresh([])
        found: list[TransactionListing] = []
        for node in sorted(self.cluster.brokers):
            found += self.cluster.retry(lambda node=node: self._list(node, request))  # type: ignore[misc]
        return sorted(found, key=lambda listing: listing.id)

    def _list(self, node: int, request: Any) -> list[TransactionListing]:
        """Return the transactional ids that the broker with id `node` coordinates."""
        response = self.cluster.connection(node).call(apis.LIST_TRANSACTIONS, request)
        check(response.error_code, f"the transactions of broker {node}")
        if response.unknown_state_filters:
            unknown = ", ".join(map(repr, response.unknown_state_filters))
            raise KafkaError(Errors.INVALID_REQUEST, f"broker {node} does not know the transaction state {unknown}")
        return [
            TransactionListing(one.transactional_id, one.transaction_state, one.producer_id, node)
            for one in response.transaction_states
        ]

    def describe(self, ids: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        """Return the description of each transactional id, or a KafkaError such as TRANSACTIONAL_ID_NOT_FOUND."""

        def ask(connection: Connection, its_ids: list[str]) -> dict[str, TransactionDescription | KafkaError]:
            request = apis.DESCRIBE_TRANSACTIONS.Request(transactional_ids=its_ids)
            return {
                one.transactional_id: error_of(one.error_code, f"transactional id {one.transactional_id!r}")
                or self._description(one)
                for one in connection.call(apis.DESCRIBE_TRANSACTIONS, request).transaction_states
            }

        return self._coordinators.ask_each(ids, ask)

    def _description(self, one: Any) -> TransactionDescription:
        return TransactionDescription(
            one.transactional_id,
            one.transaction_state,
            one.producer_id,
            one.producer_epoch,
            one.transaction_timeout_ms,
            one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
            tuple(sorted((topic.topic, index) for topic in one.topics for index in topic.partitions)),
            self._coordinators.node_of(one.transactional_id),
        )

    def producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """Return for each partition the ProducerState of every producer that the partition knows, or a KafkaError.

        The partition's leader is asked, or the broker with id `broker`, which has to have a replica of the partition.
        """
        wanted = list(partitions)
        found: dict[TopicPartition, list[ProducerState] | KafkaError] = {}

        def attempt() -> None:
            nodes: dict[int, list[TopicPartition]] = {}
            for where in wanted:
                if where not in found or _moved(found[where]):
                    node = self.cluster.leader_of(*where) if broker is None else broker
                    nodes.setdefault(node, []).append(where)
            for node, its_partitions in nodes.items():
                for first in range(0, len(its_partitions), PARTITIONS_AT_ONCE):
                    found.update(self._producers(node, its_partitions[first : first + PARTITIONS_AT_ONCE]))
            for where, answer in found.items():
                if isinstance(answer, KafkaError) and _moved(answer) and broker is None:
                    self.cluster.topics.pop(where[0], None)
                    raise answer

        try:
            self.cluster.retry(attempt, never=(Errors.UNKNOWN_TOPIC_OR_PARTITION,))
        except KafkaError as error:
            if not _moved(error):
                raise
        left_out = KafkaError(Errors.UNKNOWN_SERVER_ERROR, "the broker's response leaves the partition out")
        return {where: found.get(where, left_out) for where in wanted}

    def _producers(
        self, node: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """Send DescribeProducers for these partitions to the broker with id `node`.

        Return each partition's producers sorted by producer id, or a KafkaError.
        """
        shape = apis.DESCRIBE_PRODUCERS.Request
        topics = [shape.Topics(name=topic, partition_indexes=its) for topic, its in grouped(partitions).items()]
        response = self.cluster.connection(node).call(apis.DESCRIBE_PRODUCERS, shape(topics=topics))
        found: dict[TopicPartition, list[ProducerState] | KafkaError] = {}
        for topic in response.topics:
            for one in topic.partitions:
                error = error_of(one.error_code, f"{topic.name}-{one.partition_index}", one.error_message)
                found[topic.name, one.partition_index] = error or sorted(
                    (_producer(state) for state in one.active_producers), key=lambda state: state.producer_id
                )
        return found

    def abort(self, id: str) -> None:
        """Abort the open transaction of a transactional id and fence its producer, like Kafka's Admin.fenceProducers.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, or another error of the coordinator.
        """
        described = self.describe([id])[id]
        if isinstance(described, KafkaError):
            raise described
        # InitProducerId sets the id's transaction time-out, so pass the present one.
        request = apis.INIT_PRODUCER_ID.Request(transactional_id=id, transaction_timeout_ms=described.timeout_ms)

        def ask(connection: Connection) -> None:
            # CONCURRENT_TRANSACTIONS until the abort is complete: it is retried.
            check(connection.call(apis.INIT_PRODUCER_ID, request).error_code, f"transactional id {id!r}")

        self._coordinators.ask(id, ask)

    def abort_in_partition(self, partition: TopicPartition, producer: ProducerState) -> None:
        """Write an abort marker for a producer's open transaction to one partition, bypassing the coordinator.

        Use this for hanging transactions only. A transaction that its coordinator knows could end up aborted in this
        partition and committed in others.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the producer's state has changed.
        """
        shape = apis.WRITE_TXN_MARKERS.Request
        topic, index = partition
        marker = shape.Markers(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[shape.Markers.Topics(name=topic, partition_indexes=[index])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),  # 0 does not exceed any coordinator's epoch
        )

        def attempt() -> None:
            leader = self.cluster.connection(self.cluster.leader_of(topic, index))
            answers = leader.call(apis.WRITE_TXN_MARKERS, shape(markers=[marker])).markers
            codes = [one.error_code for answer in answers for its in answer.topics for one in its.partitions]
            code = codes[0] if codes else Errors.UNKNOWN_SERVER_ERROR  # the response leaves the partition out
            if code:
                self.cluster.topics.pop(topic, None)
            check(code, f"{topic}-{index}")

        self.cluster.retry(attempt, never=(Errors.UNKNOWN_TOPIC_OR_PARTITION,))

    def find_hanging(
        self, partitions: Iterable[TopicPartition], older_than_ms: int, *, broker: int | None = None
    ) -> list[HangingTransaction]:
        """Return the transactions in these partitions that no coordinator will end.

        Such a transaction is open, and its last record is older than `older_than_ms`. The producer has no transactional
        id that a coordinator knows, or the coordinator's transaction does not include the partition. `broker` is as for
        `producers`.

        Raises:
            KafkaError: A partition's producers cannot be described.
        """
        now = time.time() * 1000
        candidates: list[tuple[TopicPartition, ProducerState]] = []
        for where, states in self.producers(partitions, broker=broker).items():
            if isinstance(states, KafkaError):
                raise states
            candidates += [
                (where, state)
                for state in states
                if state.txn_start_offset is not None and now - state.last_timestamp > older_than_ms
            ]
        if not candidates:
            return []
        known = self.known_transactions({state.producer_id for _, state in candidates})
        return [
            HangingTransaction(where, state, known[state.producer_id].id if state.producer_id in known else None)
            for where, state in candidates
            if state.producer_id not in known or where not in known[state.producer_id].partitions
        ]

    def known_transactions(self, producer_ids: Iterable[int]) -> dict[int, TransactionDescription]:
        """Return the coordinators' descriptions of the transactions of these producers, by producer id.

        Producers without a transactional id that a coordinator knows are left out.
        """
        listed = {one.id: one.producer_id for one in self.list_transactions(producer_ids=producer_ids)}
        return {
            listed[id]: described
            for id, described in self.describe(listed).items()
            if isinstance(described, TransactionDescription)
        }


def _producer(state: Any) -> ProducerState:
    return ProducerState(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    )


def _moved(answer: object) -> bool:
    """Return True if `answer` is a KafkaError that means that the partition's leader has changed."""
    return isinstance(answer, KafkaError) and answer.code in (
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.LEADER_NOT_AVAILABLE,
    )
