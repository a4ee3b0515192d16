"""OffsetDelete (version 0): delete a group's offsets of topics that no member subscribes to (KIP-496).

Source: KafkaApis.handleOffsetDeleteRequest.

Differences from Kafka: none known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import OFFSET_DELETE
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import GROUP_DENIED, TOPIC_DENIED, Check, Right

if TYPE_CHECKING:
    from kafkapy.server.services import Services

# A request with more offsets takes milliseconds, too long for a network thread; it runs on the disk pool.
MOST_INLINE = 500


@serves(
    OFFSET_DELETE,
    checks=[
        Check(Right("DELETE", "GROUP"), GROUP_DENIED, lambda request: (request.group_id,)),
        Check(
            Right("READ", "TOPIC"),
            TOPIC_DENIED + " for its partitions",
            lambda request: [topic.name for topic in request.topics],
        ),
    ],
    in_order=True,
)
def delete(broker: Services, call: Call, request: Any) -> Any:
    """Handle OffsetDelete: delete the offsets that a group has committed for some partitions. Return an error code for
    each partition."""
    if call.is_denied("GROUP"):
        return OFFSET_DELETE.Response(error_code=Errors.GROUP_AUTHORIZATION_FAILED, topics=[])
    count = sum(len(topic.partitions) for topic in request.topics)
    pool = broker.disk_pool if count > MOST_INLINE else None
    return answered(call, lambda reply: _delete(broker, call, request, reply), pool)


def _delete(broker: Services, call: Call, request: Any, reply: Callable[[Any], None]) -> None:
    make = OFFSET_DELETE.Response
    denied = call.denied_names("TOPIC")
    partitions, answers, topics = [], [], []
    for topic in request.topics:
        known = broker.cache.indexes(topic.name)
        of_topic = []
        for one in topic.partitions:
            answer = make.Topics.Partitions(partition_index=one.partition_index, error_code=Errors.NONE)
            if topic.name in denied:
                answer.error_code = Errors.TOPIC_AUTHORIZATION_FAILED
            elif one.partition_index not in known:
                answer.error_code = Errors.UNKNOWN_TOPIC_OR_PARTITION
            else:
                partitions.append((topic.name, one.partition_index))
                answers.append(answer)
            of_topic.append(answer)
        topics.append(make.Topics(name=topic.name, partitions=of_topic))

    def done(code: int, codes: list[int]) -> None:
        if code != Errors.NONE:
            reply(make(error_code=code, topics=[]))
            return
        for answer, one in zip(answers, codes, strict=True):
            answer.error_code = one
        reply(make(error_code=Errors.NONE, topics=topics))

    broker.offsets.delete(request.group_id, partitions, done)
