"""The controller's requests to other brokers as messages, and large ones encoded: LeaderAndIsr, UpdateMetadata,
StopReplica.

An UpdateMetadata request with thousands of partitions is encoded once for all brokers, because it differs only in the
receiver's broker epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from kafkapy.controller.requests import MetadataRequest, Request, RolesRequest, StopRequest
from kafkapy.metadata.cache import LiveBroker
from kafkapy.metadata.roles import PartitionRole
from kafkapy.protocol.apis import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Api
from kafkapy.replica.links import Encoded
from kafkapy.runtime.collector import drained

if TYPE_CHECKING:
    from kafkapy.server.services import Services

_MANY = 100  # fewest partitions of a request that is encoded before the network thread sends it
_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}  # SecurityProtocol.java
_INT64 = struct.Struct(">q")
# The versions that carry topic ids, which every broker since Kafka 2.8 serves.
API_OF: dict[type, tuple[Api, tuple[int, int]]] = {
    RolesRequest: (LEADER_AND_ISR, (5, 7)),
    MetadataRequest: (UPDATE_METADATA, (7, 8)),
    StopRequest: (STOP_REPLICA, (3, 4)),
}


class RequestEncoding:
    """Encodes requests, in the newest version. One thread at a time may use it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._last: tuple[MetadataRequest, bytes] | None = None  # the last UpdateMetadata request, and its encoding

    def of(self, request: Request) -> Callable[[int], Any]:
        """Return a function that returns the request's message for a version, or the message encoded."""
        message = partial(_MESSAGE_OF[type(request)], self._services, request)
        newest = API_OF[type(request)][1][1]
        encoded = self._encoded(request, newest, message)
        if encoded is None:
            return message
        return lambda version: encoded if version == newest else message(version)

    def _encoded(self, request: Request, version: int, message: Callable[[int], Any]) -> Encoded | None:
        if isinstance(request, MetadataRequest):
            if len(request.partitions) < _MANY:
                return None
            whole = self._metadata(request, version, message)
            at = _epoch_position(version)
            pieces = whole[:at], _INT64.pack(request.broker_epoch), memoryview(whole)[at + _INT64.size :]
            return Encoded(pieces)
        if len(request.roles if isinstance(request, RolesRequest) else request.stops) < _MANY:
            return None
        return Encoded([_encode(API_OF[type(request)][0], message(version), version)])

    def _metadata(self, request: MetadataRequest, version: int, message: Callable[[int], Any]) -> bytes:
        if self._last is not None:
            last, encoded = self._last
            is_same = last.partitions is request.partitions and last.brokers is request.brokers
            if is_same and last.controller_epoch == request.controller_epoch:
                return encoded
        encoded = _encode(UPDATE_METADATA, message(version), version)
        self._last = request, encoded
        return encoded


def _encode(api: Api, message: Any, version: int) -> bytes:
    """Return the encoded message. Free the message's partitions one by one."""
    encoded = api.encode_request(message, version)
    for topic in message.topic_states:
        for _ in drained(topic.partition_states):
            pass
    return encoded


@lru_cache(maxsize=4)
def _epoch_position(version: int) -> int:
    """Return the position of the broker epoch in an encoded UpdateMetadata request."""
    one, other = (
        UPDATE_METADATA.encode_request(UPDATE_METADATA.Request(broker_epoch=epoch), version) for epoch in (0, -1)
    )
    return next(at for at, (here, there) in enumerate(zip(one, other, strict=True)) if here != there)


def _topic_states(make: Any, roles: Iterable[PartitionRole], state: Callable[[PartitionRole], Any]) -> list[Any]:
    """Return the partitions by topic, each as `state(role)` shows it."""
    topics: dict[str, Any] = {}
    for role in roles:
        topic = topics.get(role.topic)
        if topic is None:
            topic = make.TopicStates(topic_name=role.topic, topic_id=role.topic_id, partition_states=[])
            topics[role.topic] = topic
        topic.partition_states.append(state(role))
    return list(topics.values())


def _roles_message(services: Services, request: RolesRequest, version: int) -> Any:
    make = LEADER_AND_ISR.Request
    shape = make.TopicStates.PartitionStates
    listener = services.config.inter_broker_listener
    return make(
        controller_id=services.broker_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=_topic_states(make, request.roles, partial(_role, shape, version)),
        live_leaders=[
            make.LiveLeaders(broker_id=one.id, host_name=one.endpoints[listener][0], port=one.endpoints[listener][1])
            for one in request.leaders
            if listener in one.endpoints
        ],
    )


def _role(make: Any, version: int, role: PartitionRole) -> Any:
    one = make(
        partition_index=role.partition,
        controller_epoch=role.controller_epoch,
        leader=role.leader,
        leader_epoch=role.leader_epoch,
        isr=list(role.isr),
        partition_epoch=role.partition_epoch,
        replicas=list(role.replicas),
        adding_replicas=list(role.adding),
        removing_replicas=list(role.removing),
        is_new=role.is_new,
    )
    if version >= 6:
        one.leader_recovery_state = role.recovery
    return one


def _metadata_message(services: Services, request: MetadataRequest, version: int) -> Any:
    make = UPDATE_METADATA.Request
    return make(
        controller_id=services.broker_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=_topic_states(make, request.partitions, partial(_leader, make.TopicStates.PartitionStates)),
        live_brokers=[_live(services, make.LiveBrokers, one) for one in request.brokers],
    )


def _leader(make: Any, role: PartitionRole) -> Any:
    return make(
        partition_index=role.partition,
        controller_epoch=role.controller_epoch,
        leader=role.leader,
        leader_epoch=role.leader_epoch,
        isr=list(role.isr),
        zk_version=role.partition_epoch,
        replicas=list(role.replicas),
        offline_replicas=list(role.offline),
    )


def _live(services: Services, make: Any, broker: LiveBroker) -> Any:
    # A listener name has the same protocol at all brokers, as clients and Kafka expect it.
    endpoints = [
        make.Endpoints(
            port=port,
            host=host,
            listener=listener,
            security_protocol=_PROTOCOLS[services.config.protocol_of(listener)],
        )
        for listener, (host, port) in broker.endpoints.items()
    ]
    return make(id=broker.id, endpoints=endpoints, rack=broker.rack)


def _stop_message(services: Services, request: StopRequest, version: int) -> Any:
    make = STOP_REPLICA.Request
    topics: dict[str, Any] = {}
    for one in request.stops:
        topic = topics.setdefault(one.topic, make.TopicStates(topic_name=one.topic, partition_states=[]))
        topic.partition_states.append(
            make.TopicStates.PartitionStates(
                partition_index=one.partition, leader_epoch=one.leader_epoch, delete_partition=one.delete
            )
        )
    return make(
        controller_id=services.broker_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=list(topics.values()),
    )


_MESSAGE_OF: dict[type, Callable[[Services, Any, int], Any]] = {
    RolesRequest: _roles_message,
    MetadataRequest: _metadata_message,
    StopRequest: _stop_message,
}
