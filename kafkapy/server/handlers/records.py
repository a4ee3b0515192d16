"""DeleteRecords (versions 0 to 2): raise the log start offset of partitions (KIP-107).

Source: KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords.

Differences from Kafka:

- The response comes at once, and timeout_ms is ignored: no follower has to delete the records, too.
- If a request names a partition twice, records are deleted up to both offsets in turn, each with its own result.
  Kafka uses only the last offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topics import is_internal
from kafkapy.protocol.apis import DELETE_RECORDS
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call

if TYPE_CHECKING:
    from kafkapy.server.services import Services


@serves(DELETE_RECORDS, pooled=True)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle DeleteRecords: delete the records of each partition before the requested offset. Return the new log start
    offset, or an error code, for each partition."""
    make = DELETE_RECORDS.Response
    topics = []
    for topic in request.topics:
        answers = []
        for one in topic.partitions:
            code, low_watermark = Errors.NONE, -1
            try:
                if is_internal(topic.name):
                    raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"{topic.name} is the broker's own")
                low_watermark = broker.replicas.get(topic.name, one.partition_index).delete_records(one.offset)
            except KafkaError as error:
                code = error.code
            answers.append(
                make.Topics.Partitions(
                    partition_index=one.partition_index, low_watermark=low_watermark, error_code=code
                )
            )
        topics.append(make.Topics(name=topic.name, partitions=answers))
    return make(topics=topics)
