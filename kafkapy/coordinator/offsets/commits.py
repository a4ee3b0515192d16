"""Commits offsets: checks a commit request, and refuses it or returns the records to append.

Source: Kafka's GroupCoordinator.handleCommitOffsets, handleTxnCommitOffsets and GroupMetadataManager.storeOffsets.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kafkapy._ext.offset_commit import encode_key, encode_value
from kafkapy.coordinator.coordinator_log import coordinator_error
from kafkapy.coordinator.offsets.store import GroupOffset, PendingCommit
from kafkapy.coordinator.shard import TOO_LARGE, Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.strings import fits

if TYPE_CHECKING:
    from kafkapy.coordinator.group_machine import GroupMachine
    from kafkapy.coordinator.shard import Producer, Record

# Called with an error code for each offset of the commit, in their order.
Codes = Callable[[list[int]], None]

_MIN_RECORD_BYTES = 46  # the least size of a commit's record in bytes
_metadata_of = attrgetter("committed.metadata")


class Commit(NamedTuple):
    """An offset commit request. `generation` is -1 if the commit does not come from a member of the group. `producer`
    is set for a commit in that producer's transaction."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: list[GroupOffset]
    producer: Producer | None = None


class Prepared(NamedTuple):
    """A commit request whose records have been encoded, which is done before the lock of the group's partition is
    taken. `accepted` are the offsets to commit. `codes` has an error code for each offset of the request, NONE for
    accepted offsets."""

    request: Commit
    accepted: list[GroupOffset]
    records: list[Record]
    codes: list[int]


def prepare(request: Commit, max_metadata: int, max_bytes: int) -> Prepared:
    """Check the offsets of a commit request and encode them as records. Return the encoded commit for `commit`.

    `max_metadata` is offset.metadata.max.bytes, counted in UTF-16 units as Java does; `max_bytes` is the largest size
    of a batch. Offsets with longer metadata get the code OFFSET_METADATA_TOO_LARGE. Raises KafkaError
    INVALID_COMMIT_OFFSET_SIZE if the records cannot fit into one batch.
    """
    accepted, codes = _accepted(request.offsets, max_metadata)
    group_id = request.group_id
    # If a partition occurs twice, its last offset is committed, as in Kafka.
    by_key = {
        encode_key(group_id, topic, partition): encode_value(*committed) for topic, partition, committed in accepted
    }
    records: list[Record] = list(by_key.items())
    if len(records) * _MIN_RECORD_BYTES > max_bytes:
        raise KafkaError(
            Errors.INVALID_COMMIT_OFFSET_SIZE,
            f"a commit of {len(records)} offsets is larger than message.max.bytes, {max_bytes}",
        )
    return Prepared(request, accepted, records, codes)


def commit(machine: GroupMachine, prepared: Prepared, done: Codes) -> Effects | None:
    """Return the records of a commit to append. `done` is called with an error code for each offset of the request when
    the append has finished.

    If no offset was accepted, call `done` at once and return None. Raises KafkaError if the group refuses the commit.
    """
    request, accepted, records, codes = prepared
    _check(machine, request)
    if not records:
        done(codes)
        return None
    store, producer = machine.offsets, request.producer
    pending = PendingCommit(request.group_id, accepted, producer.id if producer is not None else None)
    store.commit_begins(pending)

    def then(error: KafkaError | None) -> None:
        store.commit_ends(pending, applied=error is None)
        if error is None:
            machine.counts.commits += len(records)
            done(codes)
        else:
            failure = commit_error(error)
            done([code or failure for code in codes])

    return Effects(records, then, producer)


def _check(machine: GroupMachine, request: Commit) -> None:
    """Raise KafkaError unless the group accepts this commit. If the group does not exist and the commit does not name a
    generation, or is transactional, the group is created."""
    transactional = request.producer is not None
    if request.producer is not None and request.producer.id < 0:
        raise KafkaError(Errors.INVALID_PRODUCER_ID_MAPPING, f"{request.producer.id} is not a producer id")
    group = machine.groups.get(request.group_id)
    if group is None:
        if request.generation >= 0 and not transactional:
            raise KafkaError(
                Errors.ILLEGAL_GENERATION,
                f"there is no group {request.group_id!r}, so it has no generation {request.generation}",
            )
        machine.check_room(request.group_id)
        group = machine.group(request.group_id, create=True)
        assert group is not None
    group.check_commit(request.member_id, request.instance_id, request.generation, transactional=transactional)


def _accepted(offsets: list[GroupOffset], max_metadata: int) -> tuple[list[GroupOffset], list[int]]:
    """Return the offsets whose metadata is not too long, and a list with an error code for every offset (NONE, or
    OFFSET_METADATA_TOO_LARGE)."""
    codes = [0] * len(offsets)
    if not any(map(_metadata_of, offsets)):  # nearly no client sets it
        return offsets, codes
    for at, offset in enumerate(offsets):
        metadata = offset.committed.metadata
        if metadata and _is_too_long(metadata, max_metadata):
            codes[at] = Errors.OFFSET_METADATA_TOO_LARGE
    if any(codes):
        return [offset for offset, code in zip(offsets, codes, strict=True) if not code], codes
    return offsets, codes


def _is_too_long(metadata: str, limit: int) -> bool:
    """Return True if an offset's metadata exceeds `limit` UTF-16 units, or the 32,767 UTF-8 bytes that fit into a
    record."""
    units = len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le")) // 2
    return units > limit or not fits(metadata)


def commit_error(error: KafkaError) -> int:
    """Return the error code to send to a client whose commit could not be appended, or whose transaction could not be
    verified."""
    if error.code in TOO_LARGE:
        return Errors.INVALID_COMMIT_OFFSET_SIZE
    # clients do not expect NETWORK_EXCEPTION here; this code makes them retry
    if error.code == Errors.NETWORK_EXCEPTION:
        return Errors.COORDINATOR_LOAD_IN_PROGRESS
    return coordinator_error(error)
