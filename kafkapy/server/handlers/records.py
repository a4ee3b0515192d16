"""DeleteRecords (versions 0 to 2): raise the log start offset of partitions (KIP-107).

The response waits, up to the request's timeout_ms, until all live replicas have deleted the records.
Source: KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords.

Differences from Kafka:

- If a request names a partition twice, records are deleted up to both offsets in turn, each with its own result.
  Kafka uses only the last offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topics import is_internal
from kafkapy.protocol.apis import DELETE_RECORDS
from kafkapy.replica.record_deletion import DelayedDeletion, RecordDeletion
from kafkapy.server.admission import refusal
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import TOPIC_DENIED, Check, Right

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkapy.server.services import Services

# (topic, partition index, the deletion or the error that refuses it)
Result = tuple[str, int, RecordDeletion | KafkaError]


@serves(
    DELETE_RECORDS,
    checks=[
        Check(
            Right("DELETE", "TOPIC"),
            TOPIC_DENIED + " for its partitions",
            lambda request: [topic.name for topic in request.topics],
        )
    ],
)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle DeleteRecords: delete the records of each partition before the requested offset. Return the low watermark,
    or an error code, for each partition."""
    return answered(call, lambda reply: _delete(broker, call, request, reply), broker.disk_pool)


def _delete(broker: Services, call: Call, request: Any, reply: Callable[[Any], None]) -> None:
    denied = call.denied_names("TOPIC")
    results: list[Result] = []
    for topic in request.topics:
        for one in topic.partitions:
            if topic.name in denied:
                error = refusal(Errors.TOPIC_AUTHORIZATION_FAILED)
                results.append((topic.name, one.partition_index, error))
                continue
            try:
                results.append((topic.name, one.partition_index, _deletion(broker, topic.name, one)))
            except KafkaError as error:
                results.append((topic.name, one.partition_index, error))
    deletions = [deletion for _, _, deletion in results if isinstance(deletion, RecordDeletion)]
    delayed = DelayedDeletion(deletions, lambda: reply(_response(request, results)))
    if not delayed.check():
        keys = [deletion.key for deletion in deletions]
        broker.replicas.deletion_purgatory.watch(delayed, request.timeout_ms / 1000, keys)


def _deletion(broker: Services, topic: str, one: Any) -> RecordDeletion:
    if is_internal(topic):
        raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"{topic} is internal, its records cannot be deleted")
    partition = broker.replicas.get(topic, one.partition_index)
    return RecordDeletion(partition, partition.delete_records(one.offset))


def _response(request: Any, results: list[Result]) -> Any:
    make = DELETE_RECORDS.Response
    left = iter(results)
    topics = []
    for topic in request.topics:
        answers = []
        for _ in topic.partitions:
            _, index, result = next(left)
            low_watermark = result.low_watermark if isinstance(result, RecordDeletion) else -1
            answers.append(
                make.Topics.Partitions(partition_index=index, low_watermark=low_watermark, error_code=result.code)
            )
        topics.append(make.Topics(name=topic.name, partitions=answers))
    return make(topics=topics)
