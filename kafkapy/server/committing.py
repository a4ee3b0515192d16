"""The common part of OffsetCommit and TxnOffsetCommit: the offsets of a request, and the result for each partition.
`begin` is for OffsetCommit.

It is a separate module so that the first commit imports it: the handlers are imported when the broker starts.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.offset_records import NO_TIMESTAMP
from kafkapy.coordinator.offsets.commits import Commit, same_code
from kafkapy.coordinator.offsets.store import NewOffsets
from kafkapy.coordinator.shard import Producer
from kafkapy.errors import Errors
from kafkapy.protocol.apis import OFFSET_COMMIT

if TYPE_CHECKING:
    from kafkapy.coordinator.offsets.commits import Codes
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.server.call import Call
    from kafkapy.server.services import Services

__all__ = ["Answers", "Commit", "Producer", "begin", "offsets_in_transaction", "refused", "same_code"]

# Called with the response message.
Reply = Callable[[Any], None]

_BROKERS_RETENTION = -1  # the retention time of a request that leaves it to the broker
_INT64_MAX = (1 << 63) - 1


def offsets_in_transaction(topics: list[Any]) -> NewOffsets:
    """Return the offsets in the `topics` of a TxnOffsetCommit request."""
    return [
        (
            topic.name,
            [
                (
                    one.partition_index,
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata or "",
                    NO_TIMESTAMP,
                )
                for one in topic.partitions
            ],
        )
        for topic in topics
    ]


class Answers:
    """The results of a commit request, for each partition. As in Kafka, topics with partitions that are not committed
    come first, and these partitions first in their topic; otherwise the order is that of the request.

    `offsets` are the offsets to commit: those of existing partitions, except the topics in `refused`, which has an
    error code for each topic whose offsets must not be committed.
    """

    __slots__ = ("_topics", "offsets")

    def __init__(self, cache: MetadataCache, offsets: NewOffsets, refused: Mapping[str, int] | None = None) -> None:
        self.offsets: NewOffsets = []
        self._topics = []  # name, partitions that are not committed with their codes, offsets to commit
        for name, wanted in offsets:
            indexes: Container[int] = cache.indexes(name)
            missing: int = Errors.UNKNOWN_TOPIC_OR_PARTITION
            if refused is not None and name in refused:
                indexes, missing = (), refused[name]
            refusals = [(one[0], missing) for one in wanted if one[0] not in indexes]
            accepted = wanted
            if refusals:
                accepted = [one for one in wanted if one[0] in indexes]
            if accepted:
                self.offsets.append((name, accepted))
            self._topics.append((name, refusals, accepted))

    def topics(self, codes: list[int]) -> list[tuple[str, list[tuple[int, int]]]]:
        """Return the topics of the response. `codes` are the error codes for `offsets`, in the same order, or [] if
        there are none."""
        left = iter(codes)
        topics = [
            (not refusals, name, [*refusals, *zip([one[0] for one in accepted], left, strict=False)])
            for name, refusals, accepted in self._topics
        ]
        topics.sort(key=itemgetter(0))
        return [(name, partitions) for _, name, partitions in topics]


def begin(broker: Services, call: Call, now_ms: int, reply: Reply) -> tuple[Commit, Codes] | None:
    """Return the commit of an OffsetCommit request, and the callback for its error codes.

    Return None if nothing has to be appended to `__consumer_offsets`. The response then goes to `reply`: now, or when
    the metadata tree has stored the offsets.
    """
    request = call.request
    expire_ms = NO_TIMESTAMP
    if request.retention_time_ms != _BROKERS_RETENTION:
        expire_ms = max(0, min(now_ms + request.retention_time_ms, _INT64_MAX))
    answers = Answers(broker.cache, request.offsets, refused(call, request.offsets) if call.denied else None)

    def done(codes: list[int]) -> None:
        reply(OFFSET_COMMIT.Response(topics=answers.topics(codes)))

    if not answers.offsets:
        done([])
        return None
    if call.version == 0:
        _keep_in_metadata(broker, request.group_id, answers.offsets, done)
        return None
    what = Commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation,
        answers.offsets,
        None,
        now_ms,
        expire_ms,
    )
    return what, done


def refused(call: Call, offsets: NewOffsets) -> dict[str, int]:
    """Return an error code for each topic whose offsets the principal may not commit."""
    if call.is_denied("TRANSACTIONAL_ID"):
        return dict.fromkeys((topic for topic, _ in offsets), Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if call.is_denied("GROUP"):
        return dict.fromkeys((topic for topic, _ in offsets), Errors.GROUP_AUTHORIZATION_FAILED)
    return {action.name: Errors.TOPIC_AUTHORIZATION_FAILED for action in call.denied}


def _keep_in_metadata(broker: Services, group_id: str, offsets: NewOffsets, reply: Codes) -> None:
    limit = broker.config["offset.metadata.max.bytes"]
    codes = []
    kept = []
    for topic, of_topic in offsets:
        for partition, offset, _, metadata, _ in of_topic:
            is_too_long = len(metadata) > limit
            codes.append(Errors.OFFSET_METADATA_TOO_LARGE if is_too_long else Errors.NONE)
            if not is_too_long:
                kept.append((topic, partition, offset))

    def done(error: Exception | None) -> None:
        failure = Errors.NONE if error is None else Errors.UNKNOWN_SERVER_ERROR
        reply([code or failure for code in codes])

    try:
        broker.consumer_offsets.set(group_id, kept, done)
    except ValueError as error:
        done(error)
