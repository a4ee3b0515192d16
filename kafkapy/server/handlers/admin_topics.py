"""CreateTopics (versions 0 to 7), DeleteTopics (versions 0 to 6) and CreatePartitions (versions 0 to 3).

Source: KafkaApis and kafka.server.ZkAdminManager.

Differences from Kafka:

- The response comes when the change is complete, and timeout_ms is ignored. Kafka returns REQUEST_TIMED_OUT after that
  time, at once if it is 0, and continues with the change.
- A topic whose logs cannot be created is deleted again, and the response has the reason. Kafka keeps the topic.
- A manual assignment in CreateTopics must name live brokers. Kafka checks this in CreatePartitions only.
- If a DeleteTopics entry has both a name and an id, only this entry gets an error; Kafka refuses the whole request. An
  entry with neither gets INVALID_REQUEST; in Kafka TOPIC_AUTHORIZATION_FAILED. Errors of DeleteTopics have messages,
  which Kafka's do not have.
- If DeleteTopics names a topic twice, the second result is UNKNOWN_TOPIC_OR_PARTITION; in Kafka it is NONE.
- create.topic.policy.class.name has no effect.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.protocol.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kafkapy.server.admission import NO_MESSAGE, denied_names, is_denied
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import TOPIC_DENIED, Check, Right
from kafkapy.server.config import describe as config_describe

if TYPE_CHECKING:
    from kafkapy.metadata.topics import Topic
    from kafkapy.server.quotas.client_quotas import Mutations
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.topics")

# The versions since which topics are refused beyond the quota on changes of topics (KIP-599).
STRICT_CREATE, STRICT_DELETE, STRICT_PARTITIONS = 6, 5, 3
METADATA_TOPIC = "__cluster_metadata"  # KRaft's metadata topic; clients must not create a topic with this name
DETAILS_SINCE = 5
IDS_SINCE = 6
DISABLED_SINCE = 3


@serves(
    CREATE_TOPICS,
    pooled=True,
    checks=[
        Check(Right("CREATE", "TOPIC"), TOPIC_DENIED + " for the topic", unless=Right("CREATE", "CLUSTER")),
        Check(
            Right("DESCRIBE_CONFIGS", "TOPIC"),
            "the topic is created; its result has topic_config_error_code TOPIC_AUTHORIZATION_FAILED and no settings",
            only="version 5 or later",
        ),
    ],
)
def create_topics(broker: Services, call: Call, request: Any) -> Any:
    """Handle CreateTopics on the disk pool: create the topics. Return one result per topic of the request, in its
    order."""
    make = CREATE_TOPICS.Response
    count = Counter(topic.name for topic in request.topics)
    rights, mutations = _rights(broker, call, count.keys() - {METADATA_TOPIC}), _mutations(call, STRICT_CREATE)
    results = []
    for topic in request.topics:  # a topic that is named twice gets two results, as in Kafka
        result = make.Topics(name=topic.name, error_message=None, configs=[])
        results.append(result)
        try:
            broker.controller.check_active()
            _check(topic.name, count, rights, result)
            if broker.stopping:  # the stop waits for the disk pool, so the remaining topics must not be created
                raise KafkaError(Errors.NOT_CONTROLLER, "this broker is stopping")
            _create(broker, call, topic, request.validate_only, mutations, result)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            result.num_partitions, result.replication_factor, result.configs = -1, -1, []
    return make(topics=results)


class _Rights(NamedTuple):
    """The topics of a CreateTopics request that the principal may not create, and those whose configuration it may not
    see."""

    not_created: Collection[str]
    not_described: Collection[str]


def _rights(broker: Services, call: Call, names: Collection[str]) -> _Rights:
    if broker.authorizer is None:
        return _Rights((), ())
    not_created: Collection[str] = ()
    if is_denied(broker, call, "CREATE", logged=False):
        not_created = denied_names(broker, call, "CREATE", "TOPIC", names)
    return _Rights(not_created, denied_names(broker, call, "DESCRIBE_CONFIGS", "TOPIC", names, logged=False))


def _mutations(call: Call, strict_since: int) -> Mutations | None:
    """Return the Mutations that count the partitions which the call creates and deletes, None if the client has no
    quota."""
    usage = call.usage
    if usage is None:
        return None
    usage.mutations = usage.quotas.mutations(call, usage, strict_since)
    return usage.mutations


def _check(name: str, count: Counter[str], rights: _Rights, result: Any) -> None:
    """Raise KafkaError if a topic of a CreateTopics request must not be created. As in Kafka, the result of such a
    topic has topic_config_error_code if the principal may not see the settings; after a failed creation, the result
    does not have it."""
    if name in rights.not_described:
        result.topic_config_error_code = Errors.TOPIC_AUTHORIZATION_FAILED
    if name == METADATA_TOPIC:
        raise KafkaError(Errors.INVALID_REQUEST, f"{METADATA_TOPIC} is internal and cannot be created")
    if count[name] > 1:
        raise KafkaError(Errors.INVALID_REQUEST, f"{name} is named more than once")
    if name in rights.not_created:
        raise KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


def _create(
    broker: Services, call: Call, topic: Any, validate_only: bool, mutations: Mutations | None, result: Any
) -> None:
    hidden, result.topic_config_error_code = result.topic_config_error_code != Errors.NONE, Errors.NONE
    empty = [config.name for config in topic.configs if config.value is None]
    if empty:
        raise KafkaError(Errors.INVALID_CONFIG, f"these settings have no value: {', '.join(empty)}")
    create = partial(
        broker.controller.create,
        topic.name,
        partitions=topic.num_partitions,
        replication=topic.replication_factor,
        by_hand={one.partition_index: one.broker_ids for one in topic.assignments} or None,
        overrides={config.name: config.value for config in topic.configs},
    )
    if mutations is not None and not validate_only:  # as in Kafka, a topic that cannot be created does not count
        mutations.record(len(create(validate_only=True).assignment))
    created = create(validate_only=validate_only)
    result.topic_id = created.id
    if hidden:
        result.topic_config_error_code = Errors.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions, result.replication_factor, result.configs = -1, -1, []
    elif call.version >= DETAILS_SINCE:
        _details(broker, created, {config.name: config.value for config in topic.configs}, result)


def _details(broker: Services, topic: Topic, overrides: dict[str, str], result: Any) -> None:
    """Fill in the partition count, the replication factor and the configuration of a created topic in its CreateTopics
    result (KIP-525)."""
    make = CREATE_TOPICS.Response.Topics.Configs
    result.num_partitions = len(topic.assignment)
    result.replication_factor = len(next(iter(topic.assignment.values())))
    result.configs = [
        make(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in config_describe.describe_topic(broker.config, overrides)
    ]


@serves(
    DELETE_TOPICS,
    pooled=True,
    checks=[
        Check(Right("DELETE", "TOPIC"), TOPIC_DENIED + " for the topic"),
        Check(
            Right("DESCRIBE", "TOPIC"),
            TOPIC_DENIED + " for the topic, without its name",
            only="topics that are given by their ids",
        ),
    ],
)
def delete_topics(broker: Services, call: Call, request: Any) -> Any:
    """Handle DeleteTopics on the disk pool: delete the topics, which version 6 may name by id. Return one response per
    topic."""
    make = DELETE_TOPICS.Response
    if call.version >= IDS_SINCE:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, ZERO_ID) for name in request.topic_names]
    # Look up each id once, so that the rights are checked for the topic that is deleted. A second look-up could find
    # more: `broker.topics` is empty until this broker becomes the controller.
    found = [name if topic_id == ZERO_ID else broker.topics.name_of(topic_id) for name, topic_id in asked]
    rights, mutations = _delete_rights(broker, call, found), _mutations(call, STRICT_DELETE)
    responses = []
    for (name, topic_id), topic in zip(asked, found, strict=True):
        response = make.Responses(name=name, topic_id=topic_id)
        try:
            broker.controller.check_active()
            if not broker.config.delete_topic_enable:
                code = Errors.INVALID_REQUEST if call.version < DISABLED_SINCE else Errors.TOPIC_DELETION_DISABLED
                raise KafkaError(code, "delete.topic.enable is false")
            _delete(broker, response, topic, rights, mutations)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message or None
        responses.append(response)
    return make(responses=responses)


class _DeleteRights(NamedTuple):
    """The topics of a DeleteTopics request that the principal may not see, and those that it may not delete."""

    not_described: Collection[str]
    not_deleted: Collection[str]


def _delete_rights(broker: Services, call: Call, found: list[str | None]) -> _DeleteRights:
    if broker.authorizer is None:
        return _DeleteRights((), ())
    names = {name for name in found if name is not None}
    return _DeleteRights(*(denied_names(broker, call, right, "TOPIC", names) for right in ("DESCRIBE", "DELETE")))


def _delete(
    broker: Services, response: Any, found: str | None, rights: _DeleteRights, mutations: Mutations | None
) -> None:
    """Delete the topic of a response. `found` is the topic's name, None if the request gives an id that no topic has.
    Raise KafkaError."""
    if response.topic_id != ZERO_ID:
        if response.name is not None:
            raise KafkaError(Errors.INVALID_REQUEST, "a topic is named or given by its id, not both")
        response.name = found
        if response.name is None:
            raise KafkaError(Errors.UNKNOWN_TOPIC_ID, "no topic has this id")
        if response.name in rights.not_described:
            response.name = None
            raise KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED, NO_MESSAGE)
    if response.name is None:
        raise KafkaError(Errors.INVALID_REQUEST, "a topic has neither a name nor an id")
    if response.name in rights.not_deleted:
        raise KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED, NO_MESSAGE)
    topic = broker.topics.get(response.name)
    if mutations is not None and topic is not None:
        mutations.record(len(topic.assignment))
    broker.controller.delete(response.name)
    broker.meters.forget(response.name)


@serves(
    CREATE_PARTITIONS,
    pooled=True,
    checks=[
        Check(
            Right("ALTER", "TOPIC"),
            TOPIC_DENIED + " for the topic",
            lambda request: [topic.name for topic in request.topics],
        )
    ],
)
def create_partitions(broker: Services, call: Call, request: Any) -> Any:
    """Handle CreatePartitions on the disk pool: add partitions to topics. Return one result per topic name."""
    make = CREATE_PARTITIONS.Response
    count = Counter(topic.name for topic in request.topics)
    denied, mutations = call.denied_names("TOPIC"), _mutations(call, STRICT_PARTITIONS)
    results = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        result = results[topic.name] = make.Results(name=topic.name)
        try:
            broker.controller.check_active()
            if count[topic.name] > 1:
                raise KafkaError(Errors.INVALID_REQUEST, f"{topic.name} is named more than once")
            if topic.name in denied:
                raise KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
            by_hand = None if topic.assignments is None else [one.broker_ids for one in topic.assignments]
            add = partial(broker.controller.add_partitions, topic.name, topic.count, by_hand)
            existing = broker.topics.get(topic.name)
            if mutations is not None and existing is not None and not request.validate_only:
                add(validate_only=True)
                mutations.record(topic.count - len(existing.assignment))
            add(validate_only=request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return make(results=list(results.values()))
