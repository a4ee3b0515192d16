"""Metadata (versions 0 to 12): brokers, topics, partitions and their leaders.

A missing topic is created if auto.create.topics.enable and the request allow that.
Source: KafkaApis.handleTopicMetadataRequest.

Differences from Kafka: for a topic that is being created, Kafka returns LEADER_NOT_AVAILABLE at first, and clients
retry; here the response of the controller waits until the topic is created, which takes less time than a client's
retry backoff. The controller also returns LEADER_NOT_AVAILABLE for the partitions that it leads itself while their logs
are loading, or after their log directory has failed.

A broker that joins others does not know them until the controller has sent the first UpdateMetadata. Kafka then returns
no brokers; here the response waits up to LONGEST_WAIT_S, after which the connection is closed, and the client asks
another broker. A librdkafka client that gets no brokers forgets the brokers that it knew, and never connects again. A
new controller of Apache Kafka sends the brokers first and the topics a little later. In between, Kafka returns
UNKNOWN_TOPIC_OR_PARTITION, which makes a librdkafka producer fail its sends; here the response waits for the topics if
this broker has logs.

In versions 10 and 11, a topic with an id or without a name gets INVALID_REQUEST. Kafka returns this error for all
topics of such a request, and no brokers. If a request of version 12 has names and ids, all are answered; Kafka ignores
the names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cache import Leader
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.roles import NO_LEADER
from kafkapy.metadata.topics import is_internal, validate_name
from kafkapy.network.replies import CLOSE
from kafkapy.protocol.apis import METADATA
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.server.admission import OPERATIONS_NOT_ASKED, authorized_operations, denied_names, is_denied, refusal
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, Later
from kafkapy.server.checks import TOPIC_DENIED, Check, Right
from kafkapy.server.handlers.cluster import cluster_operations

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.metadata")

Asked = tuple["str | None", bytes, "KafkaError | None"]  # name, id, error

IDS_SINCE = 12
LISTENER_NOT_FOUND_SINCE = 6
CLUSTER_OPERATIONS_UNTIL = 10
# A response with more partitions, or a request with more topics, takes milliseconds, too long for a network thread;
# it runs on the disk pool.
MOST_INLINE = 500
# How long a request waits for the first UpdateMetadata. It is less than the request time-outs of clients, so that a
# client does not lose half a minute with a broker that no controller reaches.
LONGEST_WAIT_S = 5.0


@serves(
    METADATA,
    checks=[
        Check(
            Right("DESCRIBE", "TOPIC"),
            TOPIC_DENIED + " for the topic, without a name if it was asked for by its id; left out of the list of all "
            "topics",
        ),
        Check(
            Right("CREATE", "TOPIC"),
            TOPIC_DENIED + " for the topic",
            unless=Right("CREATE", "CLUSTER"),
            only="topics that would be created automatically",
        ),
        Check(
            Right("DESCRIBE", "CLUSTER"),
            "none: the authorized operations are 0",
            only="include_cluster_authorized_operations",
        ),
    ],
)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle Metadata: return the metadata of the requested topics, or a Later if topics are created first, the
    response is large, or no brokers are known yet."""
    if not broker.cache.knows_brokers:
        return _when_brokers_are_known(broker, call, request)
    if _is_long(broker, request):
        later = Later(call)
        broker.disk_pool.submit(_answer_later, broker, call, request, later)
        return later
    asked, create = _look_up(broker, call, request)
    if not create:
        return _response(broker, call, request, asked)
    later = Later(call)
    broker.disk_pool.submit(_create_and_answer, broker, call, request, asked, create, later)
    return later


def _when_brokers_are_known(broker: Services, call: Call, request: Any) -> Later:
    """Return the Later of a Metadata request that is handled after the first update of the live brokers. If the update
    takes longer than LONGEST_WAIT_S, the connection is closed."""
    later = Later(call)

    def answer() -> None:
        timeout.cancel()
        try:
            broker.disk_pool.submit(_answer_later, broker, call, request, later)
        except (PoolStopped, NoThread) as error:
            log.warning("%s is not answered: %s", call, error)
            later.complete(CLOSE)

    def give_up() -> None:
        if broker.cache.live_brokers():  # the topics may be deleted by now
            broker.cache.expect_no_topics()
        elif broker.cache.stop_waiting(answer):
            log.debug("%s is not answered: no controller has sent this broker the brokers of the cluster", call)
            later.complete(CLOSE)

    def forget() -> None:
        timeout.cancel()
        broker.cache.stop_waiting(answer)

    timeout = broker.timer.schedule(LONGEST_WAIT_S, give_up)
    # No race with the close of the connection: that happens on this network thread, after the handler has returned.
    later.pending.on_cancel = forget
    broker.cache.when_brokers_are_known(answer)
    return later


def _is_long(broker: Services, request: Any) -> bool:
    """Return True if the response to a Metadata request takes too long for a network thread. This looks up at most
    MOST_INLINE topics."""
    cache = broker.cache
    count = len(request.topics or cache)  # null, and in version 0 an empty list, asks for all topics
    if count > MOST_INLINE:
        return True
    names = [topic.name for topic in request.topics] if request.topics else cache.names()
    for name in names:
        if name is not None:
            count += len(cache.indexes(name))
            if count > MOST_INLINE:
                return True
    return False


def _answer_later(broker: Services, call: Call, request: Any, later: Later) -> None:
    """Handle a Metadata request on the disk pool, where it may take long and may block, and complete `later`."""
    try:
        _create_and_answer(broker, call, request, *_look_up(broker, call, request), later)
    except Exception:
        log.exception("%s failed", call)
        later.complete(CLOSE)


def _look_up(broker: Services, call: Call, request: Any) -> tuple[list[Asked], list[str]]:
    """Return the requested topics as (name, id, error), and the names of the topics that have to be created."""
    asked = _asked(broker, call, request)
    if broker.authorizer is None:
        return asked, _to_create(broker, request, asked)
    asked = _described(broker, call, request, asked)
    create = _to_create(broker, request, asked)
    if create and is_denied(broker, call, "CREATE", logged=False):
        denied = denied_names(broker, call, "CREATE", "TOPIC", create)
        refused = refusal(Errors.TOPIC_AUTHORIZATION_FAILED)
        asked = [(name, topic_id, refused if name in denied else error) for name, topic_id, error in asked]
        create = [name for name in create if name not in denied]
    return sorted(asked, key=_is_denied), create


def _is_denied(asked: Asked) -> bool:
    """Return True for a topic that comes last in the response, as in Kafka."""
    error = asked[2]
    return error is not None and error.code == Errors.TOPIC_AUTHORIZATION_FAILED


def _described(broker: Services, call: Call, request: Any, asked: list[Asked]) -> list[Asked]:
    """Return the requested topics with an error for each topic that the principal may not see. If all topics are
    requested, these topics are left out instead."""
    every = _all_topics(call, request)
    names = [name for name, _, _ in asked if name is not None]
    denied = denied_names(broker, call, "DESCRIBE", "TOPIC", names, logged=not every)
    refused = refusal(Errors.TOPIC_AUTHORIZATION_FAILED)
    if every:
        return [one for one in asked if one[0] not in denied]
    return [
        (name if topic_id == ZERO_ID else None, topic_id, refused) if name in denied else (name, topic_id, error)
        for name, topic_id, error in asked
    ]


def _to_create(broker: Services, request: Any, asked: list[Asked]) -> list[str]:
    if not (request.allow_auto_topic_creation and broker.config.auto_create_topics_enable):
        return []
    return [  # internal topics are left out: the coordinators create them, with their own settings
        name
        for name, _, error in asked
        if error is not None
        and error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
        and name is not None
        and not is_internal(name)
    ]


def _create_and_answer(
    broker: Services, call: Call, request: Any, asked: list[Asked], create: list[str], later: Later
) -> None:
    answers = asked
    try:
        # No more topics are created when the broker stops: a request can name hundreds of thousands of topics, and the
        # stop waits for the disk pool.
        usage = call.usage
        if usage is not None and broker.is_controller:  # the new partitions count for the quota, but are never refused
            partitions = len(create) * broker.config["num.partitions"]
            usage.quotas.mutations(call, usage, strict_since=call.version + 1).record(partitions)
        errors = broker.controller.auto_create(name for name in create if not broker.stopping)
        created = set(create)
        answers = [(name, topic_id, errors.get(name) if name in created else error) for name, topic_id, error in asked]
    except Exception:
        log.exception("%s failed", call)
    later.complete(_response(broker, call, request, answers))


def _asked(broker: Services, call: Call, request: Any) -> list[Asked]:
    """Return the topics of a Metadata request, each once, as (name, id, error). If the request asks for all topics,
    return all. Names and ids that do not exist have an error."""
    if _all_topics(call, request):
        return [(name, ZERO_ID, None) for name in broker.cache.names()]
    answers: dict[Any, Asked] = {}
    for topic in request.topics:
        topic_id = topic.topic_id
        if topic_id != ZERO_ID and call.version < IDS_SINCE:
            refused = KafkaError(Errors.INVALID_REQUEST, f"topic ids are for version {IDS_SINCE}")
            answers[topic.name, topic_id] = (topic.name, ZERO_ID, refused)
        elif topic_id != ZERO_ID:
            name = broker.cache.name_of(topic_id)
            error = None if name is not None else KafkaError(Errors.UNKNOWN_TOPIC_ID, "no topic has this id")
            answers[topic_id] = (name, topic_id, error)
        elif topic.name is None:
            answers[None] = (None, ZERO_ID, KafkaError(Errors.INVALID_REQUEST, "a topic has neither a name nor an id"))
        elif topic.name not in answers:
            answers[topic.name] = (topic.name, ZERO_ID, _missing(broker, topic.name))
    return list(answers.values())


def _all_topics(call: Call, request: Any) -> bool:
    return request.topics is None or (call.version == 0 and not request.topics)


def _missing(broker: Services, name: str) -> KafkaError | None:
    if name in broker.cache:
        return None
    try:
        validate_name(name)
    except KafkaError as error:
        return error
    return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def _response(broker: Services, call: Call, request: Any, topics: list[Asked]) -> Any:
    make = METADATA.Response
    operations = OPERATIONS_NOT_ASKED
    if call.version <= CLUSTER_OPERATIONS_UNTIL and request.include_cluster_authorized_operations:
        operations = cluster_operations(broker, call)
    return make(
        brokers=[
            make.Brokers(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.cache.nodes(call.connection.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.cache.controller_id,
        topics=[_topic(broker, call, request, *topic) for topic in topics],
        cluster_authorized_operations=operations,
    )


def _topic(
    broker: Services, call: Call, request: Any, name: str | None, topic_id: bytes, error: KafkaError | None
) -> Any:
    make = METADATA.Response.Topics
    partitions = broker.cache.partitions(name) if error is None and name is not None else {}
    operations = OPERATIONS_NOT_ASKED
    if request.include_topic_authorized_operations and name is not None and not _is_denied((name, topic_id, error)):
        operations = authorized_operations(broker, call, "TOPIC", name)
    if name is None or not partitions:
        code = error.code if error is not None else Errors.UNKNOWN_TOPIC_OR_PARTITION
        is_described = code != Errors.TOPIC_AUTHORIZATION_FAILED
        shown = name if name is not None or call.version >= IDS_SINCE else ""
        return make(
            error_code=code,
            name=shown,
            topic_id=topic_id,
            is_internal=is_described and name is not None and is_internal(name),
            partitions=[],
            topic_authorized_operations=operations,
        )
    return make(
        error_code=Errors.NONE,
        name=name,
        topic_id=broker.cache.topic_id(name),
        is_internal=is_internal(name),
        partitions=[
            _partition(broker, call, request, name, index, known) for index, known in sorted(partitions.items())
        ],
        topic_authorized_operations=operations,
    )


def _partition(broker: Services, call: Call, request: Any, topic: str, index: int, known: Leader) -> Any:
    if broker.cache.controller_id == broker.broker_id and known.id in (broker.broker_id, NO_LEADER):
        known = _as_served(broker, request, topic, index, known)
    cache, listener = broker.cache, call.connection.listener
    code, leader, replicas, isr = Errors.NONE, known.id, list(known.replicas), list(known.isr)
    if call.version == 0:  # clients of version 0 expect to know the address of each broker in the response
        replicas, isr = _with_address(broker, listener, replicas), _with_address(broker, listener, isr)
        if len(replicas) < len(known.replicas) or len(isr) < len(known.isr):
            code = Errors.REPLICA_NOT_AVAILABLE
    if cache.node(leader, listener) is None:
        code = Errors.LEADER_NOT_AVAILABLE
        if cache.is_alive(leader) and call.version >= LISTENER_NOT_FOUND_SINCE:
            code = Errors.LISTENER_NOT_FOUND
        leader = NO_LEADER
    return METADATA.Response.Topics.Partitions(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=known.epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=list(known.offline),
    )


def _with_address(broker: Services, listener: str, ids: Iterable[int]) -> list[int]:
    return [one for one in ids if broker.cache.node(one, listener) is not None]


def _as_served(broker: Services, request: Any, topic: str, index: int, known: Leader) -> Leader:
    """Return `known`, the state of a partition, without its leader if the leader is this broker and it does not serve
    the partition, because the log is loading or the log directory is offline. If no leader was elected yet, set the ISR
    to the replicas that are not offline.

    Called on the controller. Other brokers report these states by requests; the controller must look at its own logs.
    """
    if known.id == NO_LEADER:
        if known.is_decided:
            return known
        return known._replace(isr=tuple(one for one in known.replicas if one not in known.offline))
    try:
        # `hasten` loads this log before others, unless the request asks for all topics.
        broker.replicas.get(topic, index, hasten=bool(request.topics))
    except KafkaError as error:
        if error.code == Errors.NOT_LEADER_OR_FOLLOWER:  # the log is loading, so this replica is not offline
            return known._replace(id=NO_LEADER, isr=known.isr or known.replicas)
        isr = tuple(one for one in known.isr if one != broker.broker_id)
        return known._replace(id=NO_LEADER, isr=isr, offline=(*known.offline, broker.broker_id))
    return known
