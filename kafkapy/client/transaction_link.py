"""The requests of a transactional producer to its coordinators, and what their errors mean for it.

Source: Kafka's TransactionManager and its request handlers; KIP-98, KIP-360, KIP-447.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkapy.client.answers import grouped
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.coordinator_link import CoordinatorLink
from kafkapy.client.coordinators import GROUP, TRANSACTION
from kafkapy.client.errors import (
    ConnectionFailed,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
)
from kafkapy.client.group_types import GroupMetadata, OffsetAndMetadata
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)

CLIENTS_UNTIL = 3  # AddPartitionsToTxn after this version is between brokers (KIP-890)
RECOVERS_FROM = 3  # InitProducerId from this version on takes the producer that goes on (KIP-360)
MEMBERS_FROM = 3  # TxnOffsetCommit from this version on says which member of the group sends (KIP-447)


class ProducerId(NamedTuple):
    id: int
    epoch: int


class TransactionLink:
    """Every method tries again while that may help, up to the cluster's time limit.

    Raises:
        TransactionFailed: of the kind that says what is to be done.
        ConnectionFailed: the coordinator was not reached in time; whether it did what it was asked is not known.
    """

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._link = CoordinatorLink(cluster, transactional_id, TRANSACTION)
        self._groups: dict[str, CoordinatorLink] = {}

    def close(self) -> None:
        for link in (self._link, *self._groups.values()):
            link.close()

    def init(self, timeout_s: float, current: ProducerId | None = None) -> ProducerId:
        """A producer id, or `current` with its epoch raised; ends what another one left open."""
        request = INIT_PRODUCER_ID.Request(
            transactional_id=self.transactional_id, transaction_timeout_ms=int(timeout_s * 1000)
        )

        def attempt() -> ProducerId:
            if current is not None:
                if self._link.connection().version_of(INIT_PRODUCER_ID) < RECOVERS_FROM:
                    raise ProducerFailed(
                        self.transactional_id,
                        Errors.UNSUPPORTED_VERSION,
                        "the broker is too old to go on after a failure",
                    )
                request.producer_id, request.producer_epoch = current
            answer = self._link.call(INIT_PRODUCER_ID, request)
            if answer.error_code == Errors.INVALID_TRANSACTION_TIMEOUT:
                raise ProducerFailed(
                    self.transactional_id,
                    answer.error_code,
                    f"a transaction time-out of {timeout_s:g} s is not above 0 or is more than the broker's "
                    "transaction.max.timeout.ms; set transaction_timeout_s",
                )
            self._check(answer.error_code)
            return ProducerId(answer.producer_id, answer.producer_epoch)

        return self._link.retry(attempt)

    def add_partitions(self, producer: ProducerId, partitions: Iterable[TopicPartition]) -> None:
        """Says that records of the transaction go there, before they do."""
        shape = ADD_PARTITIONS_TO_TXN.Request
        request = shape(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                shape.V3AndBelowTopics(name=topic, partitions=indexes) for topic, indexes in grouped(partitions).items()
            ],
        )

        def attempt() -> None:
            answer = self._link.call(ADD_PARTITIONS_TO_TXN, request, at_most=CLIENTS_UNTIL)
            codes = [
                (one.partition_error_code, f"{topic.name}-{one.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]
            # Where one partition is refused, the others are not attempted: the reason is what is told.
            codes.sort(key=lambda one: one[0] == Errors.OPERATION_NOT_ATTEMPTED)
            for code, where in codes:
                self._check(code, where)

        self._link.retry(attempt)

    def end(self, producer: ProducerId, *, commit: bool) -> None:
        """Commits or aborts."""
        request = END_TXN.Request(
            transactional_id=self.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        self._link.retry(lambda: self._check(self._link.call(END_TXN, request).error_code))

    def send_offsets(
        self, producer: ProducerId, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Makes offsets of a group part of the transaction."""
        add = ADD_OFFSETS_TO_TXN.Request(
            transactional_id=self.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=group.group_id,
        )
        self._link.retry(lambda: self._check(self._link.call(ADD_OFFSETS_TO_TXN, add).error_code))
        if group.group_id not in self._groups:
            self._groups[group.group_id] = CoordinatorLink(self._cluster, group.group_id, GROUP)
        link = self._groups[group.group_id]

        def attempt() -> None:
            has_members = link.connection().version_of(TXN_OFFSET_COMMIT) >= MEMBERS_FROM
            answer = link.call(TXN_OFFSET_COMMIT, self._offsets(producer, offsets, group, has_members))
            for topic in answer.topics:
                for one in topic.partitions:
                    if one.error_code == Errors.REQUEST_TIMED_OUT:
                        raise ConnectionFailed(f"The coordinator of group {group.group_id!r} takes too long.")
                    self._check(
                        one.error_code, f"the offset of group {group.group_id!r} in {topic.name}-{one.partition_index}"
                    )

        link.retry(attempt)

    def _offsets(
        self,
        producer: ProducerId,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        has_members: bool,
    ) -> Any:
        shape = TXN_OFFSET_COMMIT.Request
        member = group if has_members else GroupMetadata(group.group_id)
        return shape(
            transactional_id=self.transactional_id,
            group_id=member.group_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=[
                shape.Topics(
                    name=topic,
                    partitions=[
                        shape.Topics.Partitions(
                            partition_index=index,
                            committed_offset=offsets[topic, index].offset,
                            committed_leader_epoch=offsets[topic, index].leader_epoch,
                            committed_metadata=offsets[topic, index].metadata,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in grouped(offsets).items()
            ],
        )

    def _check(self, code: int, what: str = "") -> None:
        """Raises what an error code means; a plain KafkaError where trying again may help."""
        if code == Errors.NONE:
            return
        if is_retriable(code):
            raise KafkaError(code, f"{what or repr(self.transactional_id)}: {message_of(code)}")
        raise meaning(self.transactional_id, code, what)


ABORTABLE = frozenset(
    {
        Errors.TOPIC_AUTHORIZATION_FAILED,
        Errors.GROUP_AUTHORIZATION_FAILED,
        Errors.TRANSACTION_ABORTABLE,
        Errors.UNKNOWN_PRODUCER_ID,
        Errors.INVALID_PRODUCER_ID_MAPPING,
        Errors.OPERATION_NOT_ATTEMPTED,
        Errors.UNKNOWN_MEMBER_ID,
        Errors.ILLEGAL_GENERATION,
        Errors.FENCED_INSTANCE_ID,
        Errors.OFFSET_METADATA_TOO_LARGE,
        Errors.INVALID_COMMIT_OFFSET_SIZE,
    }
)

_FENCED = (Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH)
_NOT_A_MEMBER = (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION, Errors.FENCED_INSTANCE_ID)


def meaning(transactional_id: str, code: int, what: str = "") -> TransactionFailed:
    """What an error code of a coordinator means for the producer."""
    said = f"{what}: {message_of(code)}" if what else message_of(code)
    if code in _FENCED:
        return ProducerFenced(
            transactional_id,
            code,
            "another producer has taken over, or the transaction took longer than transaction_timeout_s and the broker "
            "aborted it; make a new producer if this one is to go on",
        )
    if code in _NOT_A_MEMBER:
        return TransactionAborted(
            transactional_id,
            code,
            f"{what}: the consumer that read the records has lost its partitions; abort, poll, and read them again",
        )
    if code in ABORTABLE:
        return TransactionAborted(transactional_id, code, f"{said.rstrip('.')}; abort the transaction and begin anew")
    return ProducerFailed(transactional_id, code, said)
