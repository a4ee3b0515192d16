"""FindCoordinator (versions 0 to 6): the coordinator of a group or of a transactional id.

The coordinator is the leader of the group's partition of `__consumer_offsets`, or of the transactional id's partition
of `__transaction_state`. It may still be loading its partition: requests to it then fail with
COORDINATOR_LOAD_IN_PROGRESS. Source: KafkaApis.handleFindCoordinatorRequest.

Differences from Kafka: if the internal topic does not exist, Kafka starts its creation and returns
COORDINATOR_NOT_AVAILABLE, so that clients retry; here, if this broker is the controller, the response waits until the
topic is created.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.internal_topic_config import GROUPS, TRANSACTIONS
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cache import Node
from kafkapy.metadata.roles import NO_LEADER
from kafkapy.protocol.apis import FIND_COORDINATOR
from kafkapy.server.admission import CLUSTER, NO_MESSAGE, refusal
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import CLUSTER_DENIED, GROUP_DENIED, TRANSACTIONAL_ID_DENIED, Check, Right

if TYPE_CHECKING:
    from kafkapy.server.services import Services

BATCHED_SINCE = 4
SHARE_SINCE = 6

GROUP, TRANSACTION, SHARE = 0, 1, 2

# A request with more keys takes milliseconds, too long for a network thread; it runs on the disk pool.
MOST_INLINE = 500

_DENIED = {GROUP: Errors.GROUP_AUTHORIZATION_FAILED, TRANSACTION: Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}

NOWHERE = Node(-1, "", -1, None)


_FROM_4 = "; from version 4 on for each key"


def _keys(request: Any, key_type: int) -> list[str]:
    if request.key_type != key_type:
        return []
    return request.coordinator_keys or [request.key]


def _of_share_groups(request: Any) -> tuple[str, ...]:
    return (CLUSTER,) if request.key_type == SHARE else ()


@serves(
    FIND_COORDINATOR,
    checks=[
        Check(
            Right("DESCRIBE", "GROUP"),
            GROUP_DENIED + _FROM_4,
            lambda request: _keys(request, GROUP),
            only="the coordinator of a group",
        ),
        Check(
            Right("DESCRIBE", "TRANSACTIONAL_ID"),
            TRANSACTIONAL_ID_DENIED + _FROM_4,
            lambda request: _keys(request, TRANSACTION),
            only="the coordinator of a transactional id",
        ),
        Check(
            Right("CLUSTER_ACTION", "CLUSTER"),
            CLUSTER_DENIED + " for each key",
            _of_share_groups,
            only="the coordinator of a share group, which does not exist",
        ),
    ],
)
def find_coordinator(broker: Services, call: Call, request: Any) -> Any:
    """Handle FindCoordinator: return the coordinator of each key. If the internal topic does not exist, it is created
    first, and the response waits for that. A client that may not describe any of the keys creates nothing."""
    keys = request.coordinator_keys if call.version >= BATCHED_SINCE else [request.key]
    topic = {GROUP: GROUPS, TRANSACTION: TRANSACTIONS}.get(request.key_type)
    if topic is None:
        error = _why_not(call, request.key_type)
        if call.denied and error.code == Errors.COORDINATOR_NOT_AVAILABLE:
            error = _refusal(call, Errors.CLUSTER_AUTHORIZATION_FAILED)
        return _response(call, keys, lambda key: (error, NOWHERE))
    refused = {action.name: _refusal(call, _DENIED[request.key_type]) for action in call.denied}
    if refused.keys() >= set(keys):
        return _response(call, keys, lambda key: (refused[key], NOWHERE))

    def begin(reply: Callable[[Any], None]) -> None:
        def created(error: KafkaError | None) -> None:
            reply(_response(call, keys, lambda key: find(key, error)))

        def find(key: str, error: KafkaError | None) -> tuple[KafkaError | None, Node]:
            return (refused[key], NOWHERE) if key in refused else _find(broker, call, topic, key, error)

        broker.coordinators.topics.ensure(topic, created)

    return answered(call, begin, broker.disk_pool if len(keys) > MOST_INLINE else None)


def _refusal(call: Call, code: int) -> KafkaError:
    return KafkaError(code, NO_MESSAGE) if call.version >= BATCHED_SINCE else refusal(code)


def _why_not(call: Call, key_type: int) -> KafkaError:
    if key_type == SHARE and call.version >= SHARE_SINCE:  # Kafka 3.9 has the key type, but no share coordinator
        return KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, "this broker has no coordinator of share groups")
    return KafkaError(Errors.INVALID_REQUEST, f"there is no coordinator type {key_type} in version {call.version}")


def _find(
    broker: Services, call: Call, topic: str, key: str, error: KafkaError | None
) -> tuple[KafkaError | None, Node]:
    if error is not None:
        return KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, f"{topic} cannot be created: {error.message}"), NOWHERE
    index = broker.coordinators.shards_of(topic).partition_for(key)
    known = broker.cache.leader(topic, index)
    leader = known.id if known is not None else _undecided(broker)
    if leader == broker.broker_id:
        try:
            broker.replicas.get(topic, index)  # moves a log that waits for its load to the front of the queue
        except KafkaError as reason:
            if reason.code != Errors.NOT_LEADER_OR_FOLLOWER:
                return KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, reason.message), NOWHERE
    node = broker.cache.node(leader, call.connection.listener)
    if node is None:
        who = f"no broker leads {topic}-{index}" if leader == NO_LEADER else f"broker {leader} is not alive"
        return KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, who), NOWHERE
    return None, node


def _undecided(broker: Services) -> int:
    """Return the broker id to send for a partition whose leader is not elected yet: this broker's if it is the
    controller, so that clients ask it again soon, otherwise NO_LEADER."""
    return broker.broker_id if broker.is_controller else NO_LEADER


def _response(call: Call, keys: list[str], find: Callable[[str], tuple[KafkaError | None, Node]]) -> Any:
    make = FIND_COORDINATOR.Response
    found = [(key, *find(key)) for key in keys]
    if call.version >= BATCHED_SINCE:
        return make(
            coordinators=[
                make.Coordinators(
                    key=key,
                    node_id=node.id,
                    host=node.host,
                    port=node.port,
                    error_code=_code(error),
                    error_message=error.message if error is not None else "",
                )
                for key, error, node in found
            ]
        )
    _, error, node = found[0]
    return make(
        error_code=_code(error),
        error_message=error.message if error is not None else "NONE",
        node_id=node.id,
        host=node.host,
        port=node.port,
    )


def _code(error: KafkaError | None) -> int:
    return error.code if error is not None else int(Errors.NONE)
