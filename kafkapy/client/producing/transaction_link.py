"""Sends a transactional producer's requests to its coordinators, and turns their error codes into exceptions.

Source: Kafka's TransactionManager and its request handlers; KIP-98, KIP-360, KIP-447.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import (
    ConnectionFailed,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
)
from kafkapy.client.groups.coordinator_link import CoordinatorLink
from kafkapy.client.groups.coordinators import GROUP, TRANSACTION
from kafkapy.client.groups.group_types import GroupMetadata, OffsetAndMetadata
from kafkapy.client.producing.producer_id import ProducerId
from kafkapy.client.responses import grouped
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)

CLIENTS_UNTIL = 3  # AddPartitionsToTxn of higher versions is for brokers only (KIP-890)
RECOVERS_FROM = 3  # the first version of InitProducerId that can raise the current epoch (KIP-360)
MEMBERS_FROM = 3  # the first version of TxnOffsetCommit with generation and member id (KIP-447)


class TransactionLink:
    """Sends a transactional producer's requests to the transaction coordinator and the group coordinators.

    Retriable errors are retried up to the cluster's time limit. All methods but `close` raise these errors:

    Raises:
        TransactionFailed: The coordinator refuses the request. The subclass says whether to abort the transaction or to
            create a new producer.
        ConnectionFailed: The coordinator was not reached in time. The request may or may not have been carried out.
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
        """Return a new producer id, or the producer id `current` with a higher epoch.

        The coordinator also aborts any open transaction of this transactional id. `timeout_s` is the time-out of future
        transactions.
        """
        request = INIT_PRODUCER_ID.Request(
            transactional_id=self.transactional_id, transaction_timeout_ms=int(timeout_s * 1000)
        )

        def attempt() -> ProducerId:
            if current is not None:
                if self._link.connection().version_of(INIT_PRODUCER_ID) < RECOVERS_FROM:
                    raise ProducerFailed(
                        self.transactional_id,
                        Errors.UNSUPPORTED_VERSION,
                        "the broker is too old to recover a producer after a failure (KIP-360); make a new one",
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
        """Add partitions to the transaction, which is necessary before records are sent to these partitions."""
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
            # If one partition is refused, the others get OPERATION_NOT_ATTEMPTED: report the actual reason.
            codes.sort(key=lambda one: one[0] == Errors.OPERATION_NOT_ATTEMPTED)
            for code, where in codes:
                self._check(code, where)

        self._link.retry(attempt)

    def end(self, producer: ProducerId, *, commit: bool) -> None:
        """Commit the transaction, or abort it if `commit` is False."""
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
        """Add the offsets of a consumer group to the transaction, to be committed together with it."""
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
        """Return a TxnOffsetCommit request.

        Include the member id and generation of `group` only if `has_members` is True.
        """
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
        """Raise an exception for an error code other than NONE.

        It is a KafkaError if a retry may help, else a TransactionFailed. `what` names the partition or offset, for the
        message.
        """
        if code == Errors.NONE:
            return
        if is_retriable(code):
            raise KafkaError(code, f"{what or repr(self.transactional_id)}: {message_of(code)}")
        raise error_for(self.transactional_id, code, what)


ABORTABLE = frozenset(
    {
        Errors.TOPIC_AUTHORIZATION_FAILED,
        Errors.GROUP_AUTHORIZATION_FAILED,
        Errors.TRANSACTION_ABORTABLE,
        Errors.UNKNOWN_PRODUCER_ID,
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


def error_for(transactional_id: str, code: int, what: str = "") -> TransactionFailed:
    """Return the TransactionFailed (of the right subclass) for an error code from a coordinator.

    `what` names the partition or offset that the code is about, for the message.
    """
    reason = f"{what}: {message_of(code)}" if what else message_of(code)
    if code in _FENCED:
        return ProducerFenced(
            transactional_id,
            code,
            "another producer has taken over, or the transaction took longer than transaction_timeout_s and the broker "
            "aborted it; make a new producer to continue",
        )
    if code in _NOT_A_MEMBER:
        return TransactionAborted(
            transactional_id,
            code,
            f"{what}: the consumer that read the records has lost its partitions; abort, poll, and read them again",
        )
    if code == Errors.INVALID_PRODUCER_ID_MAPPING:
        return TransactionAborted(
            transactional_id,
            code,
            "the coordinator does not know the producer id: the transactional id has expired (it was unused for the "
            "broker's transactional.id.expiration.ms), or another producer uses it; abort the transaction, which gets "
            "a new producer id, and begin a new one",
        )
    if code in ABORTABLE:
        text = f"{reason.rstrip('.')}; abort the transaction and begin a new one"
        return TransactionAborted(transactional_id, code, text)
    return ProducerFailed(transactional_id, code, reason)
