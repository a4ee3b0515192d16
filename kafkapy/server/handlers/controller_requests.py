"""LeaderAndIsr (versions 0 to 7) and StopReplica (versions 0 to 4), which the controller sends to brokers.

Both are carried out in the order of their arrival, on a thread of their own: a request may create thousands of logs.
Source: KafkaApis.handleLeaderAndIsrRequest, handleStopReplicaRequest.

Differences from Kafka:

- This broker registers before its logs are loaded. A role (leader or follower of a partition) for a log that is loading
  gets a response without an error, and begins when the log is loaded.
- A full disk takes no log directory offline. A role that lacks disk space or a file descriptor gets a response without
  an error, and begins when there is enough. But if this broker is to lead and another member of the ISR is alive, the
  response has KAFKA_STORAGE_ERROR, and the controller elects that member. When there is space again, the broker sends
  the notification of a failed log directory, which makes the controller send all roles of this broker again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.roles import ANY_EPOCH, PartitionRole, StopPartition
from kafkapy.network.replies import CLOSE
from kafkapy.protocol.apis import LEADER_AND_ISR, STOP_REPLICA
from kafkapy.runtime import collector
from kafkapy.runtime.collector import drained
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import CLUSTER_DENIED, on_cluster

if TYPE_CHECKING:
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.controller_requests")

_TOPIC_IDS_SINCE = 5
_BY_TOPIC_SINCE = 2
_ONE_FLAG_UNTIL = 2
_UNGROUPED_UNTIL = 0


def pool(broker: Services, request: Any) -> DiskPool:
    """Return the pool for requests of the controller: its only thread keeps them in order."""
    return broker.cluster_pool


def refusal(broker: Services, call: Call) -> int:
    """Return the error code of a request that is not allowed, not meant for this broker, or from a former controller;
    NONE for any other. Only called on the thread of `pool`.

    A broker epoch below the current one belongs to an earlier registration of this broker: the controller did not know
    yet that the broker had restarted. A higher broker epoch is accepted: the controller may know the new registration
    before this broker does.
    """
    if call.denied:
        return Errors.CLUSTER_AUTHORIZATION_FAILED
    epoch = call.request.broker_epoch
    if epoch != ANY_EPOCH and epoch < broker.broker_epoch:
        log.warning(
            "%s of controller %d, epoch %d, is ignored: it is for broker epoch %d, and this broker has epoch %d",
            call.served.api.name,
            call.request.controller_id,
            call.request.controller_epoch,
            epoch,
            broker.broker_epoch,
        )
        return Errors.STALE_BROKER_EPOCH
    return Errors.NONE if broker.roles.accepts(call.request.controller_epoch) else Errors.STALE_CONTROLLER_EPOCH


def is_late(broker: Services, call: Call) -> bool:
    """Return True if the controller has opened another connection after the connection on which this request came.

    When a response does not come in time, the controller opens a new connection and sends the request again. When the
    network recovers, the first copy may arrive behind newer requests, and then it is out of date. Only called on the
    thread of `pool`.
    """
    source = call.request.controller_epoch, call.connection.id
    latest = broker.controller_source
    if source[0] == latest[0] and source[1] < latest[1]:
        log.warning(
            "%s of controller %d is ignored: it comes on a connection that the controller has replaced",
            call.served.api.name,
            call.request.controller_id,
        )
        return True
    broker.controller_source = max(source, latest)
    return False


@serves(
    LEADER_AND_ISR,
    pooled=pool,
    decoded_late=True,
    quota="exempt",
    checks=on_cluster("CLUSTER_ACTION", CLUSTER_DENIED + ", and on each partition"),
)
def leader_and_isr(broker: Services, call: Call, request: Any) -> Any:
    """Handle LeaderAndIsr: apply the roles, and return an error code for each partition."""
    code = refusal(broker, call)
    if code == Errors.NONE and is_late(broker, call):
        return CLOSE
    roles = list(_roles(request, call.version))
    if code != Errors.NONE:
        codes = dict.fromkeys(((one.topic, one.partition) for one in roles), code)
    else:
        failures = broker.roles.apply(request.controller_epoch, roles)
        codes = {key: error.code for key, error in failures.items()}
        log.info(
            "received the roles of %d partitions from controller %d, epoch %d; refused: %d",
            len(roles),
            request.controller_id,
            request.controller_epoch,
            len(failures),
        )
        collector.long_lived(len(roles))
    return _roles_response(call, code, roles, codes)


def _roles(request: Any, version: int) -> Iterable[PartitionRole]:
    """Yield the roles of a request, and remove each of them from the request (see `drained`)."""
    if version < _BY_TOPIC_SINCE:
        for one in drained(request.ungrouped_partition_states):
            yield _role(one.topic_name, ZERO_ID, one)
    else:
        for topic in request.topic_states:
            topic_id = topic.topic_id if version >= _TOPIC_IDS_SINCE else ZERO_ID
            for one in drained(topic.partition_states):
                yield _role(topic.topic_name, topic_id, one)


def _role(topic: str, topic_id: bytes, one: Any) -> PartitionRole:
    return PartitionRole(
        topic,
        one.partition_index,
        topic_id,
        one.leader,
        one.leader_epoch,
        one.partition_epoch,
        tuple(one.isr),
        tuple(one.replicas),
        one.is_new,
    )


def _roles_response(call: Call, code: int, roles: list[PartitionRole], codes: dict[tuple[str, int], int]) -> Any:
    make = LEADER_AND_ISR.Response
    if call.version < _TOPIC_IDS_SINCE:
        return make(error_code=code, partition_errors=_partition_errors(make, roles, codes))
    topics: dict[bytes, Any] = {}
    for one in drained(roles):
        topic = topics.setdefault(one.topic_id, make.Topics(topic_id=one.topic_id, partition_errors=[]))
        topic.partition_errors.append(
            make.Topics.PartitionErrors(
                partition_index=one.partition, error_code=codes.get((one.topic, one.partition), Errors.NONE)
            )
        )
    return make(error_code=code, topics=list(topics.values()))


@serves(
    STOP_REPLICA,
    pooled=pool,
    decoded_late=True,
    quota="exempt",
    checks=on_cluster("CLUSTER_ACTION", CLUSTER_DENIED + ", and on each partition"),
)
def stop_replica(broker: Services, call: Call, request: Any) -> Any:
    """Handle StopReplica: stop fetching partitions or delete them, and return an error code for each."""
    make = STOP_REPLICA.Response
    code = refusal(broker, call)
    if code == Errors.NONE and is_late(broker, call):
        return CLOSE
    if code not in (Errors.NONE, Errors.CLUSTER_AUTHORIZATION_FAILED):
        return make(error_code=code, partition_errors=[])
    stops = list(_stops(request, call.version))
    if code != Errors.NONE:
        codes = dict.fromkeys(((one.topic, one.partition) for one in stops), code)
        return make(error_code=code, partition_errors=_partition_errors(make, stops, codes))
    failures = broker.roles.apply(request.controller_epoch, stops)
    codes = {key: error.code for key, error in failures.items()}
    return make(error_code=code, partition_errors=_partition_errors(make, stops, codes))


def _partition_errors(
    make: Any, partitions: Iterable[PartitionRole | StopPartition], codes: dict[tuple[str, int], int]
) -> list[Any]:
    return [
        make.PartitionErrors(
            topic_name=one.topic,
            partition_index=one.partition,
            error_code=codes.get((one.topic, one.partition), Errors.NONE),
        )
        for one in partitions
    ]


def _stops(request: Any, version: int) -> Iterable[StopPartition]:
    if version == _UNGROUPED_UNTIL:
        for one in request.ungrouped_partitions:
            yield StopPartition(one.topic_name, one.partition_index, ANY_EPOCH, request.delete_partitions)
    elif version <= _ONE_FLAG_UNTIL:
        for topic in request.topics:
            for index in topic.partition_indexes:
                yield StopPartition(topic.name, index, ANY_EPOCH, request.delete_partitions)
    else:
        for topic in request.topic_states:
            for one in topic.partition_states:
                yield StopPartition(topic.topic_name, one.partition_index, one.leader_epoch, one.delete_partition)
