"""InitProducerId for idempotent producers, and DescribeProducers (KIP-98, KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topics import validate_name
from kafkapy.protocol.apis import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call

if TYPE_CHECKING:
    from kafkapy.server.services import Services


@serves(INIT_PRODUCER_ID, pooled=True)
def init_producer_id(broker: Services, call: Call, request: Any) -> Any:
    make = INIT_PRODUCER_ID.Response
    if request.transactional_id is not None:  # its home, the transaction coordinator, is not there yet
        return make(error_code=Errors.COORDINATOR_NOT_AVAILABLE, producer_id=-1, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return make(error_code=Errors.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    try:
        return make(producer_id=broker.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        return make(error_code=error.code, producer_id=-1, producer_epoch=-1)


@serves(DESCRIBE_PRODUCERS, pooled=True)
def describe_producers(broker: Services, call: Call, request: Any) -> Any:
    make = DESCRIBE_PRODUCERS.Response
    topics = []
    told: set[tuple[str, int]] = set()  # once each: named in four bytes, a partition can have thousands of producers
    for topic in request.topics:
        answers = []
        for index in topic.partition_indexes:
            if (topic.name, index) in told:
                continue
            told.add((topic.name, index))
            answer = make.Topics.Partitions(partition_index=index)
            try:
                validate_name(topic.name)
                answer.active_producers = [
                    make.Topics.Partitions.ActiveProducers(
                        producer_id=one.producer_id,
                        producer_epoch=one.producer_epoch,
                        last_sequence=one.last_sequence,
                        last_timestamp=one.last_timestamp,
                        coordinator_epoch=one.coordinator_epoch,
                        current_txn_start_offset=one.current_txn_start_offset,
                    )
                    for one in broker.replicas.get(topic.name, index).log.active_producers()
                ]
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.message
            answers.append(answer)
        topics.append(make.Topics(name=topic.name, partitions=answers))
    return make(topics=topics)
