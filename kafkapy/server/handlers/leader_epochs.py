"""OffsetForLeaderEpoch (versions 0 to 4): the end offset of a leader epoch (KIP-101, KIP-320).

Source: KafkaApis.handleOffsetForLeaderEpochRequest, ReplicaManager.lastOffsetForLeaderEpoch.

Differences from Kafka: none known.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import OFFSET_FOR_LEADER_EPOCH
from kafkapy.server.admission import denied_names, is_denied
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import TOPIC_DENIED, Check, Right

if TYPE_CHECKING:
    from kafkapy.server.services import Services


MOST_INLINE = 500  # topics and partitions; a request with more takes too long for a network thread


@serves(
    OFFSET_FOR_LEADER_EPOCH,
    checks=[
        Check(
            Right("DESCRIBE", "TOPIC"),
            TOPIC_DENIED + " for its partitions",
            unless=Right("CLUSTER_ACTION", "CLUSTER"),
        )
    ],
)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle OffsetForLeaderEpoch: return, for each partition, the largest leader epoch that is not above the requested
    one, and the end offset of that epoch. Denied topics come last."""
    count = sum(1 + len(topic.partitions) for topic in request.topics)
    pool = broker.disk_pool if count > MOST_INLINE else None
    return answered(call, lambda reply: reply(_response(broker, call, request)), pool)


def _response(broker: Services, call: Call, request: Any) -> Any:
    make = OFFSET_FOR_LEADER_EPOCH.Response
    denied: Collection[str] = ()
    if is_denied(broker, call, "CLUSTER_ACTION", logged=False):
        denied = denied_names(broker, call, "DESCRIBE", "TOPIC", [topic.topic for topic in request.topics])
    topics, refused = [], []
    for topic in request.topics:
        if topic.topic in denied:
            refused.append(_refused(topic))
            continue
        answers = []
        for one in topic.partitions:
            code, epoch, end_offset = Errors.NONE, -1, -1
            try:
                partition = broker.replicas.require_leader(topic.topic, one.partition, one.current_leader_epoch)
                epoch, end_offset = partition.log.end_offset_for_epoch(one.leader_epoch)
            except KafkaError as error:
                code = error.code
            answers.append(
                make.Topics.Partitions(
                    error_code=code, partition=one.partition, leader_epoch=epoch, end_offset=end_offset
                )
            )
        topics.append(make.Topics(topic=topic.topic, partitions=answers))
    return make(topics=topics + refused)


def _refused(topic: Any) -> Any:
    make = OFFSET_FOR_LEADER_EPOCH.Response.Topics
    return make(
        topic=topic.topic,
        partitions=[
            make.Partitions(
                error_code=Errors.TOPIC_AUTHORIZATION_FAILED, partition=one.partition, leader_epoch=-1, end_offset=-1
            )
            for one in topic.partitions
        ],
    )
