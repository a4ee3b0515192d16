"""OffsetForLeaderEpoch (versions 0 to 4): the end offset of a leader epoch (KIP-101, KIP-320).

Source: KafkaApis.handleOffsetForLeaderEpochRequest, ReplicaManager.lastOffsetForLeaderEpoch.

Differences from Kafka: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import OFFSET_FOR_LEADER_EPOCH
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call

if TYPE_CHECKING:
    from kafkapy.server.services import Services


@serves(OFFSET_FOR_LEADER_EPOCH)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle OffsetForLeaderEpoch: return, for each partition, the largest leader epoch that is not above the requested
    one, and the end offset of that epoch."""
    make = OFFSET_FOR_LEADER_EPOCH.Response
    topics = []
    for topic in request.topics:
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
    return make(topics=topics)
