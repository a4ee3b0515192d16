"""OffsetFetch (versions 0 to 9): the committed offsets of a group, from version 8 on of several groups.

Version 0 reads the offsets that OffsetCommit version 0 stored in the metadata tree.
Source: KafkaApis.handleOffsetFetchRequest, OffsetFetchResponse.

Differences from Kafka:

- A group that a request names more than once has one result, for the last of its entries.
- In version 1, each requested partition has the error of its group. Kafka 3.9 sends a response without partitions, and
  so without the error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import OFFSET_FETCH
from kafkapy.server.admission import denied_names
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import GROUP_DENIED, TOPIC_DENIED, Check, Right
from kafkapy.server.handlers.offset_commit import LARGE

if TYPE_CHECKING:
    from kafkapy.coordinator.offsets.manager import Found as Committed
    from kafkapy.metadata.consumer_offsets import Found
    from kafkapy.server.services import Services

GROUPS_SINCE = 8
GROUP_ERROR_SINCE = 2  # the response has one error code for the group; earlier versions have it in each partition
NOTHING = -1


def _topics(request: Any) -> list[str]:
    entries = request.groups or (request,)
    return [topic.name for entry in entries for topic in entry.topics or ()]


@serves(
    OFFSET_FETCH,
    checks=[
        Check(
            Right("DESCRIBE", "GROUP"),
            GROUP_DENIED + " for the group; before version 2 on each partition",
            lambda request: [group.group_id for group in request.groups] or (request.group_id,),
        ),
        Check(
            Right("DESCRIBE", "TOPIC"),
            TOPIC_DENIED + " for its partitions; left out if all topics are asked for",
            _topics,
        ),
    ],
    in_order=True,
)
def fetch(broker: Services, call: Call, request: Any) -> Any:
    """Handle OffsetFetch: return the committed offsets of the requested groups. Large requests run on the disk pool."""
    if call.version == 0:
        is_large = sum(len(topic.partition_indexes) for topic in request.topics) >= LARGE
        pool = broker.disk_pool if is_large else None
        return answered(call, lambda reply: _from_metadata(broker, call, request, reply), pool)
    # Each group once: a few bytes of a request name a group, and a group can have thousands of offsets.
    groups = list({group.group_id: group for group in request.groups}.values())
    if call.version < GROUPS_SINCE:
        groups = [request]
    if not _is_large(broker, groups):
        return _fetch(broker, call, request, groups)
    return answered(call, lambda reply: reply(_fetch(broker, call, request, groups)), broker.disk_pool)


def _is_large(broker: Services, groups: list[Any]) -> bool:
    left = LARGE
    for group in groups:
        left -= 1 + _count(broker, group)
        if left <= 0:
            return True
    return False


def _count(broker: Services, group: Any) -> int:
    """Return the number of offsets that the request asks for in one group's entry."""
    if group.topics is None:
        return broker.offsets.count(group.group_id)
    return sum(len(topic.partition_indexes) for topic in group.topics)


def _fetch(broker: Services, call: Call, request: Any, asked: list[Any]) -> Any:
    make = OFFSET_FETCH.Response
    denied = _Denied(call.denied_names("GROUP"), call.denied_names("TOPIC"))
    if call.version >= GROUPS_SINCE:
        groups = []
        for group in asked:
            code, topics = _group(broker, call, denied, make.Groups.Topics, group, request.require_stable)
            groups.append(make.Groups(group_id=group.group_id, topics=topics, error_code=code))
        return make(groups=groups)
    code, topics = _group(broker, call, denied, make.Topics, request, request.require_stable)
    if code != Errors.NONE and call.version < GROUP_ERROR_SINCE:
        topics = [_refused(make.Topics, topic, code) for topic in request.topics]
    return make(topics=topics, error_code=code)


class _Denied(NamedTuple):
    """The groups and the topics of a request that the principal may not read."""

    groups: Collection[str]
    topics: Collection[str]


def _group(
    broker: Services, call: Call, denied: _Denied, make: Any, asked: Any, require_stable: bool
) -> tuple[int, list[Any]]:
    """Return the error code of one requested group, and its topics with the committed offsets, as instances of `make`.
    The list of topics is empty if there is an error. Denied topics come last."""
    if asked.group_id in denied.groups:
        return Errors.GROUP_AUTHORIZATION_FAILED, []
    try:
        if asked.topics is None:
            topics = _all(broker, make, asked.group_id, require_stable)
            hidden = denied_names(broker, call, "DESCRIBE", "TOPIC", [topic.name for topic in topics])
            return Errors.NONE, [topic for topic in topics if topic.name not in hidden] if hidden else topics
        wanted: dict[str, dict[int, None]] = {}  # each partition once, as in Kafka
        for topic in asked.topics:
            if topic.name in denied.topics:
                continue
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        partitions = [(topic, index) for topic, indexes in wanted.items() for index in indexes]
        found = iter(broker.offsets.fetch(asked.group_id, partitions, require_stable=require_stable))
    except KafkaError as error:
        return error.code, []
    topics = [
        make(name=topic, partitions=[_partition(make.Partitions, index, next(found)) for index in indexes])
        for topic, indexes in wanted.items()
    ]
    if denied.topics:
        code = Errors.TOPIC_AUTHORIZATION_FAILED
        topics += [_refused(make, topic, code) for topic in asked.topics if topic.name in denied.topics]
    return Errors.NONE, topics


def _all(broker: Services, make: Any, group_id: str, require_stable: bool) -> list[Any]:
    topics: dict[str, list[Any]] = {}
    for topic, index, found in broker.offsets.fetch_all(group_id, require_stable=require_stable):
        topics.setdefault(topic, []).append(_partition(make.Partitions, index, found))
    return [make(name=topic, partitions=partitions) for topic, partitions in topics.items()]


def _partition(make: Any, index: int, found: Committed) -> Any:
    code, committed = found
    return make(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _refused(make: Any, topic: Any, code: int) -> Any:
    return make(
        name=topic.name,
        partitions=[
            make.Partitions(partition_index=index, committed_offset=NOTHING, metadata="", error_code=code)
            for index in topic.partition_indexes
        ],
    )


def _from_metadata(broker: Services, call: Call, request: Any, reply: Callable[[Any], None]) -> None:
    """Read the offsets of an OffsetFetch request of version 0 from the metadata tree, and call `reply` with the
    response, in the order of the request. A partition without a committed offset gets UNKNOWN_TOPIC_OR_PARTITION, like
    a partition that does not exist."""
    make = OFFSET_FETCH.Response.Topics
    if call.is_denied("GROUP"):
        code = Errors.GROUP_AUTHORIZATION_FAILED
        reply(OFFSET_FETCH.Response(topics=[_refused(make, topic, code) for topic in request.topics]))
        return
    denied = call.denied_names("TOPIC")
    open_topics = [topic for topic in request.topics if topic.name not in denied]
    refused = [topic for topic in request.topics if topic.name in denied]
    asked = [(topic.name, index) for topic in open_topics for index in topic.partition_indexes]
    there = [where for where in asked if broker.cache.has(*where)]

    def done(found: list[Found] | None, error: Exception | None) -> None:
        offsets = dict(zip(there, found, strict=True)) if found is not None else {}
        topics = []
        for topic in open_topics:
            partitions = []
            for index in topic.partition_indexes:
                offset = offsets.get((topic.name, index))
                code = Errors.NONE
                if error is not None or isinstance(offset, ValueError):
                    code = Errors.UNKNOWN_SERVER_ERROR
                elif offset is None:
                    code = Errors.UNKNOWN_TOPIC_OR_PARTITION
                kept = offset if isinstance(offset, int) else NOTHING
                partitions.append(
                    make.Partitions(partition_index=index, committed_offset=kept, metadata="", error_code=code)
                )
            topics.append(make(name=topic.name, partitions=partitions))
        topics += [_refused(make, topic, Errors.TOPIC_AUTHORIZATION_FAILED) for topic in refused]
        reply(OFFSET_FETCH.Response(topics=topics))

    try:
        broker.consumer_offsets.get(request.group_id, there, done)
    except ValueError as error:
        done(None, error)
