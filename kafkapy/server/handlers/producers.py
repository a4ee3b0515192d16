"""InitProducerId (versions 0 to 5), for idempotent and transactional producers, and DescribeProducers (version 0).

Source: KIP-98, KIP-360, KIP-664.

Differences from Kafka: a partition that a DescribeProducers request names more than once is described once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topics import validate_name
from kafkapy.protocol.apis import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID
from kafkapy.server.admission import is_denied, may_on_some, refusal
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import CLUSTER_DENIED, TOPIC_DENIED, TRANSACTIONAL_ID_DENIED, Check, Right

if TYPE_CHECKING:
    from kafkapy.server.services import Services

FENCED_SINCE = 4  # clients of this or a later version know PRODUCER_FENCED
NO_PRODUCER = (-1, -1)


def _transactional_id(request: Any) -> tuple[str, ...]:
    return () if request.transactional_id is None else (request.transactional_id,)


@serves(
    INIT_PRODUCER_ID,
    checks=[
        Check(
            Right("WRITE", "TRANSACTIONAL_ID"),
            TRANSACTIONAL_ID_DENIED,
            _transactional_id,
            only="with a transactional id",
        ),
        Check(
            Right("WRITE", "TOPIC"),
            CLUSTER_DENIED,
            unless=Right("IDEMPOTENT_WRITE", "CLUSTER"),
            only="without one: any topic",
        ),
    ],
)
def init_producer_id(broker: Services, call: Call, request: Any) -> Any:
    """Handle InitProducerId: return a producer id and an epoch. For a transactional id, these fence its earlier
    producers."""
    make = INIT_PRODUCER_ID.Response

    def begin(reply: Callable[[Any], None]) -> None:
        def finish(code: int, producer: tuple[int, int]) -> None:
            if code == Errors.PRODUCER_FENCED and call.version < FENCED_SINCE:
                code = Errors.INVALID_PRODUCER_EPOCH
            reply(make(error_code=code, producer_id=producer[0], producer_epoch=producer[1]))

        def given(found: int | KafkaError) -> None:
            if isinstance(found, KafkaError):
                finish(found.code, NO_PRODUCER)
            else:
                finish(Errors.NONE, (found, 0))

        if call.denied:
            finish(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_PRODUCER)
        elif request.transactional_id is None and not _may_write(broker, call):
            finish(Errors.CLUSTER_AUTHORIZATION_FAILED, NO_PRODUCER)
        elif (request.producer_id == -1) != (request.producer_epoch == -1):
            finish(Errors.INVALID_REQUEST, NO_PRODUCER)
        elif request.transactional_id is None:
            broker.producer_ids.give(given, broker.disk_pool.submit)
        else:
            broker.transactions.init_producer_id(
                request.transactional_id,
                request.transaction_timeout_ms,
                request.producer_id,
                request.producer_epoch,
                finish,
            )

    return answered(call, begin)


def _may_write(broker: Services, call: Call) -> bool:
    """Return True if the principal may have a producer id without a transactional id. It needs the right to write to
    some topic (KIP-679), or the right IdempotentWrite."""
    return not is_denied(broker, call, "IDEMPOTENT_WRITE", logged=False) or may_on_some(broker, call, "WRITE", "TOPIC")


@serves(
    DESCRIBE_PRODUCERS,
    pooled=True,
    checks=[
        Check(
            Right("READ", "TOPIC"),
            TOPIC_DENIED + " for its partitions",
            lambda request: [topic.name for topic in request.topics],
        )
    ],
)
def describe_producers(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeProducers on the disk pool: return the active producers of each partition that this broker leads
    or follows."""
    make = DESCRIBE_PRODUCERS.Response
    topics = []
    # A request names a partition in four bytes, and may repeat it; a partition can have thousands of producers.
    described: set[tuple[str, int]] = set()
    denied = call.denied_names("TOPIC")
    for topic in request.topics:
        answers = []
        for index in topic.partition_indexes:
            if (topic.name, index) in described:
                continue
            described.add((topic.name, index))
            answer = make.Topics.Partitions(partition_index=index)
            try:
                validate_name(topic.name)
                if topic.name in denied:
                    raise refusal(Errors.TOPIC_AUTHORIZATION_FAILED)
                answer.active_producers = [
                    make.Topics.Partitions.ActiveProducers(
                        producer_id=one.producer_id,
                        producer_epoch=one.producer_epoch,
                        last_sequence=one.last_sequence,
                        last_timestamp=one.last_timestamp,
                        coordinator_epoch=one.coordinator_epoch,
                        current_txn_start_offset=one.current_txn_start_offset,
                    )
                    for one in broker.replicas.readable(topic.name, index).log.active_producers()
                ]
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.message
            answers.append(answer)
        topics.append(make.Topics(name=topic.name, partitions=answers))
    return make(topics=topics)
