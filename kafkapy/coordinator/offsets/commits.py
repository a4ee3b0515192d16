"""Committing offsets: one step of the shard, which refuses, or answers the records to append.

Source: Kafka's GroupCoordinator.handleCommitOffsets, handleTxnCommitOffsets and GroupMetadataManager.storeOffsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkapy._ext.offset_commit import encode_key, encode_value
from kafkapy.coordinator.coordinator_log import coordinator_error
from kafkapy.coordinator.offsets.store import GroupOffset, OffsetStore, TopicPartition
from kafkapy.coordinator.shard import TOO_LARGE, Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.strings import fits

if TYPE_CHECKING:
    from kafkapy.coordinator.group_counts import GroupCounts
    from kafkapy.coordinator.groups.group import Group
    from kafkapy.coordinator.shard import Producer, Record, Shard

# One error code for each offset of a commit, in their order.
Codes = Callable[[list[int]], None]

_LEAST_RECORD = 46  # bytes of a commit's record with the shortest names


class Home(Protocol):
    """What a shard of `__consumer_offsets` has."""

    shard: Shard[Any]
    groups: dict[str, Group]
    counts: GroupCounts

    @property
    def offsets(self) -> OffsetStore: ...

    def group(self, group_id: str, *, create: bool = False) -> Group | None: ...


class Commit(NamedTuple):
    """Who commits what. `generation` -1: not as a member. `producer`: in its transaction."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: list[GroupOffset]
    producer: Producer | None = None


class Prepared(NamedTuple):
    """A commit as records: what can be done before the shard's turn. `codes`: of each offset, as far as is known."""

    request: Commit
    accepted: list[GroupOffset]
    records: list[Record]
    codes: list[int]


def prepare(request: Commit, max_metadata: int, max_bytes: int) -> Prepared:
    """`max_metadata`: offset.metadata.max.bytes, in characters as Java counts them; `max_bytes`: of a batch.

    Raises KafkaError INVALID_COMMIT_OFFSET_SIZE for one that is far beyond it.
    """
    accepted, codes = _accepted(request.offsets, max_metadata)
    group_id = request.group_id
    # Of a partition that is named twice the last offset counts, as in Kafka.
    by_key = {
        encode_key(group_id, topic, partition): encode_value(*committed) for topic, partition, committed in accepted
    }
    records: list[Record] = list(by_key.items())
    if len(records) * _LEAST_RECORD > max_bytes:
        raise KafkaError(
            Errors.INVALID_COMMIT_OFFSET_SIZE, f"a commit of {len(records)} offsets is more than {max_bytes} bytes"
        )
    return Prepared(request, accepted, records, codes)


def commit(home: Home, prepared: Prepared, done: Codes) -> Effects | None:
    """The step. Raises KafkaError."""
    request, accepted, records, codes = prepared
    _check(home, request)
    if not records:
        done(codes)
        return None
    store, group_id, producer = home.offsets, request.group_id, request.producer
    staged: list[TopicPartition] = []
    if producer is None:
        store.commit_begins(group_id, accepted)
    else:
        staged = store.staging_begins(producer.id, group_id, [(one.topic, one.partition) for one in accepted])

    def then(error: KafkaError | None) -> None:
        if producer is None:
            store.commit_ends(group_id, accepted)
        elif error is not None:
            store.staging_failed(producer.id, group_id, staged)
        if error is None:
            home.counts.commits += len(records)
            done(codes)
        else:
            failure = commit_error(error)
            done([code or failure for code in codes])

    return Effects(records, then, producer)


def _check(home: Home, request: Commit) -> None:
    """Raises KafkaError where the group does not take this commit; a group that is not there is made."""
    transactional = request.producer is not None
    if request.producer is not None and request.producer.id < 0:
        raise KafkaError(Errors.INVALID_PRODUCER_ID_MAPPING, "a producer without an id has no transaction")
    group = home.groups.get(request.group_id)
    if group is None:
        if request.generation >= 0 and not transactional:
            raise KafkaError(
                Errors.ILLEGAL_GENERATION,
                f"there is no group {request.group_id!r}, and so no generation {request.generation}",
            )
        group = home.group(request.group_id, create=True)
        assert group is not None
    group.check_commit(request.member_id, request.instance_id, request.generation, transactional=transactional)


def _accepted(offsets: list[GroupOffset], max_metadata: int) -> tuple[list[GroupOffset], list[int]]:
    """Those whose metadata are not too long, and the code of each as far as it is known now."""
    codes = [0] * len(offsets)
    for at, one in enumerate(offsets):
        metadata = one.committed.metadata
        if metadata and _is_too_long(metadata, max_metadata):
            codes[at] = Errors.OFFSET_METADATA_TOO_LARGE
    if any(codes):
        return [one for one, code in zip(offsets, codes, strict=True) if not code], codes
    return offsets, codes


def _is_too_long(metadata: str, limit: int) -> bool:
    """The limit counts UTF-16 units; beyond it a record cannot hold more than 32,767 bytes of UTF-8."""
    units = len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le")) // 2
    return units > limit or not fits(metadata)


def commit_error(error: KafkaError) -> int:
    """What a failed append, or a transaction that its coordinator does not know, is to the one who commits."""
    if error.code in TOO_LARGE:
        return Errors.INVALID_COMMIT_OFFSET_SIZE
    if error.code == Errors.NETWORK_EXCEPTION:  # older clients know no such answer, and try again with this one
        return Errors.COORDINATOR_LOAD_IN_PROGRESS
    return coordinator_error(error)
