"""UpdateMetadata (versions 0 to 8): the controller sends the live brokers, the topics and the partition leaders.

Source: KafkaApis.handleUpdateMetadataRequest, ZkMetadataCache.updateMetadata.

Differences from Kafka: a broker whose session with ZooKeeper expired, and that has registered again, forgets the topics
that were deleted meanwhile; Kafka's shows them until it is restarted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.metadata.cache import Leader, LiveBroker, TopicUpdate
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.tree import TreeError
from kafkapy.network.replies import CLOSE
from kafkapy.protocol.apis import UPDATE_METADATA
from kafkapy.runtime.collector import drained
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import on_cluster
from kafkapy.server.deleted_topics import forget_deleted
from kafkapy.server.handlers.controller_requests import is_late, pool, refusal

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.controller_requests")

BY_TOPIC_SINCE = 5
TOPIC_IDS_SINCE = 7
ENDPOINTS_SINCE = 1
RACKS_SINCE = 2
LISTENER_NAMES_SINCE = 3

# Security protocols by id. Versions before 3 name a broker's listener by the id of its security protocol.
_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


@serves(
    UPDATE_METADATA,
    pooled=pool,
    decoded_late=True,
    refused_undecoded=True,  # the request may have more elements than others (MAX_METADATA_ELEMENTS)
    quota="exempt",
    checks=on_cluster("CLUSTER_ACTION"),
)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle UpdateMetadata: update the metadata cache. Refuse a request that was meant for an earlier registration of
    this broker, or comes from a former controller."""
    make = UPDATE_METADATA.Response
    code = refusal(broker, call)
    if code != Errors.NONE:
        return make(error_code=code)
    if is_late(broker, call):
        return CLOSE
    if request.controller_id != broker.cache.controller_id:
        log.info("broker %d is the controller, epoch %d", request.controller_id, request.controller_epoch)
    topics = list(_topics(request, call.version))
    broker.cache.store(topics)
    if topics:
        broker.cache.is_complete = True  # the first request with partitions has the partitions of all topics
        if request.broker_epoch > broker.metadata_epoch:
            try:
                forget_deleted(broker, {topic.name for topic in topics})
                broker.metadata_epoch = request.broker_epoch
            except TreeError as error:  # the next request tries it again
                log.warning("topics that are deleted may still be shown to clients: %s", error)
    # Last, because this answers the clients that wait for brokers, and their responses need the topics, too.
    broker.cache.set_brokers(request.controller_id, [_broker(one, call.version) for one in request.live_brokers])
    return make(error_code=Errors.NONE)


def _broker(one: Any, version: int) -> LiveBroker:
    if version < ENDPOINTS_SINCE:
        return LiveBroker(one.id, {_PROTOCOLS[0]: (one.v0_host, one.v0_port)})
    endpoints = {}
    for endpoint in one.endpoints:
        known = version >= LISTENER_NAMES_SINCE
        listener = endpoint.listener if known else _PROTOCOLS.get(endpoint.security_protocol, "")
        endpoints[listener] = endpoint.host, endpoint.port
    return LiveBroker(one.id, endpoints, one.rack if version >= RACKS_SINCE else None)


def _topics(request: Any, version: int) -> Iterator[TopicUpdate]:
    if version >= BY_TOPIC_SINCE:
        for topic in request.topic_states:
            topic_id = topic.topic_id if version >= TOPIC_IDS_SINCE else ZERO_ID
            leaders = {one.partition_index: _leader(one) for one in drained(topic.partition_states)}
            yield TopicUpdate(topic.topic_name, topic_id, leaders)
        return
    topics: dict[str, dict[int, Leader]] = {}
    for one in request.ungrouped_partition_states:
        topics.setdefault(one.topic_name, {})[one.partition_index] = _leader(one)
    for name, leaders in topics.items():
        yield TopicUpdate(name, ZERO_ID, leaders)


def _leader(one: Any) -> Leader:
    return Leader(
        one.leader, one.leader_epoch, tuple(one.isr), tuple(one.replicas), tuple(one.offline_replicas), one.zk_version
    )
